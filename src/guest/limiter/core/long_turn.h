#pragma once
// Whose turn it is, among the processes of one slice, to launch what runs for long or what nobody knows the length of.
// Each process has contexts of its own, and a device gives every context time of its own: were all of them to have such
// work outstanding, they would take the device from everybody else, whatever the slice's share. The turn is a word of
// the claim page, and lapses by itself: who has it may die, be stopped, or wait for a kernel of a neighbour.
// Called under the gate's lock of the device; waits for nothing.
#include <cstdint>

#include "guest/limiter/core/device.h"

namespace tensor_fusion::guest::limiter {

inline constexpr std::uint64_t kTurnUnknownNs = 2'000'000'000;  // with what nobody knows the length of
inline constexpr std::uint64_t kTurnWholeNs = 10'000'000'000;   // however often its holder says that it still runs
inline constexpr std::uint64_t kTurnMostNs = 20'000'000'000;    // no word is believed that says longer
// Of work that is expected to be over at `end_ns` and takes `ns`: it may take half as long again.
constexpr std::uint64_t turn_lapses_ns(std::uint64_t end_ns, std::uint64_t ns) {
  return end_ns + (ns < 4'000'000 ? 2'000'000 : ns < 4'000'000'000 ? ns / 2 : 2'000'000'000);
}

class LongTurn {
 public:
  // True: it is this process's until `until_ns`. `outstanding`: work that had the turn is not known to be over. `more`:
  // such work may go beside it even though neighbours wait. Of those that wait the one that has for longest is next; it
  // looks every `look_ns`, and who does not come is not waited for.
  bool take(const Device& device, std::uint64_t now, std::uint64_t until_ns, std::uint64_t look_ns, bool outstanding,
            bool more);
  void keep(const Device& device, std::uint64_t until_ns);  // for no longer than kTurnWholeNs after it was taken
  void give_back(const Device& device, std::uint64_t now);
  bool mine() const { return mine_; }
  std::uint64_t since_ns() const { return mine_ ? since_ns_ : 0; }
  void forget() { mine_ = false; }  // in a child of fork

  // When the present one's work is expected to be over, by its own word; 0: not known, or past.
  static std::uint64_t ends_ns(const Device& device, std::uint64_t now);
  // It has asked in vain and waits for something else meanwhile.
  static void ask_on(const Device& device, std::uint64_t now);

 private:
  void change(const Device& device, std::uint64_t until_ns);

  std::uint64_t since_ns_ = 0;
  bool mine_ = false;
};

}  // namespace tensor_fusion::guest::limiter
