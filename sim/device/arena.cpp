#include "sim/device/arena.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <string>

namespace tensor_fusion::sim::device {
namespace {

constexpr std::size_t kHuge = std::size_t{2} << 20;

[[nodiscard]] std::unexpected<Error> failed(const char* what) {
  return std::unexpected(
      Error{errno == ENOMEM ? Errc::out_of_memory : Errc::system, std::string(what) + ": " + std::strerror(errno)});
}
[[nodiscard]] bool pages(std::size_t offset, std::size_t bytes) {
  return offset % kArenaPage == 0 && bytes % kArenaPage == 0;
}
[[nodiscard]] std::unexpected<Error> odd() {
  return std::unexpected(Error{Errc::invalid, "not a multiple of the page size, or outside"});
}

}  // namespace

std::expected<Arena, Error> Arena::reserve(std::size_t bytes) {
  Arena arena;
  bytes = (bytes + kHuge - 1) / kHuge * kHuge;
  arena.fd_ = ::memfd_create("tensor-fusion-sim-memory", MFD_CLOEXEC);
  if (arena.fd_ < 0) return failed("memfd_create");
  if (::ftruncate(arena.fd_, static_cast<off_t>(bytes)) != 0) return failed("ftruncate");
  // Aligned to 2 MiB, as device pointers of large allocations are.
  void* wide = ::mmap(nullptr, bytes + kHuge, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (wide == MAP_FAILED) return failed("mmap");
  auto* start = static_cast<std::byte*>(wide);
  std::byte* aligned = start + (kHuge - reinterpret_cast<std::uintptr_t>(start) % kHuge) % kHuge;
  if (aligned != start) ::munmap(start, static_cast<std::size_t>(aligned - start));
  if (const auto rest = static_cast<std::size_t>(start + kHuge - aligned); rest != 0) ::munmap(aligned + bytes, rest);
  if (::mmap(aligned, bytes, PROT_NONE, MAP_SHARED | MAP_FIXED | MAP_NORESERVE, arena.fd_, 0) == MAP_FAILED) {
    ::munmap(aligned, bytes);
    return failed("mmap");
  }
  ::madvise(aligned, bytes, MADV_DONTDUMP);
  arena.base_ = aligned;
  arena.size_ = bytes;
  return arena;
}

Arena::~Arena() {
  if (base_ != nullptr) ::munmap(base_, size_);
  if (fd_ >= 0) ::close(fd_);
}

std::expected<void, Error> Arena::commit(std::size_t offset, std::size_t bytes) {
  if (!pages(offset, bytes) || offset > size_ || bytes > size_ - offset) return odd();
  if (::mprotect(base_ + offset, bytes, PROT_READ | PROT_WRITE) != 0) return failed("mprotect");
  return {};
}

std::expected<void, Error> Arena::decommit(std::size_t offset, std::size_t bytes) {
  if (!pages(offset, bytes) || offset > size_ || bytes > size_ - offset) return odd();
  if (bytes == 0) return {};
  if (::mprotect(base_ + offset, bytes, PROT_NONE) != 0) return failed("mprotect");
  if (::fallocate(fd_, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, static_cast<off_t>(offset),
                  static_cast<off_t>(bytes)) != 0) {
    return failed("fallocate");
  }
  return {};
}

std::expected<Physical, Error> Physical::create(std::size_t bytes) {
  Physical physical;
  physical.fd_ = ::memfd_create("tensor-fusion-sim-physical", MFD_CLOEXEC);
  if (physical.fd_ < 0) return failed("memfd_create");
  if (::ftruncate(physical.fd_, static_cast<off_t>(bytes)) != 0) return failed("ftruncate");
  physical.size_ = bytes;
  return physical;
}

std::expected<Physical, Error> Physical::adopt(int fd) {
  Physical physical;
  physical.fd_ = fd;
  struct stat info{};
  if (::fstat(fd, &info) != 0) {
    physical.fd_ = -1;
    return failed("fstat");
  }
  physical.size_ = static_cast<std::size_t>(info.st_size);
  return physical;
}

Physical::~Physical() {
  if (fd_ >= 0) ::close(fd_);
}

std::expected<std::byte*, Error> reserve_addresses(std::size_t bytes, std::size_t alignment, void* wish) {
  if (alignment < kArenaPage) alignment = kArenaPage;
  if (bytes == 0 || bytes % kArenaPage != 0 || (alignment & (alignment - 1)) != 0) return odd();
  if (wish != nullptr) {
    void* at = ::mmap(wish, bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (at == MAP_FAILED) return failed("mmap");
    if (at == wish || reinterpret_cast<std::uintptr_t>(at) % alignment == 0) return static_cast<std::byte*>(at);
    ::munmap(at, bytes);
  }
  void* wide = ::mmap(nullptr, bytes + alignment, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (wide == MAP_FAILED) return failed("mmap");
  auto* start = static_cast<std::byte*>(wide);
  std::byte* aligned = start + (alignment - reinterpret_cast<std::uintptr_t>(start) % alignment) % alignment;
  if (aligned != start) ::munmap(start, static_cast<std::size_t>(aligned - start));
  ::munmap(aligned + bytes, static_cast<std::size_t>(start + alignment - aligned));
  return aligned;
}

void free_addresses(void* address, std::size_t bytes) { ::munmap(address, bytes); }

std::expected<void, Error> map_at(void* address, std::size_t bytes, int fd, std::size_t offset) {
  if (!pages(offset, bytes) || reinterpret_cast<std::uintptr_t>(address) % kArenaPage != 0) return odd();
  if (::mmap(address, bytes, PROT_NONE, MAP_SHARED | MAP_FIXED | MAP_NORESERVE, fd, static_cast<off_t>(offset)) ==
      MAP_FAILED) {
    return failed("mmap");
  }
  return {};
}

std::expected<void, Error> unmap_at(void* address, std::size_t bytes) {
  if (::mmap(address, bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1, 0) == MAP_FAILED) {
    return failed("mmap");
  }
  return {};
}

std::expected<void, Error> protect(void* address, std::size_t bytes, Access access) {
  const int flags = access == Access::none ? PROT_NONE : access == Access::read ? PROT_READ : PROT_READ | PROT_WRITE;
  if (::mprotect(address, bytes, flags) != 0) return failed("mprotect");
  return {};
}

namespace {
struct flock range_lock(short type, std::size_t offset, std::size_t bytes) {
  struct flock lock{};
  lock.l_type = type;
  lock.l_whence = SEEK_SET;
  lock.l_start = static_cast<off_t>(offset);
  lock.l_len = static_cast<off_t>(bytes);
  return lock;
}
}  // namespace

bool hold_range(int fd, std::size_t offset, std::size_t bytes) {
  struct flock lock = range_lock(F_RDLCK, offset, bytes);
  return ::fcntl(fd, F_OFD_SETLK, &lock) == 0;
}

bool is_range_held(int fd, std::size_t offset, std::size_t bytes) {
  struct flock lock = range_lock(F_WRLCK, offset, bytes);
  return ::fcntl(fd, F_OFD_GETLK, &lock) == 0 && lock.l_type != F_UNLCK;
}

std::expected<int, Error> open_foreign(std::uint32_t pid, int fd) {
  const std::string path = "/proc/" + std::to_string(pid) + "/fd/" + std::to_string(fd);
  const int opened = ::open(path.c_str(), O_RDWR | O_CLOEXEC);
  if (opened < 0) return failed("cannot open the other process's memory");
  return opened;
}

}  // namespace tensor_fusion::sim::device
