#pragma once
// The tenant's account of device memory: one number per device for all of its processes, changed under a lock in the
// claim page that survives the death of any holder. A reservation is made before the driver is called and given back if
// the driver refuses, so the limit cannot be passed however many threads and processes race for the last byte.
// Any thread; waits a bounded time only. Every number in the pages may be wrong: nothing here trusts one with an index.
#include <atomic>
#include <cstdint>

#include "contract/claim.h"
#include "guest/limiter/core/device.h"
#include "guest/limiter/core/growth.h"
#include "guest/limiter/core/mutex.h"

namespace tensor_fusion::guest::limiter {

// What the driver takes for a request. Each driver rounds in its own way; what this misses, the hypervisor reports as
// unledgered_bytes.
inline constexpr std::uint64_t kDriverRounding = 512;
inline std::uint64_t rounded(std::uint64_t bytes, std::uint64_t step = kDriverRounding) {
  const std::uint64_t up = (bytes + step - 1) / step * step;
  return up < bytes ? ~std::uint64_t{0} : up;
}

// The answer to a request for memory: true where there was room.
class Room {
 public:
  enum Answer : std::uint8_t {
    fits,
    full,
    unlisted  // the hypervisor does not count this process among the slice's, so nothing of what is left is its own
  };
  constexpr Room(Answer answer) : answer_(answer) {}
  constexpr explicit operator bool() const { return answer_ == fits; }
  constexpr bool is_unlisted() const { return answer_ == unlisted; }

 private:
  Answer answer_;
};

class Ledger {
 public:
  Ledger(contract::ClaimPage* page, std::uint32_t slot, std::uint64_t pid_namespace)
      : page_(page), slot_(slot), pid_namespace_(pid_namespace) {}

  Room reserve(const Device& device, std::uint64_t bytes);  // false: it would pass the limit; nothing changed
  static void count_refusal(const Device& device);          // of who turns a program away; asking alone is none
  // How reserve() has the driver's account read when the pages cannot be taken at their word. False: nobody answers.
  using Ask = bool (*)(const Device& device);
  void set_ask(Ask ask, std::uint32_t pid) {
    ask_ = ask;
    pid_ = pid;
  }
  // How long reserve() waits for what others do.
  struct Patience {
    // For a turn among many who want more than their part: as many as have slots, at the pace of readings.
    std::uint64_t turn_ns = 15'000'000'000;
    std::uint64_t listed_ns = 3'000'000'000;
    std::uint64_t slot_ns = 1'000'000'000;  // till a hypervisor has put an overwritten page right
  };
  void set_patience(const Patience& patience) { patience_ = patience; }
  void charge(const Device& device, std::uint64_t bytes);  // already taken by the driver: count it whatever the limit
  void release(const Device& device, std::uint64_t bytes);

  // Whether its slot says that it is this process's; taken again where the page was overwritten and it is nobody's.
  bool keep_slot();
  // What the page says this process holds becomes what it does hold; true when it was something else.
  bool put_right(const Device& device);

  std::uint64_t holds(const Device& device) { return held(device).load(std::memory_order_relaxed); }
  std::uint64_t surplus(const Device& device);  // see Growth
  bool is_one_of_several(const Device& device);

  // What a program may see: the limit, and what is left of it.
  struct View {
    std::uint64_t limit = 0;
    std::uint64_t used = 0;  // of the whole tenant, at most limit
    bool unlimited = false;
  };
  static View view(const Device& device);
  static std::uint64_t used(const Device& device);  // of the whole tenant, also where that is more than the limit

  // Returns the slots of processes that have died; true when any was found. Only processes of one's own pid namespace
  // can be judged; others are the hypervisor's to return.
  bool sweep();

  // The slot that a program of this process had which has executed this one: what that held is gone with it.
  // kMaxProcesses when there was none. For who has no slot yet.
  static std::uint32_t take_over_slot(contract::ClaimPage& page, std::uint32_t pid, std::uint64_t start_ticks,
                                      std::uint64_t pid_namespace);

  std::uint32_t slot() const { return slot_; }

 private:
  friend class LedgerLock;
  bool holder_is_dead(std::uint32_t word) const;
  struct Try {
    bool fresh = false;    // the last reading began after the request did
    bool believe = false;  // the page: there is nobody to ask
    bool asker = false;
  };
  Growth::Verdict try_reserve(const Device& device, std::uint64_t bytes, const Try& way);
  Room ask_and_reserve(const Device& device, std::uint64_t bytes);
  // Both for longer than a hypervisor takes over it; `since` is of the request, since when it has been so, 0: it is
  // not.
  bool has_lost_its_slot(std::uint64_t now, std::uint64_t& since);
  bool is_unlisted(const Device& device, bool fresh, std::uint64_t now, std::uint64_t& since);
  static bool is_worth_waiting(std::atomic<bool>& in_vain, std::uint64_t now, std::uint64_t& since,
                               std::uint64_t patience_ns);
  std::uint64_t sum(std::uint32_t device) const;
  void change_held(const Device& device, std::uint64_t bytes);
  void recount();  // every device's total from the slots
  std::atomic_ref<std::uint64_t> held(const Device& device) { return std::atomic_ref(held_[device.index]); }

  contract::ClaimPage* page_;
  std::uint32_t slot_;
  std::uint64_t pid_namespace_;
  // What this process holds, out of reach of whoever else writes the page: it never passes the limit by a forged one.
  std::uint64_t held_[contract::kMaxDevices] = {};
  Growth growth_[contract::kMaxDevices];
  Mutex asks_[contract::kMaxDevices];
  std::atomic<bool> was_wrong_[contract::kMaxDevices] = {};        // the page, and it was put right in passing
  std::atomic<std::uint32_t> asking_[contract::kMaxDevices] = {};  // a thread of this process waits for an answer
  Ask ask_ = nullptr;
  Patience patience_{};
  std::uint32_t pid_ = 0;
  // A request has waited in vain for its slot to be its own again, or to be listed, and neither has been so since.
  std::atomic<bool> slot_in_vain_{false};
  std::atomic<bool> list_in_vain_{false};
};

// Takes a free slot of the page for this process and makes it live; kMaxProcesses when all are taken.
std::uint32_t take_slot(contract::ClaimPage& page, std::uint32_t pid, std::uint64_t start_ticks,
                        std::uint64_t pid_namespace);

}  // namespace tensor_fusion::guest::limiter
