#include "node/hypervisor/state_directory.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <filesystem>

#include "base/id.h"
#include "node/hypervisor/client.h"
#include "node/hypervisor/log_shelf.h"
#include "node/hypervisor/protocol.h"
#include "node/hypervisor/state_path.h"
#include "system/fd.h"

namespace tensor_fusion::node::hypervisor {
namespace {

using base::ErrorCode;

constexpr const char* kOwnLog = "/hypervisor.log";
constexpr std::uint64_t kOwnLogMost = 4u << 20;
constexpr std::uint64_t kOwnLogKept = 1u << 20;
constexpr const char* kLogEnding = ".log";
constexpr const char* kLastFolder = "/last";  // in logs: a folder for each user, with one link a name

}  // namespace

// Whoever owns it decides what stands in it, and a hypervisor acts on that with its own user's rights: root's, too.
base::Result<void> check_owner(const std::string& path) {
  struct stat named{}, meant{};
  if (::lstat(path.c_str(), &named) != 0 || ::stat(path.c_str(), &meant) != 0)
    return std::unexpected(system::error_of("use the directory", path, errno));
  for (const uid_t owner : {named.st_uid, meant.st_uid})
    if (owner != ::geteuid())
      return base::fail(ErrorCode::kPermission, path + " belongs to another user (" + std::to_string(owner) +
                                                    "); choose another directory with --state");
  return {};
}

std::string state_directory(const std::string& explicit_directory) {
  if (!explicit_directory.empty()) return explicit_directory;
  if (const char* chosen = std::getenv(kStateVariable); chosen && *chosen) return chosen;
  if (::geteuid() == 0) return "/run/tensor-fusion";
  if (const char* runtime = std::getenv("XDG_RUNTIME_DIR"); runtime && *runtime)
    return std::string(runtime) + "/tensor-fusion";
  return "/tmp/tensor-fusion-" + std::to_string(::geteuid());
}

std::string StateDirectory::socket() const { return path_ + "/" + kSocketName; }

base::Result<void> StateDirectory::make_log(const std::string& id, uid_t user, gid_t group) const {
  const std::string file = log(id);
  const system::Fd made(::open(file.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0600));
  if (!made) return std::unexpected(system::error_of("keep output in", file, errno));
  if (user == ::geteuid() || ::fchown(made.get(), user, group) == 0) return {};
  const int error_number = errno;
  remove_log(id);
  return std::unexpected(system::error_of("keep output in", file, error_number));
}

void StateDirectory::remove_log(const std::string& id) const { ::unlink(log(id).c_str()); }

base::Result<void> StateDirectory::name_log(const std::string& id, const std::string& name, uid_t user) const {
  const std::string folder = logs() + kLastFolder + "/" + std::to_string(user);
  if (auto made = system::make_directories(folder); !made) return made;
  const std::string link = folder + "/" + name;
  ::unlink(link.c_str());
  if (::symlink(("../../" + id + kLogEnding).c_str(), link.c_str()) != 0)
    return std::unexpected(system::error_of("write", link, errno));
  return {};
}

std::optional<std::string> kept_log(const std::string& state, const std::string& word, uid_t user) {
  if (!base::check_name(word)) return std::nullopt;
  const std::string folder = state + "/logs";
  const std::string last = folder + kLastFolder;
  for (const std::string& file : {last + "/" + std::to_string(user) + "/" + word, folder + "/" + word + kLogEnding}) {
    std::error_code none;
    const auto real = std::filesystem::canonical(file, none);
    if (!none) return real.string();
  }
  struct stat owner{};
  if (user != 0 && (::stat(state.c_str(), &owner) != 0 || owner.st_uid != user)) return std::nullopt;
  std::optional<std::string> newest;
  timespec newest_time{};
  for (const std::string& one : system::list_directory(last)) {
    const std::string link = last + "/" + one + "/" + word;
    struct stat info{};
    if (::lstat(link.c_str(), &info) != 0) continue;
    const bool later =
        std::pair(info.st_mtim.tv_sec, info.st_mtim.tv_nsec) >= std::pair(newest_time.tv_sec, newest_time.tv_nsec);
    std::error_code none;
    const auto real = std::filesystem::canonical(link, none);
    if (none || !later) continue;
    newest = real.string();
    newest_time = info.st_mtim;
  }
  return newest;
}

void StateDirectory::prune_logs() const {
  LogShelf(logs()).prune([this](const std::string& id) { return system::exists(record(id)); });
  shorten(path_ + kOwnLog, kOwnLogMost, kOwnLogKept);
  for (const std::string& user : system::list_directory(logs() + kLastFolder)) {
    const std::string folder = logs() + kLastFolder + "/" + user;
    for (const std::string& name : system::list_directory(folder)) {
      const std::string link = folder + "/" + name;
      if (::access(link.c_str(), F_OK) != 0 && errno == ENOENT) ::unlink(link.c_str());
    }
    ::rmdir(folder.c_str());  // where nothing is left in it
  }
}

void StateDirectory::cut_logs(const std::vector<std::string>& running) const { LogShelf(logs()).cut_running(running); }

base::Result<StateDirectory> StateDirectory::open(const std::string& path) {
  if (auto sound = check_state_path(path); !sound) return std::unexpected(sound.error());
  const unsigned mode = ::geteuid() == 0 ? 0755 : 0700;
  if (auto made = system::make_directories(path, mode); !made) return std::unexpected(made.error());
  if (auto owned = check_owner(path); !owned) return std::unexpected(owned.error());
  auto lock = system::FileLock::acquire(path + "/" + kLockName);
  if (!lock && lock.error().code == ErrorCode::kAlreadyRunning) {
    const std::string& held = lock.error().message;
    constexpr std::string_view kBefore = "process ";
    const std::size_t begin = held.find(kBefore);
    const std::string pid =
        begin == std::string::npos ? "?" : held.substr(begin + kBefore.size(), held.find(':') - begin - kBefore.size());
    return base::fail(ErrorCode::kAlreadyRunning,
                      "a hypervisor (process " + pid + ") already serves " + path +
                          "; use that one, end it, or choose another directory with --state");
  }
  if (!lock) return std::unexpected(lock.error());
  StateDirectory state(path, std::move(*lock));
  for (const auto& [directory, its_mode] :
       {std::pair{state.records(), 0700u}, {state.pages(), 0700u}, {state.tenants(), 0755u}, {state.logs(), 0755u}}) {
    if (auto made = system::make_directories(directory, its_mode); !made) return std::unexpected(made.error());
    if (auto owned = check_owner(directory); !owned) return std::unexpected(owned.error());
  }
  state.prune_logs();  // they may be what fills it
  const std::string probe = path + "/probe";
  if (auto written = system::replace_file(probe, std::string(4096, 'x'), 0600); !written)
    return std::unexpected(written.error());
  ::unlink(probe.c_str());
  return state;
}

}  // namespace tensor_fusion::node::hypervisor
