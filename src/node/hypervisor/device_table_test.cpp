#include "node/hypervisor/device_table.h"

#include <gtest/gtest.h>

#include <cstdio>
#include <vector>

namespace tensor_fusion::node::hypervisor {
namespace {

ExtendedDeviceInfo listed(int index, const char* uuid, const char* lost = nullptr) {
  ExtendedDeviceInfo info{};
  std::snprintf(info.basic.uuid, sizeof info.basic.uuid, "%s", uuid);
  info.basic.index = index;
  info.basic.totalMemoryBytes = lost == nullptr ? 80 : 0;
  if (lost == nullptr) return info;
  std::snprintf(info.props.properties[0].key, sizeof info.props.properties[0].key, "lost");
  std::snprintf(info.props.properties[0].value, sizeof info.props.properties[0].value, "%s", lost);
  info.props.count = 1;
  return info;
}

TEST(DeviceTable, keeps_a_card_that_a_new_provider_finds_lost_and_cannot_name) {
  DeviceTable table;
  table.update(std::vector{listed(0, "GPU-a"), listed(1, "GPU-b")});
  const auto changes = table.update(std::vector{listed(0, "GPU-lost-0", "unnamed"), listed(1, "GPU-b")});
  ASSERT_EQ(changes.size(), 1u);
  EXPECT_EQ(changes[0].uuid, "GPU-a");
  ASSERT_EQ(table.all().size(), 2u);
  EXPECT_TRUE(table.find("GPU-a")->trouble.starts_with("lost:")) << table.find("GPU-a")->trouble;
  EXPECT_EQ(table.find("GPU-a")->memory_bytes, 80u);
  EXPECT_EQ(table.find("GPU-b")->trouble, "");
  table.update(std::vector{listed(0, "GPU-a"), listed(1, "GPU-b")});
  EXPECT_EQ(table.find("GPU-a")->trouble, "") << "it is back";
  EXPECT_EQ(table.all().size(), 2u);
}

TEST(DeviceTable, gives_a_card_that_was_lost_before_it_was_seen_its_name_when_it_comes_back) {
  DeviceTable table;
  table.update(std::vector{listed(0, "GPU-lost-0", "unnamed"), listed(1, "GPU-b")});
  ASSERT_EQ(table.all().size(), 2u);
  EXPECT_TRUE(table.places()[0].unusable.starts_with("lost:"));
  table.update(std::vector{listed(0, "GPU-a"), listed(1, "GPU-b")});
  ASSERT_EQ(table.all().size(), 2u);
  EXPECT_EQ(table.find("GPU-lost-0"), nullptr);
  EXPECT_EQ(table.find("GPU-a")->index, 0);
  EXPECT_EQ(table.places()[0].unusable, "");
}

TEST(DeviceTable, does_not_take_a_card_that_is_lost_for_well_because_it_is_listed) {
  DeviceTable table;
  table.update(std::vector{listed(0, "GPU-a")});
  table.update(std::vector{listed(0, "GPU-a", "true")});
  EXPECT_TRUE(table.find("GPU-a")->trouble.starts_with("lost:"));
  table.update(std::vector{listed(0, "GPU-a", "true")});
  EXPECT_FALSE(table.find("GPU-a")->trouble.empty());
}

}  // namespace
}  // namespace tensor_fusion::node::hypervisor
