#include "system/file.h"

#include <dirent.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <sys/xattr.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>

namespace tensor_fusion::system {
namespace {

using base::ErrorCode;

ErrorCode code_of(int error_number) {
  switch (error_number) {
    case ENOENT:
    case ENOTDIR:
      return ErrorCode::kNotFound;
    case EEXIST:
      return ErrorCode::kAlreadyExists;
    case EACCES:
    case EPERM:
      return ErrorCode::kPermission;
    case ENOSPC:
    case EDQUOT:
      return ErrorCode::kNoSpace;
    case EROFS:
      return ErrorCode::kReadOnly;
    case ECONNREFUSED:
    case ETIMEDOUT:
      return ErrorCode::kUnavailable;
    default:
      return ErrorCode::kInternal;
  }
}

constexpr int kLockTries = 400;
constexpr unsigned kLockPauseUs = 5000;

const char* advice_for(ErrorCode code) {
  switch (code) {
    case ErrorCode::kPermission:
      return "; run as a user who may, or choose another directory with --state";
    case ErrorCode::kNoSpace:
      return "; free some space, or choose another directory with --state";
    case ErrorCode::kReadOnly:
      return "; choose a writable directory with --state";
    default:
      return "";
  }
}

base::Result<void> write_all(int fd, std::string_view content, const std::string& path) {
  while (!content.empty()) {
    const ssize_t written = ::write(fd, content.data(), content.size());
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) return std::unexpected(error_of("write", path, errno));
    content.remove_prefix(static_cast<std::size_t>(written));
  }
  return {};
}

FileIdentity identity_from(const struct stat& info) {
  return {static_cast<std::uint64_t>(info.st_dev), static_cast<std::uint64_t>(info.st_ino),
          static_cast<std::uint64_t>(info.st_size)};
}

base::Result<void> remove_entry(int parent, const char* name, const std::string& shown, int depth) {
  if (::unlinkat(parent, name, 0) == 0 || errno == ENOENT) return {};
  if (errno != EISDIR && errno != EPERM) return std::unexpected(error_of("remove", shown, errno));
  constexpr int kMaxDepth = 64;  // a tree of ours has three levels; a deeper one is not ours
  if (depth > kMaxDepth) return base::fail(ErrorCode::kInternal, "cannot remove " + shown + ": too deep");
  Fd directory(::openat(parent, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC));
  if (!directory) return std::unexpected(error_of("remove", shown, errno));
  if (DIR* listing = ::fdopendir(::dup(directory.get()))) {
    while (const dirent* entry = ::readdir(listing)) {
      const std::string_view child = entry->d_name;
      if (child == "." || child == "..") continue;
      if (auto removed = remove_entry(directory.get(), entry->d_name, shown + "/" + entry->d_name, depth + 1);
          !removed) {
        ::closedir(listing);
        return removed;
      }
    }
    ::closedir(listing);
  }
  if (::unlinkat(parent, name, AT_REMOVEDIR) != 0 && errno != ENOENT)
    return std::unexpected(error_of("remove", shown, errno));
  return {};
}

}  // namespace

base::Error error_of(const std::string& doing, const std::string& path, int error_number) {
  const ErrorCode code = code_of(error_number);
  return {code, "cannot " + doing + " " + path + ": " + std::strerror(error_number) + advice_for(code)};
}

base::Result<std::string> read_file(const std::string& path, std::size_t max_bytes) {
  Fd file(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NOCTTY | O_NONBLOCK));
  if (!file) return std::unexpected(error_of("read", path, errno));
  std::string content;
  std::array<char, 16384> block{};
  while (true) {
    const ssize_t got = ::read(file.get(), block.data(), block.size());
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return std::unexpected(error_of("read", path, errno));
    if (got == 0) return content;
    content.append(block.data(), static_cast<std::size_t>(got));
    if (content.size() > max_bytes)
      return base::fail(ErrorCode::kInternal,
                        "cannot read " + path + ": larger than " + std::to_string(max_bytes) + " bytes");
  }
}

base::Result<void> replace_file(const std::string& path, std::string_view content, unsigned mode) {
  static std::atomic<unsigned> counter{0};
  const std::string beside = path + ".new." + std::to_string(::getpid()) + "." + std::to_string(counter.fetch_add(1));
  Fd file(::open(beside.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, mode));
  if (!file) return std::unexpected(error_of("write", path, errno));
  auto written = write_all(file.get(), content, path);
  if (written && ::fchmod(file.get(), mode) != 0) written = std::unexpected(error_of("write", path, errno));
  if (written && ::fdatasync(file.get()) != 0) written = std::unexpected(error_of("write", path, errno));
  if (written && ::rename(beside.c_str(), path.c_str()) != 0) written = std::unexpected(error_of("write", path, errno));
  if (!written) ::unlink(beside.c_str());
  return written;
}

