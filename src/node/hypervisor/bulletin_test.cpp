#include "node/hypervisor/bulletin.h"

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "contract/claim.h"
#include "contract/grant.h"
#include "system/scratch_directory.h"

namespace tensor_fusion::node::hypervisor {
namespace {

constexpr char kCard[] = "GPU-0000";
constexpr std::uint64_t kLimit = 4096;

// Processes that take all they may and show the least of it: what one takes in its turn it takes while the driver is
// being read, so that only the next reading shows it.
class Takers : public ::testing::Test {
 protected:
  void SetUp() override {
    ::mkdir((scratch_.root() + "/tenants").c_str(), 0700);
    ::mkdir((scratch_.root() + "/hidden").c_str(), 0700);
    tenant_.record.id = "aaaa";
    tenant_.record.user = ::geteuid();
    tenant_.record.devices.push_back({kCard, 0, "model", std::uint64_t{1} << 20, kLimit, 0, 10000});
    auto pages = TenantPages::create(scratch_.root() + "/tenants/aaaa", scratch_.root() + "/hidden", tenant_.record);
    ASSERT_TRUE(pages) << pages.error().message;
    tenant_.pages = std::move(*pages);
    tenant_.usage.resize(1);
  }

  void start(std::size_t processes) {
    for (std::size_t i = 0; i < processes; ++i) {
      LiveProcess process;
      process.slot = static_cast<std::uint32_t>(i);
      process.host_pid = process.tenant_pid = static_cast<pid_t>(100 + i);
      tenant_.processes.push_back(std::move(process));
      shown_.push_back(0);
      held_.push_back(0);
      asked_.push_back(0);
    }
  }

  void ask(std::size_t process) { ++asked_[process]; }
  bool is_answered(std::size_t process) const { return tenant_.processes[process].settle_seen[0] == asked_[process]; }

  // A reading that shows what was held before it began. True: another one has to follow at once.
  bool read(const std::vector<std::uint64_t>& taken_meanwhile = {}) {
    BeforeReading before;
    before.used = before.changes = {0};
    ShownMemory shown;
    tenant_.usage[0].observed_bytes = 0;
    ++tenant_.pages.grant().devices[0].reading_begun;
    for (std::size_t i = 0; i < held_.size(); ++i) {
      before.settle[{tenant_.processes[i].slot, 0}] = asked_[i];
      shown[tenant_.processes[i].host_pid][kCard] = shown_[i] = held_[i];
      tenant_.usage[0].observed_bytes += held_[i];
    }
    for (std::size_t i = 0; i < taken_meanwhile.size(); ++i) held_[i] += taken_meanwhile[i];
    list_processes(tenant_);
    publish_reading(tenant_, before, shown, devices_);
    return answer_requests(tenant_, before);
  }

  std::uint32_t turn() const { return tenant_.pages.grant().devices[0].turn; }
  std::uint64_t left() const {
    const std::uint64_t seen = tenant_.usage[0].observed_bytes;
    return kLimit > seen ? kLimit - seen : 0;
  }
  // What a process that has the turn may still take: it knows what it holds beyond what was shown.
  std::uint64_t may_take(std::size_t process) const {
    const std::uint64_t unseen = held_[process] - shown_[process];
    return turn() == process + 1 && left() > unseen ? left() - unseen : 0;
  }
  std::uint64_t all_held() const {
    std::uint64_t all = 0;
    for (const std::uint64_t bytes : held_) all += bytes;
    return all;
  }

  system::ScratchDirectory scratch_;
  DeviceTable devices_;
  Tenant tenant_;
  std::vector<std::uint64_t> shown_, held_;
  std::vector<std::uint32_t> asked_;
};

TEST_F(Takers, get_no_more_than_the_limit_however_long_the_driver_is_being_read) {
  constexpr std::size_t kProcesses = 4;
  start(kProcesses);
  bool had_turn[kProcesses] = {};
  for (int round = 0; round < 64; ++round) {
    std::vector<std::uint64_t> taken(kProcesses);
    for (std::size_t i = 0; i < kProcesses; ++i) {
      ask(i);
      // Half of it at once, so that it is seen and the turn goes on, and the rest while that is being read.
      had_turn[i] = had_turn[i] || turn() == i + 1;
      held_[i] += may_take(i) / 2;
      taken[i] = may_take(i);
    }
    read(taken);
    ASSERT_LE(all_held(), kLimit) << "in round " << round;
  }
  EXPECT_EQ(all_held(), kLimit);
  EXPECT_GT(std::ranges::count(had_turn, true), 1);
}

TEST_F(Takers, wait_for_one_more_reading_when_the_turn_passes_on) {
  start(2);
  EXPECT_FALSE(read());
  EXPECT_EQ(turn(), 0u) << "nobody has asked";
  ask(0);
  EXPECT_TRUE(read());
  EXPECT_EQ(turn(), contract::kNobodysTurn) << "others may have taken their parts meanwhile";
  EXPECT_FALSE(is_answered(0));
  EXPECT_FALSE(read());
  EXPECT_EQ(turn(), 1u);
  EXPECT_TRUE(is_answered(0));
  held_[0] += 10;
  ask(0);
  EXPECT_FALSE(read());
  EXPECT_EQ(turn(), 1u) << "nobody else asks: what it has not shown it knows itself";
  EXPECT_TRUE(is_answered(0));
  held_[0] += 10;
  ask(1);
  EXPECT_TRUE(read());
  EXPECT_FALSE(read());
  EXPECT_EQ(turn(), 2u);
  held_[1] += 10;
  EXPECT_FALSE(read());
  EXPECT_EQ(turn(), contract::kNobodysTurn) << "nobody asks, so nothing is to follow at once";
  EXPECT_FALSE(read());
  EXPECT_EQ(turn(), 0u);
}

TEST_F(Takers, that_are_alone_are_answered_at_once) {
  start(1);
  ask(0);
  EXPECT_FALSE(read());
  EXPECT_EQ(turn(), 1u);
  EXPECT_TRUE(is_answered(0));
}

}  // namespace
}  // namespace tensor_fusion::node::hypervisor
