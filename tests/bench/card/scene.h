#pragma once
// What the bench does with the user's card: programs directly on it and in slices of it, and what each achieves. The
// slices are those of the hypervisor that `run` finds or starts. A step that cannot be done says why on standard error
// and gives nothing. One thread.
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "tests/bench/card/player.h"

namespace tensor_fusion::bench::card {

struct Calls {
  double start_ms = 0, launch_ns = 0, alloc_ns = 0;
};

struct Slice {
  int request = 100, limit = 100;  // percent of the card's compute
  std::string vram = "20%";
};

struct Filled {
  std::int64_t limit_bytes = 0;  // as the driver shows the slice its card
  std::int64_t held_bytes = 0;   // that the card has less for others, contexts and all
};

class Scene {
 public:
  // `folder`: of a build, or of what was installed of one.
  Scene(std::string self, const std::string& folder);

  // Whether the card can be measured: it has a driver, and nobody else a slice. Calibrates the kernel.
  bool prepare();
  const std::string& card() const { return card_; }

  // No slice: directly on the card.
  std::optional<Calls> calls(const std::optional<Slice>& slice);
  std::optional<double> rate_alone(const std::optional<Slice>& slice, unsigned seconds);  // kernels per second
  // Per program, kernels that ended in each second after the first two, all of them at work.
  std::optional<std::vector<std::vector<double>>> rates(const std::vector<Slice>& slices, unsigned seconds);
  // Four processes of one slice, when they are refused more.
  std::optional<Filled> filled(const Slice& slice);

 private:
  std::optional<std::vector<std::string>> slices() const;  // names
  void await_room() const;
  Player start(const std::optional<Slice>& slice, const std::vector<std::string>& worker);
  std::optional<std::vector<std::vector<double>>> spin(std::vector<Player>& players, unsigned seconds);

  std::string self_, program_;
  std::string card_, kernel_;
  unsigned slices_ = 0;
};

}  // namespace tensor_fusion::bench::card
