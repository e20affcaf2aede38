// A claim page that a tenant has written over from the start.
#include <gtest/gtest.h>

#include <algorithm>
#include <random>

#include "node/hypervisor/overwriting.h"
#include "node/hypervisor/test_slice.h"

namespace tensor_fusion::node::hypervisor {
namespace {

using contract::ClaimPage;

constexpr std::uint64_t kMi = 1 << 20;

std::string bytes_of(const std::string& how) {
  std::string bytes(sizeof(ClaimPage), '\0');
  std::mt19937 random(5);
  if (how == "random") std::ranges::generate(bytes, [&] { return static_cast<char>(random()); });
  return bytes;
}

struct Overwritten : ::testing::TestWithParam<const char*> {
  void write_over(const Slice& slice) const {
    const std::string bytes = bytes_of(GetParam());
    const system::Fd file(::open((slice.reply.slice_directory + "/claim").c_str(), O_WRONLY));
    ASSERT_EQ(::pwrite(file.get(), bytes.data(), bytes.size(), 0), static_cast<ssize_t>(bytes.size()));
  }
  static std::uint64_t times_reported(const TestDaemon& daemon) {
    std::uint64_t count = 0;
    const base::Json events = daemon.client().events().value();
    for (const base::Json& event : events["events"].items())
      if (event["kind"].as_string() == "tampered") count += event["count"].as_uint(1);
    return count;
  }
};
INSTANTIATE_TEST_SUITE_P(With, Overwritten, ::testing::Values("zeros", "random"),
                         [](const auto& one) { return std::string(one.param); });

TEST_P(Overwritten, claim_is_put_right_and_its_processes_stay_known) {
  TestDaemon daemon;
  ASSERT_TRUE(daemon.start());
  Slice slice(daemon, request("a", kTestGi)), neighbour(daemon, request("b"));
  TestProcess process(slice.reply.slice_directory, 200 * kMi), other(neighbour.reply.slice_directory, kMi);
  ASSERT_TRUE(slice.start(process.pid()));
  ASSERT_TRUE(neighbour.start(other.pid()));
  daemon.world("process " + std::to_string(process.pid()) + " GPU-0000 " + std::to_string(500 * kMi) + " 0\n");
  const contract::GrantDevice& grant = slice.granted().devices[0];
  ASSERT_TRUE(eventually([&] { return grant.observed_bytes.load() == 500 * kMi; }));
  ASSERT_TRUE(eventually([&] { return daemon.tenant("b")["processes"].size() == 1; }));
  write_over(slice);
  ClaimPage& claim = slice.claimed();
  contract::ClaimProcess& own = claim.processes[process.slot()];
  EXPECT_TRUE(eventually([&] {
    return claim.magic == contract::kClaimMagic && claim.abi == contract::kClaimAbi &&
           claim.size_bytes == sizeof(ClaimPage);
  }));
  EXPECT_TRUE(eventually([&] {
    return own.state.load() == contract::kSlotLive && own.pid.load() == static_cast<std::uint32_t>(process.pid());
  }));
  EXPECT_TRUE(eventually([&] {
    return claim.devices[0].lock.load() == 0 && claim.devices[0].used_bytes.load() == 0 &&
           grant.unledgered_bytes.load() == 500 * kMi;
  })) << "it is held to what the driver shows";
  EXPECT_EQ(grant.observed_bytes.load(), 500 * kMi);
  EXPECT_EQ(grant.memory_limit_bytes.load(), kTestGi);
  EXPECT_EQ(daemon.tenant("a")["processes"].size(), 1u);
  EXPECT_EQ(daemon.client().list().value()["unlimited"].size(), 0u);
  EXPECT_TRUE(daemon.has_event("tampered", "claim was overwritten"));
  EXPECT_EQ(times_reported(daemon), 1u);
  EXPECT_TRUE(eventually([&] { return claim.process_high.load() == process.slot() + 1; }))
      << "or everybody adds up 512 slots from now on";
  EXPECT_FALSE(daemon.tenant("b")["tampered"].as_bool());
  EXPECT_EQ(neighbour.claimed().devices[0].used_bytes.load(), kMi);
  process.kill();
  EXPECT_TRUE(eventually([&] {
    for (const contract::ClaimProcess& one : claim.processes)
      if (one.state.load() != contract::kSlotFree) return false;
    return true;
  })) << "what nobody has is free for others";
}

// The hypervisor may look between any two of its bytes.
TEST(Overwriting, of_a_claim_is_put_right_to_its_end_by_who_looked_before_that_was_written) {
  TestDaemon daemon;
  ASSERT_TRUE(daemon.start());
  Slice slice(daemon, request("a", kTestGi));
  Child child;
  ASSERT_TRUE(slice.start(child.pid));
  ClaimPage& claim = slice.claimed();
  claim.magic = 0;
  ASSERT_TRUE(eventually([&] { return claim.magic == contract::kClaimMagic; }));
  for (std::uint32_t slot = 100; slot < contract::kMaxProcesses; ++slot) claim.processes[slot].state = 0xdead;
  EXPECT_TRUE(eventually([&] {
    return std::ranges::all_of(claim.processes, [](const auto& one) { return one.state == contract::kSlotFree; });
  })) << "or no new process ever finds a place there";
}

// What is written last may be taken for a process that has died: its slot is free then, and nobody's highest.
TEST(Overwriting, of_a_claim_leaves_no_more_slots_to_add_up_than_are_taken) {
  TestDaemon daemon;
  ASSERT_TRUE(daemon.start());
  Slice slice(daemon, request("a", kTestGi));
  Child child;
  ASSERT_TRUE(slice.start(child.pid));
  ClaimPage& claim = slice.claimed();
  claim.magic = 0;
  ASSERT_TRUE(eventually([&] { return claim.magic == contract::kClaimMagic; }));
  contract::ClaimProcess& last = claim.processes[contract::kMaxProcesses - 1];
  last.pid = 0x3ffffff;  // nobody's
  last.start_ticks = 1;
  last.state = contract::kSlotLive;
  claim.process_high = contract::kMaxProcesses;
  ASSERT_TRUE(eventually([&] { return last.state == contract::kSlotFree; }));
  EXPECT_TRUE(eventually([&] { return claim.process_high == 0; })) << claim.process_high;
}

TEST(Overwriting, is_told_again_of_one_who_never_lets_five_seconds_pass) {
  Overwriting overwriting;
  constexpr std::uint64_t kSecondNs = 1'000'000'000;
  int told = 0;
  for (std::uint64_t second = 100; second < 140; second += 4) told += overwriting.tell(second * kSecondNs) ? 1 : 0;
  EXPECT_EQ(told, 5);
  EXPECT_TRUE(overwriting.is_told(136 * kSecondNs));
  EXPECT_FALSE(overwriting.is_told(132 * kSecondNs + Overwriting::kOneNs));
}

TEST_P(Overwritten, claim_is_put_right_by_the_next_hypervisor) {
  TestDaemon daemon;
  ASSERT_TRUE(daemon.start());
  Slice slice(daemon, request("a", kTestGi));
  Child child;
  ASSERT_TRUE(slice.start(child.pid));
  daemon.kill();
  write_over(slice);
  ASSERT_TRUE(daemon.start());
  EXPECT_TRUE(eventually([&] { return slice.claimed().magic == contract::kClaimMagic; }));
  EXPECT_TRUE(daemon.has_event("tampered", "claim was overwritten"));
  ASSERT_TRUE(eventually([&] { return slice.claimed().processes[0].state.load() == contract::kSlotFree; }));
  TestProcess process(slice.reply.slice_directory, 0);
  EXPECT_TRUE(eventually([&] { return daemon.tenant("a")["processes"].size() == 1; }));
}

}  // namespace
}  // namespace tensor_fusion::node::hypervisor
