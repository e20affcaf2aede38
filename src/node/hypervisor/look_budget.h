#pragma once
// How long a tenant's processes may keep everybody waiting while it is found out whose they are: that takes as long as
// their mounts or their namesakes are many, and who makes them decides. Who has spent it waits for the next period.
// One thread.
#include <sys/types.h>

#include <cstdint>
#include <map>

namespace tensor_fusion::node::hypervisor {

class Allowance {
 public:
  static constexpr std::uint64_t kPeriodNs = 200'000'000;
  static constexpr std::uint64_t kNsAPeriod = 20'000'000;

  bool has_more(std::uint64_t now_ns) {
    if (now_ns - since_ns_ >= kPeriodNs) spent_ns_ = 0;
    return spent_ns_ < kNsAPeriod;
  }
  void spend(std::uint64_t begin_ns, std::uint64_t end_ns) {
    if (spent_ns_ == 0) since_ns_ = begin_ns;
    spent_ns_ += end_ns - begin_ns;
  }

 private:
  std::uint64_t since_ns_ = 0, spent_ns_ = 0;
};

// One for each user.
class LookBudget {
 public:
  bool has_more(uid_t user, std::uint64_t now_ns) {
    const auto found = spent_.find(user);
    return found == spent_.end() || found->second.has_more(now_ns);
  }
  void spend(uid_t user, std::uint64_t begin_ns, std::uint64_t end_ns) { spent_[user].spend(begin_ns, end_ns); }

 private:
  std::map<uid_t, Allowance> spent_;
};

}  // namespace tensor_fusion::node::hypervisor
