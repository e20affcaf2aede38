#pragma once
// Which of the slices whose first process has ended are over: those in whose views nobody is left. One look at the
// machine's processes serves all that are asked about, and rests four times as long as it took; a slice of which
// somebody known lives needs none. Owns no tenant. One thread: the loop's.
#include <functional>
#include <set>
#include <string>
#include <vector>

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

 private:
  void look();

  system::Loop& loop_;
  Hooks hooks_;
  std::set<std::string> asked_;
  system::Loop::TimerId timer_ = 0;
  std::uint64_t rests_until_ns_ = 0;
};

}  // namespace tensor_fusion::node::hypervisor
