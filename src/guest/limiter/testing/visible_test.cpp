#include "guest/limiter/hooks/visible.h"

#include <gtest/gtest.h>

#include <cstring>
#include <memory>
#include <string>

namespace tensor_fusion::guest::limiter {
namespace {

class VisibleDevices : public ::testing::Test {
 protected:
  VisibleDevices() {
    const char* uuids[] = {"GPU-aaaaaaaa-0000-0000-0000-000000000001", "GPU-aaaabbbb-0000-0000-0000-000000000002",
                           "MIG-cccccccc-0000-0000-0000-000000000003"};
    for (int i = 0; i < 3; ++i) std::strncpy(grant->devices[i].uuid, uuids[i], contract::kUuidLength - 1);
    grant->device_count = 3;
  }
  std::string list(const char* asked) { return visible_list(*grant, asked).letters; }
  std::string one(int row) { return grant->devices[row].uuid; }
  std::unique_ptr<contract::GrantPage> grant = std::make_unique<contract::GrantPage>();
};

TEST_F(VisibleDevices, without_a_wish_holds_all_that_is_granted) {
  EXPECT_EQ(list(nullptr), one(0) + "," + one(1) + "," + one(2));
}

TEST_F(VisibleDevices, numbers_count_the_granted_devices) {
  EXPECT_EQ(list("1"), one(1));
  EXPECT_EQ(list("2,0"), one(2) + "," + one(0));
  EXPECT_EQ(list(" 1 , 0 "), one(1) + "," + one(0));
}

TEST_F(VisibleDevices, names_may_be_shortened_and_in_any_case) {
  EXPECT_EQ(list("GPU-aaaabbbb"), one(1));
  EXPECT_EQ(list("gpu-AAAABBBB-0000-0000-0000-000000000002"), one(1));
  EXPECT_EQ(list("MIG-cccccccc-0000-0000-0000-000000000003"), one(2));
}

TEST_F(VisibleDevices, ends_at_the_first_entry_that_means_nothing) {
  EXPECT_EQ(list("0,7,1"), one(0));
  EXPECT_EQ(list("-1"), "");
  EXPECT_EQ(list(""), "");
  EXPECT_EQ(list("GPU-ffffffff,0"), "");
  EXPECT_EQ(list("0,0,1"), one(0));
  EXPECT_EQ(list("99999999999999999999"), "");
  EXPECT_EQ(list("GPU-"), "");
}

TEST_F(VisibleDevices, survives_a_page_of_garbage) {
  std::memset(static_cast<void*>(grant->devices), 'x', sizeof grant->devices);
  grant->device_count = 4'000'000'000;
  EXPECT_LT(visible_list(*grant, nullptr).length, sizeof(VisibleList));
}

}  // namespace
}  // namespace tensor_fusion::guest::limiter
