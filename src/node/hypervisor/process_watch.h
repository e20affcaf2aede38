#pragma once
// The processes of each tenant, as its claim slots name them: who is really one of its own is watched by pidfd, and
// what the dead held is returned at once. A claim that names a process of another tenant, or nobody's, is ignored and
// told: nobody is watched, listed or signalled because a page says so. Owns no tenant. One thread.
#include <functional>
#include <string>

#include "node/hypervisor/look_budget.h"
#include "node/hypervisor/slot_search.h"
#include "node/hypervisor/tenant.h"
#include "system/loop.h"

namespace tensor_fusion::node::hypervisor {

class ProcessWatch {
 public:
  struct Hooks {
    std::function<Tenant*(const std::string& id)> find;                 // null: it is no more
    std::function<std::string(const Tenant&, pid_t)> member_elsewhere;  // the other tenant's name, if it is one's
    std::function<void(Tenant&)> changed;                               // its processes came or went
    std::function<void(Tenant&)> died;                                  // one of them
    std::function<void(Tenant&, const std::string& what)> tampered;
  };
  ProcessWatch(system::Loop& loop, Hooks hooks) : loop_(loop), hooks_(std::move(hooks)) {}

  void scan(Tenant& tenant);    // looks for new and dead processes in its claim
  void verify(Tenant& tenant);  // takes over the locks of the dead, and sets totals right
  void forget(const Tenant& tenant);

 private:
  void take_notice_of(Tenant& tenant, const SlotView& slot, std::uint64_t read_ns);
  void on_death(Tenant& tenant, std::uint32_t slot, std::uint64_t start_ticks);
  void reap(Tenant& tenant, std::uint32_t slot);
  void reap_later(const std::string& id, std::uint32_t slot, std::uint64_t delay_ns);
  bool slot_is_dead(Tenant& tenant, std::uint32_t slot);
  bool holder_is_gone(Tenant& tenant, std::uint32_t device, std::uint32_t holder);

  system::Loop& loop_;
  Hooks hooks_;
  LookBudget budget_;  // by the slices' users
  SlotSearch search_;
};

}  // namespace tensor_fusion::node::hypervisor
