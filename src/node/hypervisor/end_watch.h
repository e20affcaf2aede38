#pragma once
// Which of the slices whose first process has ended are over: those in whose views nobody is left. One look at the
// machine's processes serves all that are asked about, and rests four times as long as it took; a slice of which
// somebody known lives needs none. Where processes come and go all the time no look can be certain: then nobody's being
// seen in so many lists decides, and the next look comes as soon as it may. Owns no tenant. One thread: the loop's.
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "node/hypervisor/process_table.h"
#include "node/hypervisor/tenant.h"
#include "system/loop.h"

namespace tensor_fusion::node::hypervisor {

class EndWatch {
 public:
  struct Hooks {
    std::function<std::vector<Tenant*>()> all;
    std::function<Tenant*(const std::string& id)> find;  // null: it is no more
    std::function<void(Tenant&)> over;
  };
  EndWatch(system::Loop& loop, Hooks hooks) : loop_(loop), hooks_(std::move(hooks)) {}
  ~EndWatch() { loop_.cancel(timer_); }
  EndWatch(const EndWatch&) = delete;
  EndWatch& operator=(const EndWatch&) = delete;

  void ask(const Tenant& tenant);  // soon
  static bool lives(const std::optional<SeenProcess>& member);

 private:
  // Looks in a row in which nobody of a slice was seen.
  struct Unseen {
    std::uint64_t since_ns = 0;
    unsigned lists = 0;
  };
  void look();
  bool is_over(Tenant& tenant, const ProcessTable& table, std::uint64_t begin_ns);

  system::Loop& loop_;
  Hooks hooks_;
  std::set<std::string> asked_;
  std::map<std::string, Unseen> unseen_;  // by id
  system::Loop::TimerId timer_ = 0;
  std::uint64_t rests_until_ns_ = 0;
};

}  // namespace tensor_fusion::node::hypervisor
