#include "node/hypervisor/view_mount.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstdlib>
#include <memory>
#include <utility>

#include "base/text.h"
#include "system/clock.h"
#include "system/fd.h"
#include "system/file.h"
#include "system/process.h"

namespace tensor_fusion::node::hypervisor {
namespace {

constexpr std::size_t kPieceBytes = 64u << 10;
constexpr std::size_t kMostBytes = 4u << 20;  // sixty containers of a dozen layers have 64 KiB

// As the kernel writes a path there.
std::string escaped(std::string_view path) {
  std::string text;
  for (const char c : path) {
    if (c == ' ' || c == '\t' || c == '\n' || c == '\\') {
      text += {'\\', static_cast<char>('0' + (c >> 6)), static_cast<char>('0' + (c >> 3 & 7)),
               static_cast<char>('0' + (c & 7))};
    } else {
      text += c;
    }
  }
  return text;
}

// The number of the mount that a file is on. statx() tells of it since Linux 5.8 only, this always.
std::string mount_of(const char* path) {
  constexpr std::string_view kField = "mnt_id:";
  const system::Fd file(::open(path, O_PATH | O_NOFOLLOW | O_CLOEXEC));
  if (!file) return "";
  const auto info = system::read_file("/proc/self/fdinfo/" + std::to_string(file.get()), 4096);
  if (!info) return "";
  for (const std::string_view line : base::split(*info, '\n'))
    if (line.starts_with(kField)) return std::string(base::trim(line.substr(kField.size())));
  return "";
}

bool is_for_want(int why) { return why == EMFILE || why == ENFILE || why == ENOMEM; }

Mounts read_from(int file, std::uint64_t until_ns) {
  Mounts mounts;
  std::size_t bytes = 0;
  while (bytes < kMostBytes && (bytes == 0 || system::thread_cpu_ns() < until_ns)) {
    mounts.text.resize(bytes + kPieceBytes);
    const ssize_t got = ::read(file, mounts.text.data() + bytes, kPieceBytes);
    if (got < 0 && errno == EINTR) continue;
    if (got == 0) mounts.whole = bytes > 0;
    if (got < 0) mounts.failed = is_for_want(errno);
    if (got <= 0) break;
    bytes += static_cast<std::size_t>(got);
  }
  mounts.text.resize(bytes);
  return mounts;
}

Mounts read_mounts(pid_t pid, std::uint64_t until_ns) {
  const system::Fd file(::open(("/proc/" + std::to_string(pid) + "/mountinfo").c_str(), O_RDONLY | O_CLOEXEC));
  if (file) return read_from(file.get(), until_ns);
  Mounts none;
  none.failed = is_for_want(errno);
  return none;
}

}  // namespace

std::string all_of(int mountinfo) {
  if (::lseek(mountinfo, 0, SEEK_SET) != 0) return "";
  Mounts mounts = read_from(mountinfo, UINT64_MAX);
  return mounts.whole ? std::move(mounts.text) : "";
}

std::string mount_name(const std::string& file) {
  const std::unique_ptr<char, decltype(&std::free)> real(::realpath(file.c_str(), nullptr), &std::free);
  const std::string wanted = real ? mount_of(real.get()) : "";
  if (wanted.empty()) return "";
  const auto mounts = system::read_file("/proc/self/mountinfo");
  if (!mounts) return "";
  // mount parent device root mount-point …
  const std::string path = escaped(real.get());
  for (const std::string_view line : base::split(*mounts, '\n')) {
    const auto fields = base::split(line, ' ');
    if (fields.size() < 5 || fields[0] != wanted) continue;
    const std::string_view root = fields[3] == "/" ? "" : fields[3], point = fields[4] == "/" ? "" : fields[4];
    if (!path.starts_with(point)) return "";
    return std::string(fields[2]) + " " + std::string(root) + path.substr(point.size());
  }
  return "";
}

Mounts mounts_of_first_thread(pid_t pid, std::uint64_t until_ns) { return read_mounts(pid, until_ns); }

Mounts mounts_of(pid_t pid, std::uint64_t until_ns) {
  Mounts mounts = read_mounts(pid, until_ns);
  if (!mounts.text.empty() || mounts.failed) return mounts;
  const pid_t thread = system::living_thread(pid);
  return thread == pid ? mounts : read_mounts(thread, until_ns);
}

// The file system is not asked: it may be one that a process of the slice answers for, or does not.
std::optional<RootFolder> root_of(pid_t pid) {
  const std::string link = "/proc/" + std::to_string(system::living_thread(pid)) + "/root";
  RootFolder root;
  std::array<char, 4096> path{};
  const ssize_t length = ::readlink(link.c_str(), path.data(), path.size());
  if (length < 0 && (errno == ENOENT || errno == ESRCH)) return std::nullopt;
  root.path.assign(path.data(), length > 0 ? static_cast<std::size_t>(length) : 0);
  struct statx info{};
  if (::statx(AT_FDCWD, link.c_str(), AT_STATX_DONT_SYNC | AT_NO_AUTOMOUNT, STATX_MNT_ID, &info) == 0 &&
      (info.stx_mask & STATX_MNT_ID) != 0)
    root.mount = info.stx_mnt_id;
  return root;
}

void for_each_mount(std::string_view mounts, const std::function<void(std::string_view name)>& take) {
  constexpr std::string_view kDeleted = "//deleted";
  for (const std::string_view line : base::split(mounts, '\n')) {
    // mount parent device root mount-point …
    std::size_t begin = line.find(' ');
    if (begin != std::string_view::npos) begin = line.find(' ', begin + 1);
    if (begin == std::string_view::npos) continue;
    const std::size_t root = line.find(' ', ++begin);
    if (root == std::string_view::npos) continue;
    std::string_view name = line.substr(begin, line.find(' ', root + 1) - begin);
    if (name.ends_with(kDeleted)) name.remove_suffix(kDeleted.size());
    take(name);
  }
}

bool has_mount(std::string_view mounts, std::string_view name) {
  bool has = false;
  if (!name.empty()) for_each_mount(mounts, [&](std::string_view one) { has = has || one == name; });
  return has;
}

}  // namespace tensor_fusion::node::hypervisor
