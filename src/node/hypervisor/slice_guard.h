#pragma once
// Watches the view of one slice: that its grant is still the hypervisor's page, not writable, and that the list which
// brings the limiter into every program is still the one `run` put there. The kernel tells of any change of mounts in
// the slice's namespace, so watching costs nothing while nothing changes. It looks by a root folder that it keeps open,
// so it goes on after the process by which it came in has ended or gone elsewhere. One thread: the loop's.
#include <sys/types.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "system/fd.h"
#include "system/file.h"
#include "system/loop.h"

namespace tensor_fusion::node::hypervisor {

class SliceGuard {
 public:
  // `wrong` is called with a sentence for each thing that is no longer as it was; at most once until it is right again.
  // `process` is any that lives in the view. None: nothing is to be seen from there; or the way to the slice leads over
  // a file system that may keep whoever looks waiting, which `unsafe` then says.
  static std::unique_ptr<SliceGuard> make(system::Loop& loop, pid_t process, std::uint64_t mount_namespace,
                                          const system::FileIdentity& grant,
                                          std::function<void(const std::string&)> wrong, bool* unsafe = nullptr);
  ~SliceGuard();
  const std::optional<system::FileIdentity>& limiter() const { return limiter_; }  // the file, as the view showed it
  SliceGuard(const SliceGuard&) = delete;
  SliceGuard& operator=(const SliceGuard&) = delete;

 private:
  SliceGuard(system::Loop& loop, const system::FileIdentity& grant, std::function<void(const std::string&)> wrong)
      : loop_(loop), grant_(grant), wrong_(std::move(wrong)) {}
  std::string look();  // empty: all is well
  void look_soon();

  system::Loop& loop_;
  system::Fd root_;
  system::FileIdentity grant_;
  std::optional<system::FileIdentity> preload_;  // none: it was not there when the slice began
  std::optional<system::FileIdentity> limiter_;
  std::function<void(const std::string&)> wrong_;
  system::Fd mounts_;
  system::Loop::TimerId timer_ = 0;
  std::string said_;
};

}  // namespace tensor_fusion::node::hypervisor
