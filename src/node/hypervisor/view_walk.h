#pragma once
// Finds a file as another's view shows it, by steps of which none can wait for a program: who has a mount namespace of
// its own may lay a file system there that it serves itself, and that answers a look into it never. So a name is looked
// up only in a folder whose file system is known to answer by itself, and never by way of a link. What a mount is, the
// kernel tells without asking it. One thread; holds nothing but what it was given.
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "system/fd.h"
#include "system/file.h"

namespace tensor_fusion::node::hypervisor {

struct ViewFile {
  std::optional<system::FileIdentity> identity;  // none: it is not there, or not to be looked at
  bool read_only = false;                        // by its mount
  bool may_wait = false;                         // so it was not looked at
};

// Whether that mount, of whose namespace these are the mounts, answers by itself: it is of a kind that does and that
// nobody stacks on another; or it is among our own mounts, where only root mounts, and of no kind that a user may
// serve. `line`: of mountinfo.
bool answers_by_itself(std::string_view line, std::string_view our_mounts);

class ViewWalk {
 public:
  ViewWalk(int root, std::string mounts);  // its mountinfo, as it is now
  ViewFile find(std::string_view path) const;

 private:
  std::string_view mount_of(int fd) const;  // its line; "": it came after these were listed, or is none of them

  int root_;
  std::string mounts_;
  std::string ours_;
};

}  // namespace tensor_fusion::node::hypervisor
