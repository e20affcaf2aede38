#pragma once
// Who is on this machine, as one look at /proc has seen it: made once and asked for all slices. Of each process its
// parent, its start and its mount namespace; of each namespace the slices whose grants are mounted there. A process
// that forks and exits while the others are looked at leaves its child to the next list; so lists again until all who
// were new in one have been seen alive. Unknown is not absent: is_empty() is only ever true of what is certain, and of
// nothing where something could not be read that is there. One thread.
#include <sys/types.h>

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "node/hypervisor/ancestry.h"
#include "node/hypervisor/tenant_record.h"
#include "node/hypervisor/view_mount.h"

namespace tensor_fusion::node::hypervisor {

enum class InView { kYes, kNo, kUnknown };  // in a slice's view, or in a mount namespace that was made within it

class ProcessTable {
 public:
  using Slices = std::vector<const TenantRecord*>;
  // Told of each process at once, who may be about to fork. True: who looks has seen enough.
  using Found = std::function<bool(const ProcessTable&, const SeenProcess&)>;

  ProcessTable() = default;  // of nobody, and not for certain
  // For these slices. The first list is taken as a whole, however long it takes, and further ones for so much time.
  static ProcessTable look(const Slices& slices, std::uint64_t for_ns, const Found& found = {});
  static ProcessTable look_at(pid_t pid, const Slices& slices);  // and at nobody else
  void look_for_new();                                           // at those who were not there, for the same slices

  InView in_view(const TenantRecord& slice, std::uint64_t mount_namespace) const;
  std::vector<SeenProcess> members_of(const TenantRecord& slice) const;  // by their namespaces or their descent
  // Nobody belongs to it, for certain: also where each forks the next and exits while we look, and where one may have
  // hidden its mounts by changing its root.
  bool is_empty(const TenantRecord& slice) const { return complete_ && shows_nobody_of(slice); }
  // Of all who were seen alive nobody belongs to it. Of others it is not known where they belonged.
  bool shows_nobody_of(const TenantRecord& slice) const;
  unsigned lists() const { return lists_; }     // that were gone over to their ends
  bool knows(const TenantRecord& slice) const;  // it was looked for
  const std::unordered_map<pid_t, SeenProcess>& all() const { return processes_; }
  const SeenProcess* find(pid_t pid) const;
  std::size_t reads_of(std::optional<uid_t> maker) const;  // how often mounts were read in this one's namespaces

 private:
  struct Namespace {
    std::vector<RootFolder> roots;  // from where its mounts were read: others may see other mounts
    bool whole = false;             // all of its mounts were seen
    bool left_out = false;          // not from everywhere
    std::vector<unsigned> grants;   // of slices, that are mounted there
    bool asked = false;             // for who made it
    std::optional<uid_t> maker;
  };
  // What was read of the namespaces of one maker, who can so hide no others than their own.
  struct Spent {
    std::size_t reads = 0, bytes = 0;
    std::uint64_t ns = 0;
    bool has_more() const;
  };
  explicit ProcessTable(const Slices& slices);
  bool take(pid_t pid, const Found& found, bool& enough);
  bool look_into(pid_t pid, std::uint64_t mount_namespace);
  bool ask_for_maker(pid_t pid, std::uint64_t mount_namespace, Namespace& place);
  bool read_mounts(pid_t pid, std::uint64_t mount_namespace, const RootFolder& root, Namespace& place);
  std::uint64_t where_unreadable(pid_t pid) const;
  bool descends(const TenantRecord& slice, const SeenProcess& process) const;
  bool has_root(const TenantRecord& slice) const;

  std::map<std::string, unsigned, std::less<>> grants_;  // by their names among mounts
  std::unordered_map<pid_t, SeenProcess> processes_;
  std::unordered_map<std::uint64_t, Namespace> namespaces_;  // of those that were seen
  std::unordered_set<std::uint64_t> shared_;                 // the machine's and ours: nobody's view
  std::unordered_set<std::uint64_t> views_;                  // the slices' own
  std::unordered_set<uid_t> users_;                          // of the slices that have views
  std::map<std::optional<uid_t>, Spent> spent_;
  unsigned lists_ = 0;
  bool complete_ = false;  // nobody can have been missed
  bool failed_ = false;    // somebody or something that is there could not be looked at
};

}  // namespace tensor_fusion::node::hypervisor