base::Result<bool> let_user_in(const std::string& folder, std::uint32_t user) {
  // POSIX access control list, as the kernel's linux/posix_acl_xattr.h lays it out (little-endian, entries in this
  // order).
  struct Entry {
    std::uint16_t tag, permissions;
    std::uint32_t id;
  };
  constexpr std::uint16_t kOwner = 0x01, kUser = 0x02, kGroup = 0x04, kMask = 0x10, kOther = 0x20;
  constexpr std::uint32_t kNobody = 0xffffffff;
  const struct {
    std::uint32_t version = 2;
    Entry entries[5];
  } list = {2,
            {{kOwner, 7, kNobody}, {kUser, 5, user}, {kGroup, 0, kNobody}, {kMask, 5, kNobody}, {kOther, 0, kNobody}}};
  if (::lsetxattr(folder.c_str(), "system.posix_acl_access", &list, sizeof list, 0) == 0) return true;
  if (errno == EOPNOTSUPP || errno == ENOSYS) return false;
  return std::unexpected(error_of("keep to its user", folder, errno));
}

base::Result<void> make_directories(const std::string& path, unsigned mode) {
  for (std::size_t at = path.find('/', 1);; at = path.find('/', at + 1)) {
    const std::string part = path.substr(0, at);
    if (::mkdir(part.c_str(), mode) != 0 && errno != EEXIST) {
      if (errno == ENOTDIR)
        return base::fail(ErrorCode::kUsage,
                          part.substr(0, part.rfind('/')) + " is not a directory; choose another with --state");
      const int why = errno;
      struct stat info{};
      if (::stat(part.c_str(), &info) != 0 || !S_ISDIR(info.st_mode))
        return std::unexpected(error_of("make the directory", part, why == ENOENT ? EACCES : why));
    }
    if (at == std::string::npos) break;
  }
  struct stat info{};
  if (::stat(path.c_str(), &info) != 0) return std::unexpected(error_of("use the directory", path, errno));
  if (!S_ISDIR(info.st_mode))
    return base::fail(ErrorCode::kUsage, path + " is not a directory; choose another with --state");
  return {};
}

base::Result<void> remove_tree(const std::string& path) { return remove_entry(AT_FDCWD, path.c_str(), path, 0); }

std::vector<std::string> list_directory(const std::string& path) {
  std::vector<std::string> names;
  DIR* listing = ::opendir(path.c_str());
  if (!listing) return names;
  while (const dirent* entry = ::readdir(listing)) {
    const std::string_view name = entry->d_name;
    if (name != "." && name != "..") names.emplace_back(name);
  }
  ::closedir(listing);
  std::sort(names.begin(), names.end());
  return names;
}

bool exists(const std::string& path) { return identity_of(path).has_value(); }

std::optional<FileIdentity> identity_of(const std::string& path) {
  struct stat info{};
  if (::lstat(path.c_str(), &info) != 0) return std::nullopt;
  return identity_from(info);
}

std::optional<FileIdentity> identity_of(int fd) {
  struct stat info{};
  if (::fstat(fd, &info) != 0) return std::nullopt;
  return identity_from(info);
}

base::Result<FileLock> FileLock::acquire(const std::string& path) {
  Fd file(::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0644));
  if (!file) return std::unexpected(error_of("open the lock", path, errno));
  for (int tries = 0; ::flock(file.get(), LOCK_EX | LOCK_NB) != 0; ++tries) {
    if (errno != EWOULDBLOCK) return std::unexpected(error_of("lock", path, errno));
    std::array<char, 32> holder{};
    const ssize_t got = ::pread(file.get(), holder.data(), holder.size() - 1, 0);
    std::string pid(holder.data(), got > 0 ? static_cast<std::size_t>(got) : 0);
    while (!pid.empty() && pid.back() == '\n') pid.pop_back();
    // A child of a dead holder may not have let go yet of what it was born with.
    const int number = std::atoi(pid.c_str());
    if (tries < kLockTries && number > 0 && ::kill(number, 0) != 0 && errno == ESRCH) {
      ::usleep(kLockPauseUs);
      continue;
    }
    return base::fail(ErrorCode::kAlreadyRunning,
                      "already held by process " + (pid.empty() ? "(unknown)" : pid) + ": " + path);
  }
  const std::string own = std::to_string(::getpid()) + "\n";
  if (::ftruncate(file.get(), 0) != 0) return std::unexpected(error_of("write", path, errno));
  if (auto written = write_all(file.get(), own, path); !written) return std::unexpected(written.error());
  return FileLock(std::move(file));
}

bool is_locked(const std::string& path) {
  struct stat info{};
  const auto locks = read_file("/proc/locks");
  if (!locks || ::stat(path.c_str(), &info) != 0) return false;
  std::array<char, 64> place{};  // as the kernel writes it
  std::snprintf(place.data(), place.size(), " %02x:%02x:%llu ", major(info.st_dev), minor(info.st_dev),
                static_cast<unsigned long long>(info.st_ino));
  return locks->find(place.data()) != std::string::npos;
}

}  // namespace tensor_fusion::system
