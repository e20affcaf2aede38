#include "node/hypervisor/slice_guard.h"

#include <fcntl.h>
#include <sys/epoll.h>
#include <sys/statvfs.h>

#include <filesystem>

#include "contract/grant.h"
#include "node/hypervisor/limiter_proof.h"
#include "system/process.h"

namespace tensor_fusion::node::hypervisor {
namespace {

constexpr std::uint64_t kLookAfterNs = 20'000'000;  // mounts come in bursts
constexpr const char* kPreloadFile = "/etc/ld.so.preload";

const std::string& grant_path() {
  static const std::string path = std::string(contract::kSlicePath) + "/" + contract::kGrantFile;
  return path;
}

}  // namespace

std::unique_ptr<SliceGuard> SliceGuard::make(system::Loop& loop, pid_t process, std::uint64_t mount_namespace,
                                             const system::FileIdentity& grant,
                                             std::function<void(const std::string&)> wrong) {
  const std::string proc = "/proc/" + std::to_string(process);
  std::unique_ptr<SliceGuard> guard(new SliceGuard(loop, grant, std::move(wrong)));
  guard->root_ = system::Fd(::open((proc + "/root").c_str(), O_PATH | O_DIRECTORY | O_CLOEXEC));
  guard->mounts_ = system::Fd(::open((proc + "/mounts").c_str(), O_RDONLY | O_CLOEXEC));
  // One that has gone into a root or a namespace of its own does not stand in the view that the slice was given.
  std::error_code none;
  if (!guard->root_ || !guard->mounts_ || std::filesystem::read_symlink(proc + "/root", none) != "/" ||
      system::namespace_inode(process, "mnt") != mount_namespace)
    return nullptr;
  const auto seen = system::identity_of(guard->inside(grant_path().c_str()));
  if (!seen || seen->inode != grant.inode) return nullptr;
  guard->preload_ = system::identity_of(guard->inside(kPreloadFile));
  guard->limiter_ = system::identity_of(guard->inside(kLimiterPath));
  SliceGuard* here = guard.get();
  static_cast<void>(loop.watch(guard->mounts_.get(), EPOLLPRI, [here](std::uint32_t) { here->look_soon(); }));
  here->look_soon();
  return guard;
}

std::string SliceGuard::inside(const char* path) const { return "/proc/self/fd/" + std::to_string(root_.get()) + path; }

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
  const std::string grant = inside(grant_path().c_str());
  const auto seen = system::identity_of(grant);
  struct statvfs mount{};
  if (!seen || seen->inode != grant_.inode) return "the grant in its view was covered or taken away";
  if (::statvfs(grant.c_str(), &mount) == 0 && (mount.f_flag & ST_RDONLY) == 0)
    return "the grant in its view was made writable";
  if (preload_) {
    const auto list = system::identity_of(inside(kPreloadFile));
    if (!list || list->inode != preload_->inode || list->device != preload_->device)
      return std::string(kPreloadFile) + " in its view was covered or taken away: new programs are not limited";
  }
  return "";
}

}  // namespace tensor_fusion::node::hypervisor
