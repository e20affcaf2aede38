#pragma once
// Watches the view of one slice: that its grant is still the hypervisor's page, not writable, and that the list which
// brings the limiter into every program is still the one `run` put there. The kernel tells of any change of mounts in
// the slice's namespace, so watching costs nothing while nothing changes. One thread: the loop's.
#include <sys/types.h>

#include <cstdint>
#include <functional>
#include <optional>
#include <string>

#include "system/fd.h"
#include "system/file.h"
#include "system/loop.h"

namespace tensor_fusion::node::hypervisor {

class SliceGuard {
 public:
  // `wrong` is called with a sentence for each thing that is no longer as it was; at most once until it is right again.
  SliceGuard(system::Loop& loop, pid_t process, std::uint64_t mount_namespace, const system::FileIdentity& grant,
             std::function<void(const std::string&)> wrong);
  ~SliceGuard();
  SliceGuard(const SliceGuard&) = delete;
  SliceGuard& operator=(const SliceGuard&) = delete;

 private:
  std::string look();  // empty: all is well, or nothing can be seen
  void look_soon();

  system::Loop& loop_;
  pid_t process_;
  std::uint64_t mount_namespace_;
  system::FileIdentity grant_;
  std::optional<system::FileIdentity> preload_;  // none: it was not there when the slice began
  std::function<void(const std::string&)> wrong_;
  system::Fd mounts_;
  system::Loop::TimerId timer_ = 0;
  std::string said_;
};

}  // namespace tensor_fusion::node::hypervisor
