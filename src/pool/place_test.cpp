#include "pool/place.h"

#include <gtest/gtest.h>

#include <random>

namespace tensor_fusion::pool {
namespace {

using base::Bytes;
using base::Percent;
using base::Tflops;

constexpr std::uint64_t kGi = 1ull << 30;

PlaceDevice device(int index, std::uint64_t memory = 80 * kGi, double tflops = 1000) {
  return {.uuid = "GPU-000" + std::to_string(index),
          .index = index,
          .model = "H100",
          .memory_bytes = memory,
          .outside_bytes = 0,
          .tflops = tflops,
          .unusable = ""};
}
PlaceAllocation allocation(int index, std::uint64_t memory, std::uint32_t request) {
  return {.tenant = "other",
          .uuid = "GPU-000" + std::to_string(index),
          .memory_bytes = memory,
          .request_share = request,
          .limit_share = kWholeDevice};
}
PlaceRequest request(std::optional<base::Memory> memory, std::optional<base::Compute> compute) {
  PlaceRequest r;
  r.memory = memory;
  r.compute = compute;
  return r;
}

TEST(Place, makes_a_compute_limit_alone_also_the_request) {
  const std::vector devices = {device(0)};
  const auto placed = place(devices, {}, request({}, Percent{4000}));
  ASSERT_TRUE(placed);
  EXPECT_EQ(placed->devices[0], (PlacedDevice{"GPU-0000", 32 * kGi, 4000, 4000}))
      << "memory follows the request's part";
}

TEST(Place, gives_memory_alone_the_idle_time_of_the_card) {
  const std::vector devices = {device(0)};
  const auto placed = place(devices, {}, request(Bytes{2 * kGi}, {}));
  ASSERT_TRUE(placed);
  EXPECT_EQ(placed->devices[0], (PlacedDevice{"GPU-0000", 2 * kGi, 0, kWholeDevice}));
}

TEST(Place, gives_a_request_without_figures_what_is_left) {
  const std::vector devices = {device(0)};
  const std::vector taken = {allocation(0, 30 * kGi, 3000)};
  EXPECT_EQ(place(devices, taken, {})->devices[0], (PlacedDevice{"GPU-0000", 50 * kGi, 0, kWholeDevice}));
  const std::vector full = {allocation(0, 80 * kGi, 3000)};
  const auto refused = place(devices, full, {});
  ASSERT_FALSE(refused);
  EXPECT_NE(refused.error().reasons[0].find("--vram"), std::string::npos);
}

TEST(Place, gives_a_compute_request_alone_the_whole_card_as_limit) {
  const std::vector devices = {device(0)};
  PlaceRequest r = request(Bytes{kGi}, {});
  r.compute_request = Percent{2000};
  EXPECT_EQ(place(devices, {}, r)->devices[0], (PlacedDevice{"GPU-0000", kGi, 2000, kWholeDevice}));
  r.compute = Percent{1000};
  EXPECT_FALSE(place(devices, {}, r)) << "a request above the limit";
}

TEST(Place, names_all_that_is_missing_on_a_card) {
  const std::vector devices = {device(0)};
  const auto refused =
      place(devices, std::vector{allocation(0, 70 * kGi, 7000)}, request(Bytes{20 * kGi}, Percent{4000}));
  ASSERT_FALSE(refused);
  EXPECT_EQ(
      refused.error().reasons.at(0),
      "GPU 0 (H100): 20Gi of memory asked, 10Gi of 80Gi free; held by other (70Gi); and 40% of compute asked, 30% "
      "free; held by other (70%)");
}

TEST(Place, keeps_requests_within_a_card_and_lets_limits_exceed_it) {
  const std::vector devices = {device(0)};
  std::vector<PlaceAllocation> taken = {allocation(0, kGi, 7000)};
  const auto refused = place(devices, taken, request(Bytes{kGi}, Percent{4000}));
  ASSERT_FALSE(refused);
  EXPECT_FALSE(refused.error().never);
  EXPECT_EQ(refused.error().reasons.at(0), "GPU 0 (H100): 40% of compute asked, 30% free; held by other (70%)");
  PlaceRequest r = request(Bytes{kGi}, Percent{9000});
  r.compute_request = Percent{3000};
  EXPECT_TRUE(place(devices, taken, r)) << "70 % + 30 % of requests; 100 % + 90 % of limits";
}

TEST(Place, says_never_when_no_empty_card_would_do) {
  const std::vector devices = {device(0)};
  const auto refused = place(devices, {}, request(Bytes{81 * kGi}, {}));
  ASSERT_FALSE(refused);
  EXPECT_TRUE(refused.error().never);
  EXPECT_NE(refused.error().reasons.at(0).find("the card has 80Gi; ask for less"), std::string::npos);
  EXPECT_TRUE(place(devices, {}, request({}, Tflops{1001})).error().never);
  EXPECT_TRUE(place({}, {}, {}).error().never);
}

TEST(Place, says_what_to_ask_for_instead_of_what_is_not_here) {
  const std::vector devices = {device(0)};
  EXPECT_NE(place(devices, {}, request({}, Tflops{1001})).error().reasons.at(0).find("; ask for less, or in percent"),
            std::string::npos);
  PlaceRequest r = request(Bytes{kGi}, Percent{1000});
  r.count = 2;
  EXPECT_EQ(place(devices, {}, r).error().message, "2 devices asked, this node has 1; ask for fewer");
  r.count = 1;
  r.chosen = {"7"};
  EXPECT_EQ(
      place(devices, {}, r).error().message,
      "no device '7' here; there is 0; `tensor-fusion devices` lists them, and without --gpu the best fit is chosen");
}

TEST(Place, converts_tflops_by_the_card) {
  const std::vector devices = {device(0, 80 * kGi, 989.4)};
  EXPECT_EQ(place(devices, {}, request(Bytes{kGi}, Tflops{98.94}))->devices[0].limit_share, 1000u);
  EXPECT_EQ(place(devices, {}, request(Bytes{kGi}, Tflops{0.09894}))->devices[0].limit_share, 1u);
}

TEST(Place, refuses_a_speed_below_the_least_share_and_a_share_whose_memory_opens_no_gpu) {
  const std::vector devices{device(0)};
  const auto slow = place(devices, {}, request({}, Tflops{0.02}));
  ASSERT_FALSE(slow.has_value());
  EXPECT_TRUE(slow.error().never);
  EXPECT_NE(slow.error().reasons.at(0).find("less than 0.01% of it"), std::string::npos) << slow.error().reasons[0];
  const auto small = place(devices, {}, request({}, Tflops{0.5}));
  ASSERT_FALSE(small.has_value());
  EXPECT_NE(small.error().reasons.at(0).find("0.05% of it is 40Mi"), std::string::npos) << small.error().reasons[0];
  EXPECT_TRUE(place(devices, {}, request(Bytes{kGi}, Tflops{0.5})).has_value());
}

TEST(Place, fits_tightly_then_by_index) {
  const std::vector devices = {device(0), device(1), device(2, 20 * kGi)};
  const std::vector taken = {allocation(1, 60 * kGi, 5000)};
  EXPECT_EQ(place(devices, taken, request(Bytes{10 * kGi}, Percent{1000}))->devices[0].uuid, "GPU-0001");
  EXPECT_EQ(place(devices, {}, request(Bytes{10 * kGi}, Percent{1000}))->devices[0].uuid, "GPU-0002");
  const std::vector same = {device(0), device(1)};
  EXPECT_EQ(place(same, {}, request(Bytes{kGi}, Percent{1000}))->devices[0].uuid, "GPU-0000");
}

TEST(Place, takes_several_cards_or_none) {
  const std::vector devices = {device(0), device(1)};
  PlaceRequest r = request(Bytes{10 * kGi}, Percent{6000});
  r.count = 2;
  EXPECT_EQ(place(devices, {}, r)->devices.size(), 2u);
  const std::vector taken = {allocation(1, kGi, 5000)};
  EXPECT_FALSE(place(devices, taken, r));
  r.count = 3;
  EXPECT_TRUE(place(devices, {}, r).error().never);
}

TEST(Place, takes_the_card_that_is_named) {
  const std::vector devices = {device(0), device(1)};
  PlaceRequest r = request(Bytes{kGi}, {});
  r.chosen = {"1"};
  EXPECT_EQ(place(devices, {}, r)->devices[0].uuid, "GPU-0001");
  r.chosen = {"gpu-0001"};
  EXPECT_EQ(place(devices, {}, r)->devices[0].uuid, "GPU-0001");
  r.chosen = {"GPU-000"};
  EXPECT_NE(place(devices, {}, r).error().message.find("several"), std::string::npos);
  r.chosen = {"7"};
  EXPECT_TRUE(place(devices, {}, r).error().malformed);
  r.chosen = {"0", "1"};
  EXPECT_EQ(place(devices, {}, r)->devices.size(), 2u);
  r.chosen = {"0", "0"};
  EXPECT_TRUE(place(devices, {}, r).error().malformed);
}

TEST(Place, puts_nothing_on_an_unhealthy_card_and_counts_strangers) {
  std::vector devices = {device(0)};
  devices[0].unusable = "lost (Xid 79)";
  const auto refused = place(devices, {}, request(Bytes{kGi}, {}));
  ASSERT_FALSE(refused);
  EXPECT_FALSE(refused.error().never);
  EXPECT_TRUE(refused.error().broken) << "waiting would not help";
  devices[0].unusable.clear();
  devices[0].outside_bytes = 79 * kGi;
  const auto full = place(devices, std::vector{allocation(0, kGi / 2, 0)}, request(Bytes{2 * kGi}, {}));
  ASSERT_FALSE(full);
  EXPECT_FALSE(full.error().broken);
  EXPECT_NE(full.error().reasons.at(0).find("held by other (512Mi), processes outside any slice (79Gi)"),
            std::string::npos)
      << full.error().reasons.at(0);
}

// Whatever is asked in whatever order, no card is promised twice, and the same input gives the same answer.
TEST(Place, never_promises_more_than_a_card) {
  std::mt19937 random(7);
  for (int round = 0; round < 300; ++round) {
    std::vector<PlaceDevice> devices;
    for (int i = 0; i < 1 + static_cast<int>(random() % 4); ++i)
      devices.push_back(device(i, (1 + random() % 80) * kGi));
    std::vector<PlaceAllocation> taken;
    for (int i = 0; i < 40; ++i) {
      PlaceRequest r;
      if (random() % 4) r.memory = Bytes{(1 + random() % 40) * kGi};
      if (random() % 3) r.compute = Percent{static_cast<std::uint32_t>(1 + random() % 10000)};
      if (random() % 3 == 0) r.compute_request = Percent{static_cast<std::uint32_t>(1 + random() % 5000)};
      r.count = 1 + static_cast<unsigned>(random() % 2);
      const auto placed = place(devices, taken, r);
      const auto again = place(devices, taken, r);
      ASSERT_EQ(placed.has_value(), again.has_value());
      if (!placed) continue;
      ASSERT_EQ(placed->devices, again->devices);
      for (const PlacedDevice& p : placed->devices)
        taken.push_back({"t", p.uuid, p.memory_bytes, p.request_share, p.limit_share});
    }
    for (const PlaceDevice& d : devices) {
      std::uint64_t memory = 0, share = 0;
      for (const PlaceAllocation& a : taken)
        if (a.uuid == d.uuid) memory += a.memory_bytes, share += a.request_share;
      ASSERT_LE(memory, d.memory_bytes);
      ASSERT_LE(share, kWholeDevice);
    }
  }
}

}  // namespace
}  // namespace tensor_fusion::pool
