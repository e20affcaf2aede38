#pragma once
// How long the processes of one user may keep everybody waiting while it is found out whose they are: that takes as
// long as their mounts are many, and who makes them decides. Who has spent it waits for the next period. One thread.
#include <sys/types.h>

#include <cstdint>
#include <map>

namespace tensor_fusion::node::hypervisor {

class LookBudget {
 public:
  static constexpr std::uint64_t kPeriodNs = 200'000'000;
  static constexpr std::uint64_t kNsAPeriod = 20'000'000;

  bool has_more(uid_t user, std::uint64_t now_ns) {
    const auto spent = spent_.find(user);
    if (spent == spent_.end()) return true;
    if (now_ns - spent->second.since_ns < kPeriodNs) return spent->second.ns < kNsAPeriod;
    spent_.erase(spent);
    return true;
  }
  void spend(uid_t user, std::uint64_t begin_ns, std::uint64_t end_ns) {
    spent_.try_emplace(user, Spent{begin_ns, 0}).first->second.ns += end_ns - begin_ns;
  }

 private:
  struct Spent {
    std::uint64_t since_ns = 0, ns = 0;
  };
  std::map<uid_t, Spent> spent_;
};

}  // namespace tensor_fusion::node::hypervisor
