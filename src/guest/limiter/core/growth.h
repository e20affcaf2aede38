#pragma once
// How much more a process of the tenant may take, by what nobody in the tenant can write: what this process itself
// holds (private memory) and what the driver showed for the whole tenant at the hypervisor's last reading (the grant).
// The ledger in the claim page is exact but may be forged by any process of the tenant; this is a moment old but cannot
// be. One device of one process. Called under the device's ledger lock.
#include <cstdint>
#include <optional>

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

  // What this process holds beyond all that the last reading shows for the tenant; 0 unless it is the tenant's only one
  // and held the same all through that reading.
  std::uint64_t surplus(const contract::GrantDevice& grant, const contract::GrantPage& page, std::uint64_t own,
                        std::uint32_t pid);
  // Whether the list names it and others: surplus() is 0 then, whatever another reading shows.
  bool is_one_of_several(const contract::GrantPage& page, std::uint32_t pid);
  // Among the tenant's processes; nothing while their list changes.
  std::optional<bool> is_listed(const contract::GrantPage& page, std::uint32_t pid);
  void before_change(const contract::GrantDevice& grant, std::uint64_t own);  // of what this process holds
  void after_change(std::uint64_t own);

 private:
  // The least and the most this process held while a reading was under way: the driver showed something in between.
  struct Window {
    std::uint64_t lowest = 0;
    std::uint64_t highest = 0;
  };
  std::uint32_t processes_of(const contract::GrantPage& page, std::uint32_t list, std::uint32_t pid);

  std::uint32_t done_ = 0;   // the reading that was published last, when last looked
  std::uint32_t begun_ = 0;  // and begun last
  Window shown_;             // of done_
  Window open_;              // since the first that was begun after it: one that fails leaves the next with a wider one
  std::uint32_t list_ = 1;   // the last list found to name this process; odd: none
  std::uint32_t listed_ = 0;  // how many it names
};

}  // namespace tensor_fusion::guest::limiter
