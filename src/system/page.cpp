#include "system/page.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <mutex>
#include <utility>

namespace tensor_fusion::system {
namespace {

// What the signal handler may read: plain atomics, filled before a mapping is used and emptied before it is unmapped.
struct Guarded {
  std::atomic<std::uintptr_t> begin{0};
  std::atomic<std::size_t> size{0};
  std::atomic<bool> damaged{false};
  std::atomic<bool> used{false};
};
std::array<Guarded, MappedPage::kMaxMappings> guarded;
std::atomic<int> guarded_end{0};  // slots at and above were never used
struct sigaction previous_action{};
std::once_flag installed;

void pass_on(int number, siginfo_t* info, void* context) {
  if ((previous_action.sa_flags & SA_SIGINFO) != 0 && previous_action.sa_sigaction) {
    previous_action.sa_sigaction(number, info, context);
  } else if (previous_action.sa_handler != SIG_DFL && previous_action.sa_handler != SIG_IGN) {
    previous_action.sa_handler(number);
  } else {
    ::signal(number, SIG_DFL);  // returning repeats the access, which then ends the process as it should
  }
}

void on_bus_error(int number, siginfo_t* info, void* context) {
  const int saved = errno;
  const auto address = reinterpret_cast<std::uintptr_t>(info->si_addr);
  const int end = guarded_end.load(std::memory_order_acquire);
  for (int i = 0; i < end; ++i) {
    Guarded& slot = guarded[static_cast<std::size_t>(i)];
    const std::uintptr_t begin = slot.begin.load(std::memory_order_acquire);
    const std::size_t size = slot.size.load(std::memory_order_acquire);
    if (begin == 0 || address < begin || address >= begin + size) continue;
    constexpr std::uintptr_t kPage = 4096;
    void* const page = reinterpret_cast<void*>(address & ~(kPage - 1));
    // mmap is a bare system call here; it is async-signal-safe on every libc we build for.
    const void* zero = ::mmap(page, kPage, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
    if (zero == MAP_FAILED) break;
    slot.damaged.store(true, std::memory_order_release);
    errno = saved;
    return;
  }
  pass_on(number, info, context);
}

void install_handler() {
  struct sigaction action{};
  action.sa_sigaction = on_bus_error;
  action.sa_flags = SA_SIGINFO | SA_RESTART;
  sigemptyset(&action.sa_mask);
  ::sigaction(SIGBUS, &action, &previous_action);
}

int guard(void* data, std::size_t size) {
  std::call_once(installed, install_handler);
  for (std::size_t i = 0; i < guarded.size(); ++i) {
    bool free = false;
    if (!guarded[i].used.compare_exchange_strong(free, true)) continue;
    guarded[i].damaged.store(false);
    guarded[i].size.store(size, std::memory_order_release);
    guarded[i].begin.store(reinterpret_cast<std::uintptr_t>(data), std::memory_order_release);
    int end = guarded_end.load();
    while (end < static_cast<int>(i) + 1 && !guarded_end.compare_exchange_weak(end, static_cast<int>(i) + 1)) {
    }
    return static_cast<int>(i);
  }
  return -1;
}

void unguard(int slot) {
  if (slot < 0) return;
  Guarded& entry = guarded[static_cast<std::size_t>(slot)];
  entry.begin.store(0, std::memory_order_release);
  entry.used.store(false, std::memory_order_release);
}

int protection(bool writable) { return writable ? PROT_READ | PROT_WRITE : PROT_READ; }

}  // namespace

MappedPage::MappedPage(Fd fd, void* data, std::size_t size, bool writable, FileIdentity identity)
    : fd_(std::move(fd)),
      data_(data),
      size_(size),
      writable_(writable),
      slot_(guard(data, size)),
      identity_(identity) {}

MappedPage::MappedPage(MappedPage&& other) noexcept
    : fd_(std::move(other.fd_)),
      data_(std::exchange(other.data_, nullptr)),
      size_(std::exchange(other.size_, 0)),
      writable_(other.writable_),
      slot_(std::exchange(other.slot_, -1)),
      identity_(other.identity_) {}

MappedPage& MappedPage::operator=(MappedPage&& other) noexcept {
  if (this == &other) return *this;
  release();
  fd_ = std::move(other.fd_);
  data_ = std::exchange(other.data_, nullptr);
  size_ = std::exchange(other.size_, 0);
  writable_ = other.writable_;
  slot_ = std::exchange(other.slot_, -1);
  identity_ = other.identity_;
  return *this;
}

MappedPage::~MappedPage() { release(); }

void MappedPage::release() {
  unguard(std::exchange(slot_, -1));
  if (data_) ::munmap(std::exchange(data_, nullptr), size_);
}

base::Result<MappedPage> MappedPage::create(const std::string& path, std::size_t size, unsigned mode) {
  {
    Fd file(::open(path.c_str(), O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, mode));
    if (!file) return std::unexpected(error_of("make", path, errno));
    int problem = 0;
    if (::fchmod(file.get(), mode) != 0 || ::ftruncate(file.get(), static_cast<off_t>(size)) != 0) problem = errno;
    // All of it is taken now, so that a full file system is an error here and not a signal to whoever touches it later.
    if (problem == 0) problem = ::posix_fallocate(file.get(), 0, static_cast<off_t>(size));
    if (problem != 0) {
      ::unlink(path.c_str());
      return std::unexpected(error_of("make", path, problem));
    }
  }
  return attach(path, size, true);
}

base::Result<MappedPage> MappedPage::attach(const std::string& path, std::size_t size, bool writable) {
  Fd file(::open(path.c_str(), (writable ? O_RDWR : O_RDONLY) | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK));
  if (!file) return std::unexpected(error_of("open", path, errno));
  struct stat info{};
  if (::fstat(file.get(), &info) != 0) return std::unexpected(error_of("open", path, errno));
  if (!S_ISREG(info.st_mode)) return base::fail(base::ErrorCode::kProtocol, path + " is not a regular file");
  if (static_cast<std::size_t>(info.st_size) != size)
    return base::fail(base::ErrorCode::kProtocol,
                      path + " has " + std::to_string(info.st_size) + " bytes, not " + std::to_string(size));
  void* data = ::mmap(nullptr, size, protection(writable), MAP_SHARED, file.get(), 0);
  if (data == MAP_FAILED) return std::unexpected(error_of("map", path, errno));
  const FileIdentity identity = *identity_of(file.get());
  MappedPage page(std::move(file), data, size, writable, identity);
  if (page.slot_ < 0) return base::fail(base::ErrorCode::kInternal, "too many pages are mapped");
  return page;
}

bool MappedPage::damaged() const {
  return slot_ >= 0 && guarded[static_cast<std::size_t>(slot_)].damaged.load(std::memory_order_acquire);
}

base::Result<void> MappedPage::repair() {
  if (!valid()) return base::fail(base::ErrorCode::kInternal, "no page is mapped");
  if (::ftruncate(fd_.get(), static_cast<off_t>(size_)) != 0)
    return std::unexpected(error_of("give its size back to", "a page", errno));
  if (const int problem = ::posix_fallocate(fd_.get(), 0, static_cast<off_t>(size_)); problem != 0)
    return std::unexpected(error_of("give its size back to", "a page", problem));
  guarded[static_cast<std::size_t>(slot_)].damaged.store(false, std::memory_order_release);
  // Other threads use the page meanwhile and see the old mapping or the new one, whole. The kernel is asked directly,
  // since the thread sanitizer takes mmap for a write to every byte.
  if (::syscall(SYS_mmap, data_, size_, protection(writable_), MAP_SHARED | MAP_FIXED, fd_.get(), 0) == -1)
    return std::unexpected(error_of("map", "a page", errno));
  return {};
}

}  // namespace tensor_fusion::system
