// What a tenant claims of its compute, of any content and changed between readings in any way: sums never go back, no
// reading adds more than is possible, and no claim lies in the future beyond its bound.
#include <cstdlib>

#include "contract/page_patch.h"
#include "node/hypervisor/share_claims.h"
#include "tools/fuzz/seeds.h"

using namespace tensor_fusion;
using namespace tensor_fusion::node::hypervisor;

namespace {

constexpr std::uint64_t kMostAtOnceNs = 60'000'000'000;  // of one process in one reading
constexpr std::uint64_t kStepNs = 1'000'000'000;         // the longest time between two readings here

void demand(bool holds) {
  if (!holds) std::abort();
}

class Reader {
 public:
  void read(const contract::ClaimPage& page, std::uint64_t now) {
    const std::uint64_t launched = last_.launched_ns, held = claims_.held_ns(), launches = claims_.launches();
    const pool::ShareClaim claim = claims_.read(page, 0, now, stretches_);
    if (first_) demand(claim.launched_ns == 0 && claims_.held_ns() == 0);  // what was there before us is charged
    first_ = false;
    demand(claim.launched_ns >= launched && claim.launched_ns - launched <= contract::kMaxProcesses * kMostAtOnceNs);
    demand(claims_.held_ns() >= held && claims_.launches() >= launches);
    demand(claim.progress_ns <= now + kMostAtOnceNs && claim.wanted_since_ns <= now);
    demand(claim.processes <= contract::kMaxProcesses &&
           stretches_.size() <= contract::kMaxProcesses * (contract::kMarkers + 1));
    for (const pool::ShareStretch& stretch : stretches_) demand(stretch.process < contract::kMaxProcesses);
    // Nothing was written meanwhile, so nothing is new; two readings of one page tell the same.
    const std::uint64_t outline = claims_.outline();
    const pool::ShareClaim again = claims_.read(page, 0, now, stretches_);
    demand(stretches_.empty() && again.launched_ns == claim.launched_ns && claims_.outline() == outline &&
           again.blocked == claim.blocked && again.processes == claim.processes);
    last_ = again;
  }

 private:
  ShareClaims claims_;
  std::vector<pool::ShareStretch> stretches_;
  pool::ShareClaim last_;
  bool first_ = true;
};

}  // namespace

std::vector<std::vector<std::uint8_t>> fuzz_seeds() {
  using enum contract::ClaimPlace;
  contract::PatchSeed seed;
  const auto change = [&](auto... arguments) { seed.byte(1).change(arguments...); };
  change(head, 0u, 0u, contract::kProcessHighWord, 2u);
  for (std::uint32_t i = 0; i < 2; ++i) {
    change(slot, i, 0u, contract::kStateWord, contract::kSlotLive);
    change(slot, i, 0u, contract::kPidWord, 100 + i);
    change(counter, i, 0u, contract::kLaunchedWord, 5'000'000u);
  }
  seed.byte(0).number(20'000'000);  // a reading
  for (std::uint32_t i = 0; i < 3; ++i) {
    change(marker, 0u, 0u, std::size_t{3 * i}, 1'000'000u * i);
    change(marker, 0u, 0u, std::size_t{3 * i + 1}, 1'000'000u * i + 900'000u);
    change(counter, 0u, 0u, contract::kMarkerWord, i + 1);
    change(counter, 0u, 0u, contract::kLaunchedWord, 6'000'000u + i);
    seed.byte(0).number(20'000'000);
  }
  change(slot, 1u, 0u, contract::kPidWord, 300u);
  change(counter, 1u, 0u, contract::kLaunchedWord, 0u);
  seed.byte(0).number(500'000'000);
  return {seed.bytes()};
}

extern "C" int LLVMFuzzerTestOneInput(const unsigned char* data, std::size_t size) {
  static auto* page = static_cast<contract::ClaimPage*>(std::aligned_alloc(4096, sizeof(contract::ClaimPage)));
  contract::begin_page(*page);
  Reader reader;
  std::uint64_t now = 1'000'000'000;
  contract::PatchInput input(data, size);
  while (!input.is_over()) {
    if (input.byte() % 4 != 0) {
      contract::patch(*page, input);
    } else {
      reader.read(*page, now += input.number() % kStepNs);
    }
  }
  reader.read(*page, now);
  return 0;
}
