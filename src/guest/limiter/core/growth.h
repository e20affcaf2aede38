#pragma once
// How much more a process of the tenant may take, by what nobody in the tenant can write: what this process itself
// holds (private memory) and what the driver showed for the whole tenant at the hypervisor's last reading (the grant).
// The ledger in the claim page is exact but may be forged by any process of the tenant; this is a moment old but cannot
// be. One device of one process. Called under the device's ledger lock.
#include <cstdint>

#include "contract/grant.h"

namespace tensor_fusion::guest::limiter {

class Growth {
 public:
  enum class Verdict : std::uint8_t {
    fits,
    full,   // it did not fit at the last reading
    unsure  // the last reading cannot tell: ask for another
  };
  // `me` is this process's slot + 1 and `pid` its name in its own namespace; `fresh`: the last reading began after this
  // request did.
  Verdict judge(const contract::GrantDevice& grant, const contract::GrantPage& page, std::uint64_t own,
                std::uint64_t bytes, std::uint32_t me, std::uint32_t pid, bool fresh);

  void before_change(const contract::GrantDevice& grant, std::uint64_t own);  // of what this process holds
  void after_change(const contract::GrantDevice& grant, std::uint64_t own);

 private:
  // The most this process held from when a reading was begun until it was published.
  struct Window {
    std::uint32_t reading = 0;
    std::uint64_t highest = 0;
  };
  std::uint64_t highest_at(std::uint32_t reading, std::uint64_t own) const;
  bool listed(const contract::GrantPage& page, std::uint32_t pid);

  Window now_, last_;
  std::uint32_t listed_at_ = 1;  // process_sequence at which this process was found listed; odd: never
};

}  // namespace tensor_fusion::guest::limiter
