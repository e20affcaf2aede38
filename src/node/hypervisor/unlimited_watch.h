#pragma once
// The processes that use a GPU without a live claim. One that stays so is told once, and ended where its slice has a
// view of its own and it has left the limiter out. Owns their list; refuses nobody a moment to register. One thread.
#include <sys/types.h>

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "node/hypervisor/event_ring.h"
#include "node/hypervisor/tenant_table.h"
#include "system/loop.h"

namespace tensor_fusion::node::hypervisor {

struct UnlimitedProcess {
  pid_t pid = 0;
  std::uint64_t start_ticks = 0;
  std::string uuid;
  std::string command;
  std::string tenant;  // it belongs to, empty: none
  std::uint64_t memory_bytes = 0;
  std::uint64_t first_seen_ns = 0;
  bool reported = false;
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
  void look_again_when_it_counts();
  void decide_later();
  Ended end_if_escaped(const UnlimitedProcess& process);

  system::Loop& loop_;
  TenantTable& tenants_;
  EventRing& events_;
  std::function<void()> read_;
  std::vector<UnlimitedProcess> list_;
  bool look_again_ = false;
  bool decide_again_ = false;
};

}  // namespace tensor_fusion::node::hypervisor
