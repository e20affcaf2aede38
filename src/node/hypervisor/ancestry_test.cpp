#include "node/hypervisor/ancestry.h"

#include <gtest/gtest.h>

#include <map>
#include <optional>

namespace tensor_fusion::node::hypervisor {
namespace {

TEST(Ancestry, goes_up_by_numbers_and_ends_where_a_number_is_another_process_by_now) {
  std::map<pid_t, SeenProcess> all = {{10, {10, 1, 100, 0}}, {20, {20, 10, 200, 0}}, {30, {30, 20, 300, 0}}};
  const auto find = [&](pid_t pid) { return all.contains(pid) ? std::optional(all[pid]) : std::nullopt; };
  const auto descends_from = [&](pid_t above) {
    return any_of_line(all[30], find, [&](const SeenProcess& one) { return one.pid == above; });
  };
  EXPECT_TRUE(descends_from(30));
  EXPECT_TRUE(descends_from(20));
  EXPECT_TRUE(descends_from(10));
  EXPECT_FALSE(descends_from(1));
  all[20].start_ticks = 301;
  EXPECT_FALSE(descends_from(20)) << "its parent has died since, and this one was given the number";
  EXPECT_FALSE(descends_from(10));
}

}  // namespace
}  // namespace tensor_fusion::node::hypervisor
