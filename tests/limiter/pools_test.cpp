// Memory pools reserve from the card in pieces; a slice is to be had to its last byte all the same.
#include <gtest/gtest.h>

#include "tests/limiter/machine.h"

namespace tensor_fusion::tests {
namespace {

using guest::limiter::testing::Job;

constexpr std::uint64_t kMiB = 1 << 20;

Job pools(const LimitedMachine& machine, std::vector<std::string> arguments) {
  Job job = machine.tenant(std::move(arguments));
  job.command[0] = std::string(TF_BUILD_FOLDER) + "/programs/limiter_pools";
  return job;
}

// A slice of one context and 100 MiB.
struct CappedMachine {
  CappedMachine() {
    contract::GrantDevice& device = machine.slice().grant().devices[0];
    device.flags = contract::kComputeUnlimited;
    device.memory_limit_bytes = limit;
    machine.reset_peak();
  }
  std::uint64_t peak() const { return machine.memory().peak_bytes - before; }

  LimitedMachine machine{0};
  const std::uint64_t limit = machine.overhead() + 100 * kMiB;
  const std::uint64_t before = machine.memory().used_bytes;
};

class PoolOf : public ::testing::TestWithParam<const char*> {};
INSTANTIATE_TEST_SUITE_P(Kinds, PoolOf, ::testing::Values("", "_ptsz", "own"), [](const auto& kind) {
  return std::string(kind.param) == "own" ? "own" : kind.param[0] == 0 ? "legacy" : "per_thread";
});

TEST_P(PoolOf, a_slice_gives_its_last_piece) {
  CappedMachine capped;
  LimitedMachine& machine = capped.machine;
  Talk tenant(pools(machine, {"fill", std::to_string(kMiB), GetParam()}));
  EXPECT_EQ(tenant.line(), "refused=2");
  EXPECT_EQ(machine.ledger(), machine.tenants_real_bytes());
  EXPECT_EQ(machine.ledger(), capped.limit);
  tenant.go();
  EXPECT_EQ(tenant.line(), "pieces=100");
  tenant.go();
  EXPECT_EQ(tenant.line(), "given=0");
  EXPECT_EQ(machine.ledger(), machine.tenants_real_bytes());
  EXPECT_EQ(machine.ledger(), machine.overhead());
  EXPECT_LE(capped.peak(), capped.limit);
  tenant.go();
}

TEST(Pool, gives_the_last_piece_again_and_again) {
  CappedMachine capped;
  LimitedMachine& machine = capped.machine;
  Talk tenant(pools(machine, {"churn", std::to_string(3 * kMiB)}));
  EXPECT_EQ(tenant.line(), "fewest=31") << "three times ten in a pool's piece of 32 MiB, and one beside them";
  EXPECT_EQ(tenant.line(), "wrong=0");
  EXPECT_EQ(machine.ledger(), machine.tenants_real_bytes());
  EXPECT_LE(capped.peak(), capped.limit);
  tenant.go();
}

TEST(Pool, gives_back_what_outlived_it_when_that_is_freed) {
  LimitedMachine machine(2048 * kMiB);
  Talk tenant(pools(machine, {"outlive", std::to_string(500 * kMiB)}));
  const std::vector<std::pair<std::string, bool>> steps = {{"taken=0", true},         {"ended=0", true},
                                                           {"default_again=1", true}, {"from_ended=1", true},
                                                           {"ended_twice=1", true},   {"freed=0", false}};
  for (const auto& [line, held] : steps) {
    EXPECT_EQ(tenant.line(), line);
    EXPECT_EQ(machine.ledger(), machine.tenants_real_bytes()) << line;
    EXPECT_EQ(machine.ledger(), machine.overhead() + (held ? 500 * kMiB : 0)) << line;
    tenant.go();
  }
}

}  // namespace
}  // namespace tensor_fusion::tests
