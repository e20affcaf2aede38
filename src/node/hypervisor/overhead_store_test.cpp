#include "node/hypervisor/overhead_store.h"

#include <gtest/gtest.h>

#include "node/hypervisor/reconcile.h"
#include "node/hypervisor/test_daemon.h"
#include "system/file.h"

namespace tensor_fusion::node::hypervisor {
namespace {

constexpr std::uint64_t kMi = 1ull << 20;

TEST(OverheadStore, knows_after_a_restart_what_a_context_cost_on_a_device_with_that_driver) {
  TestDaemon place;
  ASSERT_TRUE(system::make_directories(place.state()));
  const std::string file = place.state() + "/overheads";
  OverheadStore store;
  store.open(file);
  store.keep("GPU-1", "560.35 open", 400 * kMi);
  store.keep("GPU-2", "", 8 * kMi);
  store.keep("GPU-1", "560.35 open", 410 * kMi);
  OverheadStore again;
  again.open(file);
  EXPECT_EQ(again.of("GPU-1", "560.35 open"), 410 * kMi);
  EXPECT_EQ(again.of("GPU-2", ""), 8 * kMi);
  EXPECT_EQ(again.of("GPU-1", "570.00"), 0u);
}

TEST(OverheadStore, believes_no_line_that_no_driver_could_have_led_to) {
  TestDaemon place;
  ASSERT_TRUE(system::make_directories(place.state()));
  const std::string file = place.state() + "/overheads";
  ASSERT_TRUE(system::replace_file(
      file, "0 GPU-1 d\nnonsense\n99999999999999 GPU-2 d\n\n" + std::to_string(kMostOverheadBytes) + " GPU-3 d\n12"));
  OverheadStore store;
  store.open(file);
  EXPECT_EQ(store.of("GPU-1", "d"), 0u);
  EXPECT_EQ(store.of("GPU-2", "d"), 0u);
  EXPECT_EQ(store.of("GPU-3", "d"), kMostOverheadBytes);
  for (std::size_t i = 0; i < OverheadStore::kMost + 9; ++i) store.keep("GPU-" + std::to_string(i), "x", kMi);
  OverheadStore again;
  again.open(file);
  EXPECT_EQ(again.of("GPU-9", "x"), kMi);
  EXPECT_EQ(again.of("GPU-8", "x"), 0u) << "the oldest go";
}

}  // namespace
}  // namespace tensor_fusion::node::hypervisor
