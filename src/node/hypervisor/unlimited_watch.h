#pragma once
// The processes that use a GPU without a live claim. One that stays so is told once, and ended where its slice has a
// view of its own and it has left the limiter out. Short ones that follow each other count together: those of a slice
// which have left the limiter out, and those of a user outside of slices. Owns their list; refuses nobody a moment to
// register. One thread.
#include <sys/types.h>

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "node/hypervisor/event_ring.h"
#include "node/hypervisor/tenant_table.h"
#include "system/loop.h"
#include "system/process.h"

namespace tensor_fusion::node::hypervisor {

struct UnlimitedProcess {
  pid_t pid = 0;
  std::uint64_t start_ticks = 0;
  std::string uuid;
  std::string command;
  std::string tenant;     // the name of the slice it belongs to, empty: none
  std::string tenant_id;  // by which it is known here: its name may be another's soon
  std::uint64_t memory_bytes = 0;
  std::uint64_t first_seen_ns = 0;
  std::uint64_t seen_ns = 0;  // last
  bool counts = false;        // together with those before it
  bool reported = false;
  bool told_undecided = false;                     // that what it has in its memory is not known yet, after so long
  decltype(system::ProcessStat::layout) judged{};  // what it executed when it was looked at to be judged
};

class UnlimitedWatch {
 public:
  // `read` has the driver read again.
  UnlimitedWatch(system::Loop& loop, TenantTable& tenants, EventRing& events, std::function<void()> read)
      : loop_(loop), tenants_(tenants), events_(events), read_(std::move(read)) {}

  void saw(std::vector<UnlimitedProcess> now);  // all that a reading showed
  const std::vector<UnlimitedProcess>& list() const { return list_; }

 private:
  enum class Ended : std::uint8_t { yes, no, later };
  // What short processes have used up together, of the time that one may be without a limiter. Given back slowly.
  struct Account {
    std::uint64_t used_ns = 0;
    std::uint64_t at_ns = 0;
    std::uint64_t told_ns = 0;
    bool told_of_an_end = false;  // then
  };
  void judge();
  bool judge(UnlimitedProcess& process, std::uint64_t now_ns);
  void look_again_in(std::uint64_t delay_ns);
  void decide_later();
  void give_back(std::uint64_t now_ns);
  bool has_left_it_out(const UnlimitedProcess& process) const;
  bool may_be_ended(const std::string& id) const;
  Ended end_if_escaped(UnlimitedProcess& process);
  void tell(const UnlimitedProcess& process, bool ended);

  system::Loop& loop_;
  TenantTable& tenants_;
  EventRing& events_;
  std::function<void()> read_;
  std::vector<UnlimitedProcess> list_;
  std::map<std::string, Account> accounts_;  // by the slice's id, or by the user
  std::uint64_t look_at_ns_ = 0;             // the next time of its own; 0: none
  system::Loop::TimerId look_ = 0;
  bool decide_again_ = false;
};

}  // namespace tensor_fusion::node::hypervisor
