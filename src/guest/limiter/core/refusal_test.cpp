#include "guest/limiter/core/refusal.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <memory>
#include <string>

#include "guest/limiter/core/attachment.h"
#include "guest/limiter/core/log.h"

namespace tensor_fusion::guest::limiter {
namespace {

constexpr std::uint64_t kMiB = 1 << 20;

class Refusal : public ::testing::Test {
 protected:
  Refusal() {
    g_shared.slice.claim = claim.get();
    device.grant = &grant->devices[0];
    device.grant_page = grant.get();
    device.claim = &claim->devices[0];
    device.mine = &claim->processes[0].devices[0];
    grant->devices[0].memory_limit_bytes = 1024 * kMiB;
    claim->process_high = 3;
    for (int i = 0; i < 3; ++i) claim->processes[i].state = contract::kSlotLive;
    claim->processes[0].devices[0].ledger_bytes = 100 * kMiB;
    claim->processes[2].devices[0].ledger_bytes = 500 * kMiB + kMiB / 2;
    claim->devices[0].used_bytes = 600 * kMiB + kMiB / 2;
  }
  ~Refusal() override {
    unsetenv(kLogVariable);
    g_shared.slice.claim = nullptr;
  }
  std::string said_of(std::uint64_t bytes, Room room) {
    ::testing::internal::CaptureStderr();
    refuse(device, bytes, room);
    return ::testing::internal::GetCapturedStderr();
  }
  std::unique_ptr<contract::GrantPage> grant = std::make_unique<contract::GrantPage>();
  std::unique_ptr<contract::ClaimPage> claim = std::make_unique<contract::ClaimPage>();
  Device device{};
};

TEST_F(Refusal, is_counted_and_explained_only_to_who_wants_to_know) {
  EXPECT_EQ(said_of(2048 * kMiB, Room::full), "");
  setenv(kLogVariable, "1", 1);
  grant->devices[0].unledgered_bytes = 20 * kMiB;
  grant->devices[0].observed_bytes = 620 * kMiB;
  const std::string said = said_of(2048 * kMiB, Room::full);
  EXPECT_NE(
      said.find("memory was refused by the limiter and not by the driver, 2048 MiB on device 0: the limit is 1024 "
                "MiB, held are 600.5 MiB by 2 processes (100 MiB by this one) and 20 MiB by the driver itself; the "
                "driver last showed 620 MiB\n"),
      std::string::npos)
      << said;
  EXPECT_EQ(said_of(4096 * kMiB, Room::full), "") << "within the same second";
  EXPECT_EQ(claim->devices[0].refused.load(), 3u);
}

}  // namespace
}  // namespace tensor_fusion::guest::limiter
