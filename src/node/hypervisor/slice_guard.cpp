#include "node/hypervisor/slice_guard.h"

#include <fcntl.h>
#include <sys/epoll.h>

#include <filesystem>

#include "contract/grant.h"
#include "node/hypervisor/limiter_proof.h"
#include "node/hypervisor/view_mount.h"
#include "node/hypervisor/view_walk.h"
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
                                             std::function<void(const std::string&)> wrong, bool* unsafe) {
  const std::string proc = "/proc/" + std::to_string(process);
  std::unique_ptr<SliceGuard> guard(new SliceGuard(loop, grant, std::move(wrong)));
  guard->root_ = system::Fd(::open((proc + "/root").c_str(), O_PATH | O_DIRECTORY | O_CLOEXEC));
  guard->mounts_ = system::Fd(::open((proc + "/mountinfo").c_str(), O_RDONLY | O_CLOEXEC));
  // One that has gone into a root or a namespace of its own does not stand in the view that the slice was given.
  std::error_code none;
  if (!guard->root_ || !guard->mounts_ || std::filesystem::read_symlink(proc + "/root", none) != "/" ||
      system::namespace_inode(process, "mnt") != mount_namespace)
    return nullptr;
  const ViewWalk walk(guard->root_.get(), all_of(guard->mounts_.get()));
  const ViewFile seen = walk.find(grant_path());
  if (seen.may_wait && unsafe) *unsafe = true;
  if (!seen.identity || seen.identity->inode != grant.inode) return nullptr;
  guard->preload_ = walk.find(kPreloadFile).identity;
  guard->limiter_ = walk.find(kLimiterPath).identity;
  SliceGuard* here = guard.get();
  static_cast<void>(loop.watch(guard->mounts_.get(), EPOLLPRI, [here](std::uint32_t) { here->look_soon(); }));
  here->look_soon();
  return guard;
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
  const ViewWalk walk(root_.get(), all_of(mounts_.get()));
  const ViewFile grant = walk.find(grant_path());
  if (!grant.identity || grant.identity->inode != grant_.inode)
    return "the grant in its view was covered or taken away";
  if (!grant.read_only) return "the grant in its view was made writable";
  if (preload_) {
    const auto list = walk.find(kPreloadFile).identity;
    if (!list || list->inode != preload_->inode || list->device != preload_->device)
      return std::string(kPreloadFile) + " in its view was covered or taken away: new programs are not limited";
  }
  return "";
}

}  // namespace tensor_fusion::node::hypervisor
