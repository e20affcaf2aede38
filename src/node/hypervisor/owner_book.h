#pragma once
// Whose process is this, of all slices: by its namespace, its descent or its mounts. What was found is kept while the
// process is in that namespace, no slice begins or ends, and for a second or so; while its user has spent what may be
// spent on finding it out (LookBudget), what was found before goes on. Owns no tenant. One thread.
#include <sys/types.h>

#include <cstdint>
#include <optional>
#include <unordered_map>
#include <vector>

#include "node/hypervisor/look_budget.h"
#include "node/hypervisor/tenant.h"

namespace tensor_fusion::node::hypervisor {

class OwnerBook {
 public:
  Tenant* owner_of(pid_t pid, const std::vector<Tenant*>& tenants);  // null: nobody's
  void ask_anew();                                                   // of each, when it is asked about next
  void forget(const Tenant& tenant);

 private:
  struct Owner {
    std::uint64_t start_ticks = 0, mount_namespace = 0;
    Tenant* tenant = nullptr;  // nobody's
    unsigned edition = 0;
  };
  // Nothing: it would have to be looked at more closely than may be now.
  std::optional<Tenant*> look(const SeenProcess& process, const std::vector<Tenant*>& tenants);

  std::unordered_map<pid_t, Owner> owners_;
  unsigned edition_ = 0;
  LookBudget budget_;
};

}  // namespace tensor_fusion::node::hypervisor
