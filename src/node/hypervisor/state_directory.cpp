#include "node/hypervisor/state_directory.h"

#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <vector>

#include "node/hypervisor/client.h"
#include "node/hypervisor/protocol.h"

namespace tensor_fusion::node::hypervisor {
namespace {

using base::ErrorCode;

// A directory in a place where everybody may write must be ours, or another user could read and replace what is in it.
base::Result<void> check_owner(const std::string& path) {
  struct stat info{};
  if (::lstat(path.c_str(), &info) != 0) return std::unexpected(system::error_of("use the directory", path, errno));
  if (S_ISLNK(info.st_mode)) return {};  // the user's own choice; its target is checked by use
  if (info.st_uid != ::geteuid() && ::geteuid() != 0)
    return base::fail(ErrorCode::kPermission, path + " belongs to another user (" + std::to_string(info.st_uid) +
                                                  "); choose another directory with --state");
  return {};
}

}  // namespace

std::string state_directory(const std::string& explicit_directory) {
  if (!explicit_directory.empty()) return explicit_directory;
  if (const char* chosen = std::getenv(kStateVariable); chosen && *chosen) return chosen;
  if (::geteuid() == 0) return "/run/tensor-fusion";
  if (const char* runtime = std::getenv("XDG_RUNTIME_DIR"); runtime && *runtime)
    return std::string(runtime) + "/tensor-fusion";
  return "/tmp/tensor-fusion-" + std::to_string(::geteuid());
}

std::string StateDirectory::socket() const { return path_ + "/" + kSocketName; }

void StateDirectory::prune_logs() const {
  std::vector<std::pair<std::int64_t, std::string>> files;
  for (const std::string& name : system::list_directory(logs())) {
    struct stat info{};
    const std::string file = logs() + "/" + name;
    if (::lstat(file.c_str(), &info) == 0 && S_ISREG(info.st_mode)) files.emplace_back(info.st_mtim.tv_sec, file);
  }
  if (files.size() <= kLogsKept) return;
  std::sort(files.begin(), files.end());
  for (std::size_t i = 0; i + kLogsKept < files.size(); ++i) ::unlink(files[i].second.c_str());
}

base::Result<StateDirectory> StateDirectory::open(const std::string& path) {
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
       {std::pair{state.records(), 0700u}, {state.pages(), 0700u}, {state.tenants(), 0755u}, {state.logs(), 0755u}})
    if (auto made = system::make_directories(directory, its_mode); !made) return std::unexpected(made.error());
  const std::string probe = path + "/probe";
  if (auto written = system::replace_file(probe, std::string(4096, 'x'), 0600); !written)
    return std::unexpected(written.error());
  ::unlink(probe.c_str());
  return state;
}

}  // namespace tensor_fusion::node::hypervisor
