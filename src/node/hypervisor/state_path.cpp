#include "node/hypervisor/state_path.h"

#include <sys/stat.h>

#include <array>
#include <cerrno>
#include <string_view>

#include "node/hypervisor/protocol.h"
#include "system/unix_socket.h"

namespace tensor_fusion::node::hypervisor {
namespace {

constexpr std::array<std::string_view, 4> kFolders{"records", "pages", "tenants", "logs"};
constexpr std::string_view kLogName = "hypervisor.log";
constexpr std::array<std::string_view, 2> kFiles{kLockName, "probe"};

base::Result<void> refuse(const std::string& what) {
  return base::fail(base::ErrorCode::kUsage, what + "; choose another directory with --state");
}

// Of one part of the path, or of what stands in it. `there` is false where nothing is yet, or may be looked at.
base::Result<void> check_folder(const std::string& path, bool& there) {
  struct stat info{};
  there = ::stat(path.c_str(), &info) == 0;
  if (there) return S_ISDIR(info.st_mode) ? base::Result<void>() : refuse(path + " is not a directory");
  if (errno == ELOOP) return refuse(path + " is a link that leads back to itself");
  if (errno == ENAMETOOLONG) return refuse(path + " has too long a name");
  if (errno == ENOENT && ::lstat(path.c_str(), &info) == 0)
    return refuse(path + " is a link to something that is not there");
  return {};
}

}  // namespace

base::Result<void> check_state_path(const std::string& path) {
  if (auto fits = system::check_socket_path(path + "/" + kSocketName); !fits) return fits;
  bool there = true;
  for (std::size_t at = path.find('/', 1); there; at = path.find('/', at + 1)) {
    if (auto sound = check_folder(path.substr(0, at), there); !sound) return sound;
    if (at == std::string::npos) break;
  }
  if (!there) return {};
  for (const std::string_view name : kFolders) {
    bool ignored = false;
    if (auto sound = check_folder(path + "/" + std::string(name), ignored); !sound) return sound;
  }
  struct stat info{};
  for (const std::string_view name : kFiles) {
    const std::string file = path + "/" + std::string(name);
    if (::lstat(file.c_str(), &info) == 0 && !S_ISREG(info.st_mode))
      return refuse(file + " is in the way: it is no file");
  }
  // The log may be a link to where its owner wants it, or to nothing; the lock is opened without following any.
  const std::string log = path + "/" + std::string(kLogName);
  if (::stat(log.c_str(), &info) == 0 && !S_ISREG(info.st_mode) && !S_ISCHR(info.st_mode))
    return refuse(log + " is in the way: it is no file");
  const std::string socket = path + "/" + kSocketName;
  if (::lstat(socket.c_str(), &info) == 0 && S_ISDIR(info.st_mode))
    return refuse(socket + " is in the way: it is a directory");
  return {};
}

}  // namespace tensor_fusion::node::hypervisor
