#include "node/hypervisor/slice_guard.h"

#include <fcntl.h>
#include <sys/epoll.h>
#include <sys/statvfs.h>

#include <filesystem>

#include "contract/grant.h"
#include "system/process.h"

namespace tensor_fusion::node::hypervisor {
namespace {

constexpr std::uint64_t kLookAfterNs = 20'000'000;  // mounts come in bursts
constexpr const char* kPreloadFile = "/etc/ld.so.preload";

std::string root_of(pid_t process) { return "/proc/" + std::to_string(process) + "/root"; }

}  // namespace

SliceGuard::SliceGuard(system::Loop& loop, pid_t process, std::uint64_t mount_namespace,
                       const system::FileIdentity& grant, std::function<void(const std::string&)> wrong)
    : loop_(loop), process_(process), mount_namespace_(mount_namespace), grant_(grant), wrong_(std::move(wrong)) {
  const auto seen = system::identity_of(root_of(process) + contract::kSlicePath + "/" + contract::kGrantFile);
  // Without a view, or where it is not to be seen from here, there is nothing to guard.
  if (!seen || seen->inode != grant.inode) return;
  preload_ = system::identity_of(root_of(process) + kPreloadFile);
  mounts_ = system::Fd(::open(("/proc/" + std::to_string(process) + "/mounts").c_str(), O_RDONLY | O_CLOEXEC));
  if (!mounts_) return;
  static_cast<void>(loop_.watch(mounts_.get(), EPOLLPRI, [this](std::uint32_t) { look_soon(); }));
  look_soon();
}

SliceGuard::~SliceGuard() {
  if (mounts_) loop_.forget(mounts_.get());
  loop_.cancel(timer_);
}

void SliceGuard::look_soon() {
  if (timer_ != 0) return;
  timer_ = loop_.after(kLookAfterNs, [this] {
    timer_ = 0;
    const std::string now = look();
    if (!now.empty() && now != said_) wrong_(now);
    said_ = now;
  });
}

std::string SliceGuard::look() {
  const std::string root = root_of(process_);
  std::error_code none;
  // A program may have gone into a root or a namespace of its own: then this is not the view that it was given.
  if (system::namespace_inode(process_, "mnt") != mount_namespace_ || std::filesystem::read_symlink(root, none) != "/")
    return "";
  const std::string grant = root + contract::kSlicePath + "/" + contract::kGrantFile;
  const auto seen = system::identity_of(grant);
  struct statvfs mount{};
  if (!seen || seen->inode != grant_.inode) return "the grant in its view was covered or taken away";
  if (::statvfs(grant.c_str(), &mount) == 0 && (mount.f_flag & ST_RDONLY) == 0)
    return "the grant in its view was made writable";
  if (preload_) {
    const auto list = system::identity_of(root + kPreloadFile);
    if (!list || list->inode != preload_->inode || list->device != preload_->device)
      return std::string(kPreloadFile) + " in its view was covered or taken away: new programs are not limited";
  }
  return "";
}

}  // namespace tensor_fusion::node::hypervisor
