#include "node/hypervisor/view_mount.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <memory>
#include <utility>

#include "base/text.h"
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

Mounts read_from(int file) {
  Mounts mounts;
  std::size_t bytes = 0;
  while (bytes < kMostBytes) {
    mounts.text.resize(bytes + kPieceBytes);
    const ssize_t got = ::read(file, mounts.text.data() + bytes, kPieceBytes);
    if (got < 0 && errno == EINTR) continue;
    if (got == 0) mounts.whole = bytes > 0;
    if (got <= 0) break;
    bytes += static_cast<std::size_t>(got);
  }
  mounts.text.resize(bytes);
  return mounts;
}

Mounts read_mounts(pid_t pid) {
  const system::Fd file(::open(("/proc/" + std::to_string(pid) + "/mountinfo").c_str(), O_RDONLY | O_CLOEXEC));
  return file ? read_from(file.get()) : Mounts();
}

}  // namespace

std::string all_of(int mountinfo) {
  if (::lseek(mountinfo, 0, SEEK_SET) != 0) return "";
  Mounts mounts = read_from(mountinfo);
  return mounts.whole ? std::move(mounts.text) : "";
}

std::string mount_name(const std::string& file) {
  struct statx info{};
  const std::unique_ptr<char, decltype(&std::free)> real(::realpath(file.c_str(), nullptr), &std::free);
  if (!real || ::statx(AT_FDCWD, real.get(), AT_SYMLINK_NOFOLLOW, STATX_MNT_ID, &info) != 0 ||
      (info.stx_mask & STATX_MNT_ID) == 0)
    return "";
  const auto mounts = system::read_file("/proc/self/mountinfo");
  if (!mounts) return "";
  // mount parent device root mount-point …
  const std::string path = escaped(real.get()), wanted = std::to_string(info.stx_mnt_id);
  for (const std::string_view line : base::split(*mounts, '\n')) {
    const auto fields = base::split(line, ' ');
    if (fields.size() < 5 || fields[0] != wanted) continue;
    const std::string_view root = fields[3] == "/" ? "" : fields[3], point = fields[4] == "/" ? "" : fields[4];
    if (!path.starts_with(point)) return "";
    return std::string(fields[2]) + " " + std::string(root) + path.substr(point.size());
  }
  return "";
}

Mounts mounts_of_first_thread(pid_t pid) { return read_mounts(pid); }

Mounts mounts_of(pid_t pid) {
  Mounts mounts = read_mounts(pid);
  if (!mounts.text.empty()) return mounts;
  const pid_t thread = system::living_thread(pid);
  return thread == pid ? mounts : read_mounts(thread);
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
