#include "cli/slice_view.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sched.h>
#include <sys/mount.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <functional>

#include "cli/limiter_library.h"
#include "contract/grant.h"
#include "system/fd.h"
#include "system/file.h"

namespace tensor_fusion::cli {
namespace {

using Done = std::expected<void, std::string>;

std::unexpected<std::string> because(const std::string& doing) {
  return std::unexpected(fmt::format("{}: {}", doing, std::strerror(errno)));
}

Done write_once(const std::string& path, std::string_view text) {
  const system::Fd file(::open(path.c_str(), O_WRONLY | O_CLOEXEC));
  if (!file || ::write(file.get(), text.data(), text.size()) != static_cast<ssize_t>(text.size()))
    return because("write " + path);
  return {};
}

// As whoever we were, so that files keep their owner; capabilities end with exec for all but root.
Done unshare_with_user() {
  const uid_t user = ::geteuid();
  const gid_t group = ::getegid();
  if (::unshare(CLONE_NEWUSER | CLONE_NEWNS) != 0) return because("make a user namespace");
  if (auto done = write_once("/proc/self/setgroups", "deny"); !done) return done;
  if (auto done = write_once("/proc/self/uid_map", fmt::format("{} {} 1", user, user)); !done) return done;
  return write_once("/proc/self/gid_map", fmt::format("{} {} 1", group, group));
}

Done unshare_mounts() {
  if (::unshare(CLONE_NEWNS) != 0) {
    if (errno != EPERM) return because("make a mount namespace");
    if (auto done = unshare_with_user(); !done) return done;
  }
  // What the host mounts later still appears here; what we mount stays here.
  if (::mount(nullptr, "/", nullptr, MS_REC | MS_SLAVE, nullptr) != 0) return because("keep mounts private");
  return {};
}

Done bind_at(const std::string& source, const std::string& target) {
  if (::mount(source.c_str(), target.c_str(), nullptr, MS_BIND | MS_REC, nullptr) != 0) {
    return because(fmt::format("bind {} at {}", source, target));
  }
  return {};
}

Done make_read_only(const std::string& target) {
  // A mount in a user namespace must keep the flags it came with.
  struct statvfs status{};
  unsigned long flags = MS_REMOUNT | MS_BIND | MS_RDONLY;
  if (::statvfs(target.c_str(), &status) == 0) {
    if ((status.f_flag & ST_NOSUID) != 0) flags |= MS_NOSUID;
    if ((status.f_flag & ST_NODEV) != 0) flags |= MS_NODEV;
    if ((status.f_flag & ST_NOEXEC) != 0) flags |= MS_NOEXEC;
    if ((status.f_flag & ST_NOATIME) != 0) flags |= MS_NOATIME;
    if ((status.f_flag & ST_NODIRATIME) != 0) flags |= MS_NODIRATIME;
    if ((status.f_flag & ST_RELATIME) != 0) flags |= MS_RELATIME;
  }
  if (::mount(nullptr, target.c_str(), nullptr, flags, nullptr) != 0) return because("make read-only " + target);
  return {};
}

Done mount_memory(const std::string& target, const char* options) {
  if (::mount("tensor-fusion", target.c_str(), "tmpfs", MS_NOSUID | MS_NODEV, options) != 0)
    return because("mount a tmpfs at " + target);
  return {};
}

Done write_new_file(const std::string& path, std::string_view content, mode_t mode) {
  const system::Fd file(::open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, mode));
  if (!file) return because("create " + path);
  while (!content.empty()) {
    const ssize_t written = ::write(file.get(), content.data(), content.size());
    if (written <= 0) return because("write " + path);
    content.remove_prefix(static_cast<std::size_t>(written));
  }
  return {};
}

// Shows a folder again on a tmpfs, entry by entry, so that one that we may not write to can have an entry more.
Done mirror(const std::string& folder, const std::function<Done()>& add) {
  const system::Fd original(::open(folder.c_str(), O_PATH | O_DIRECTORY | O_CLOEXEC));
  if (!original) return because("open " + folder);
  struct stat status{};
  if (::fstat(original.get(), &status) != 0) return because("look at " + folder);
  const std::string behind = fmt::format("/proc/self/fd/{}", original.get());
  if (auto done = mount_memory(folder, fmt::format("mode={:o},size=1m", status.st_mode & 07777).c_str()); !done)
    return done;
  std::error_code error;
  for (const auto& entry : std::filesystem::directory_iterator(behind + "/", error)) {
    const std::string name = entry.path().filename().string();
    const std::string source = fmt::format("{}/{}", behind, name);
    const std::string target = fmt::format("{}/{}", folder, name);
    std::error_code problem;
    if (entry.is_symlink(problem)) {
      std::filesystem::copy_symlink(source, target, problem);
      if (problem) return std::unexpected(fmt::format("link {}: {}", target, problem.message()));
      continue;
    }
    if (entry.is_directory(problem)) {
      if (::mkdir(target.c_str(), 0755) != 0) return because("create " + target);
    } else if (auto done = write_new_file(target, "", 0644); !done) {
      return done;
    }
    if (auto done = bind_at(source, target); !done) return done;
  }
  if (error) return std::unexpected(fmt::format("list {}: {}", folder, error.message()));
  if (auto done = add(); !done) return done;
  return make_read_only(folder);
}

Done ensure_view_directory() {
  if (::mkdir(kViewDirectory, 0755) == 0 || errno == EEXIST) return {};
  return mirror(std::filesystem::path(kViewDirectory).parent_path().string(), [] {
    return ::mkdir(kViewDirectory, 0755) == 0 ? Done{} : Done(because(fmt::format("create {}", kViewDirectory)));
  });
}

Done ensure_preload_file() {
  // An empty one changes nothing, and a mount needs something to be mounted on.
  const system::Fd file(::open(kPreloadFile, O_RDONLY | O_CREAT | O_CLOEXEC, 0644));
  if (file || (errno != EACCES && errno != EROFS && errno != EPERM)) {
    return file ? Done{} : Done(because(fmt::format("open {}", kPreloadFile)));
  }
  struct stat status{};
  if (::stat(kPreloadFile, &status) == 0) return {};
  return mirror("/etc", [] { return write_new_file(kPreloadFile, "", 0644); });
}

// A socket's file: open() fails with ENXIO for everyone, root included, on a mount without devices too.
Done make_unopenable(const std::string& path) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  if (path.size() >= sizeof(address.sun_path)) return std::unexpected(fmt::format("{} is too long", path));
  std::memcpy(address.sun_path, path.c_str(), path.size());
  const system::Fd socket(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
  if (!socket || ::bind(socket.get(), reinterpret_cast<const sockaddr*>(&address), sizeof(address)) != 0) {
    return because("create " + path);
  }
  return {};
}

bool is_inside(const std::string& path, const std::string& folder) {
  return path == folder || path.starts_with(folder + "/");
}

Done hide_state(const std::string& state_directory) {
  std::error_code error;
  const auto real = std::filesystem::canonical(state_directory, error);
  if (error || is_inside(real.string(), kViewDirectory)) return {};
  if (auto done = mount_memory(real.string(), "mode=755,size=4k"); !done) return done;
  return make_read_only(real.string());
}

Done build_view(const SliceView& view) {
  // Everything is opened before anything is covered.
  constexpr std::array kPages{contract::kGrantFile, contract::kClaimFile, contract::kBellFile};
  std::array<system::Fd, kPages.size()> pages;
  for (std::size_t i = 0; i < kPages.size(); ++i) {
    const std::string path = fmt::format("{}/{}", view.slice_directory, kPages[i]);
    pages[i] = system::Fd(::open(path.c_str(), O_PATH | O_NOFOLLOW | O_CLOEXEC));
    if (!pages[i]) return because("open " + path);
  }
  if (auto done = ensure_preload_file(); !done) return done;
  if (auto done = ensure_view_directory(); !done) return done;
  const auto preload = system::read_file(kPreloadFile);
  if (!preload) return std::unexpected(preload.error().message);

  const std::string folder = kViewDirectory;
  const std::string limiter = fmt::format("{}/{}", folder, kLimiterFile);
  const std::string preload_file = folder + "/ld.so.preload";
  const std::string not_granted = folder + "/not-granted";
  if (auto done = mount_memory(folder, "mode=755,size=16m"); !done) return done;
  if (auto done = write_new_file(limiter, view.limiter_bytes, 0755); !done) return done;
  if (auto done = write_new_file(preload_file, merged_preload(*preload, limiter), 0644); !done) return done;
  if (::mkdir(contract::kSlicePath, 0755) != 0) return because(fmt::format("create {}", contract::kSlicePath));
  for (std::size_t i = 0; i < kPages.size(); ++i) {
    const std::string target = fmt::format("{}/{}", contract::kSlicePath, kPages[i]);
    if (auto done = write_new_file(target, "", 0644); !done) return done;
    if (auto done = bind_at(fmt::format("/proc/self/fd/{}", pages[i].get()), target); !done) return done;
  }
  if (auto done = make_read_only(fmt::format("{}/{}", contract::kSlicePath, contract::kGrantFile)); !done) return done;
  if (!view.hidden_devices.empty()) {
    if (auto done = make_unopenable(not_granted); !done) return done;
  }
  for (const std::string& device : view.hidden_devices) {
    if (!system::exists(device)) continue;
    if (auto done = bind_at(not_granted, device); !done) return done;
  }
  if (auto done = make_read_only(folder); !done) return done;
  if (auto done = bind_at(preload_file, kPreloadFile); !done) return done;
  if (auto done = make_read_only(kPreloadFile); !done) return done;
  return hide_state(view.state_directory);
}

// Runs `attempt` in a child, so that a namespace without its rights is not what the program ends up in.
Done try_in_child(const std::function<Done()>& attempt) {
  std::array<int, 2> ends{};
  if (::pipe2(ends.data(), O_CLOEXEC) != 0) return because("make a pipe");
  const system::Fd reader(ends[0]);
  system::Fd writer(ends[1]);
  const pid_t child = ::fork();
  if (child < 0) return because("fork");
  if (child == 0) {
    const Done done = attempt();
    if (!done) [[maybe_unused]]
      const ssize_t written = ::write(writer.get(), done.error().data(), done.error().size());
    ::_exit(done ? 0 : 1);
  }
  writer.reset();
  std::string error;
  std::array<char, 512> part{};
  ssize_t got = 0;
  while ((got = ::read(reader.get(), part.data(), part.size())) > 0)
    error.append(part.data(), static_cast<std::size_t>(got));
  int status = 0;
  while (::waitpid(child, &status, 0) < 0 && errno == EINTR) {
  }
  if (WIFEXITED(status) && WEXITSTATUS(status) == 0) return {};
  return std::unexpected(error.empty() ? std::string("the kernel ended the attempt") : error);
}

}  // namespace

std::expected<void, std::string> can_make_namespaces() {
  return try_in_child([]() -> Done {
    if (auto done = unshare_mounts(); !done) return done;
    return mount_memory("/", "size=4k");  // of this namespace only, and never looked at
  });
}

std::expected<void, std::string> enter_slice_view(const SliceView& view) {
  const auto enter = [&]() -> Done {
    if (auto done = unshare_mounts(); !done) return done;
    return build_view(view);
  };
  if (auto tried = try_in_child(enter); !tried) return tried;
  return enter();
}

}  // namespace tensor_fusion::cli
