#include "node/hypervisor/state_path.h"

#include <sys/stat.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <string_view>
#include <vector>

#include "base/id.h"
#include "contract/grant.h"
#include "node/hypervisor/protocol.h"
#include "system/file.h"
#include "system/unix_socket.h"

namespace tensor_fusion::node::hypervisor {
namespace {

constexpr std::array<std::string_view, 4> kFolders{"records", "pages", "tenants", "logs"};
constexpr std::string_view kLogName = "hypervisor.log";
constexpr std::array<std::string_view, 2> kFiles{kLockName, "probe"};
// What else may stand in a directory before its lock, or where somebody has removed that: what a hypervisor and `run`
// make, what a slice's own view of the place has, and what a new file system has.
constexpr std::array<std::string_view, 10> kMore{kSocketName,        kLogName,    "overheads", "events.jsonl",
                                                 "events.jsonl.old", "limiter",   "slice",     "ld.so.preload",
                                                 "not-granted",      "lost+found"};
constexpr std::string_view kLimiterBegin = "libtensor_fusion_limiter";
constexpr std::string_view kHalf = ".new.";  // of a write that was under way (system::replace_file)

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
  // Another may make the folder between the two looks: then it is no link.
  if (errno == ENOENT && ::lstat(path.c_str(), &info) == 0 && S_ISLNK(info.st_mode))
    return refuse(path + " is a link to something that is not there");
  return {};
}

bool is_page(std::string_view name) {
  return name == contract::kGrantFile || name == contract::kClaimFile || name == contract::kBellFile ||
         name == std::string(contract::kGrantFile) + ".back" || name == std::string(contract::kClaimFile) + ".back";
}

// Whether a name in one of the folders is one that we give: ID and its ending.
bool is_ours(std::string_view folder, std::string_view name) {
  name = name.substr(0, name.find(kHalf));
  if (folder == "logs" && name == "last") return true;
  const std::string_view id = name.substr(0, name.find('.')), ending = name.substr(id.size());
  if (!base::is_short_id(id)) return false;
  if (folder == "records") return ending == ".json";
  if (folder == "logs") return ending == ".log";
  if (folder == "tenants") return ending.empty();
  return !ending.empty() && is_page(ending.substr(1));
}

// The first file in it that is not ours; empty where all are. Looks no deeper than we make anything.
std::string foreign_file(const std::string& path) {
  for (const std::string& name : system::list_directory(path)) {
    const std::string_view whole = std::string_view(name).substr(0, name.find(kHalf));
    const auto is = [whole](std::string_view known) { return known == whole; };
    if (std::ranges::any_of(kFiles, is) || std::ranges::any_of(kMore, is) || whole.starts_with(kLimiterBegin)) continue;
    if (!std::ranges::any_of(kFolders, is)) return path + "/" + name;
    const std::string folder = path + "/" + name;
    for (const std::string& file : system::list_directory(folder)) {
      if (!is_ours(name, file)) return folder + "/" + file;
      if (name != "tenants") continue;
      for (const std::string& page : system::list_directory(folder + "/" + file))
        if (!is_page(page)) return folder + "/" + file + "/" + page;
    }
  }
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
  if (system::exists(path + "/" + kLockName)) return {};
  if (const std::string foreign = foreign_file(path); !foreign.empty())
    return refuse(path + " is no state directory: it holds other files, such as " + foreign);
  return {};
}

}  // namespace tensor_fusion::node::hypervisor
