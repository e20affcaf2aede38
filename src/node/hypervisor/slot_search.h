#pragma once
// Which process on this host a claim slot speaks of: same pid namespace, same name in it, same start time, same user
// (or a tenant of root). Gone where there is none: it has died, or the claim lies. A process of another pid namespace
// is found among all that started when it says it did, by a list of /proc that serves every slot read before the list
// was taken. One thread.
#include <sys/types.h>

#include <cstdint>
#include <unordered_map>
#include <vector>

#include "node/hypervisor/claim_view.h"
#include "node/hypervisor/look_budget.h"
#include "node/hypervisor/tenant_record.h"
#include "system/process.h"

namespace tensor_fusion::node::hypervisor {

struct HostProcess {
  system::Life life = system::Life::gone;
  pid_t pid = 0;
};

class SlotSearch {
 public:
  // Of a slot as it was read at that time. Unknown too while the tenant, who may write into its slots as often as it
  // likes, has spent its allowance (null: it may take as long as it takes).
  HostProcess find(const SlotView& slot, std::uint64_t read_ns, const TenantRecord& record, Allowance* allowance);
  unsigned lists() const { return lists_; }  // that were taken

 private:
  HostProcess find_listed(const SlotView& slot, const TenantRecord& record) const;
  void list();

  std::unordered_map<std::uint64_t, std::vector<pid_t>> started_;  // processes by the ticks of their starts
  std::uint64_t listed_ns_ = 0;                                    // when the list was begun
  bool whole_ = true;                                              // none was left out of it
  unsigned lists_ = 0;
};

}  // namespace tensor_fusion::node::hypervisor
