#include "node/hypervisor/escape.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <string>

namespace tensor_fusion::node::hypervisor {
namespace {

std::string maps(std::initializer_list<const char*> files) {
  std::string text =
      "00400000-00401000 r--p 00000000 00:01 5                  /usr/bin/python\n7ffd0000-7ffd1000 rw-p 00000000 00:00 "
      "0     [stack]\n";
  for (const char* file : files) text += std::string("7f000000-7f001000 r-xp 00000000 00:01 7      ") + file + "\n";
  return text;
}

constexpr const char* kLimiter = "/run/tensor-fusion/libtensor_fusion_limiter.so";
constexpr const char* kClaim = "/run/tensor-fusion/slice/claim";
constexpr const char* kDriver = "/usr/lib/libcuda.so.550.54.15";

TEST(Escape, is_a_process_without_the_limiter_or_with_a_driver_that_it_never_met) {
  EXPECT_TRUE(is_past_the_limiter(maps({})));
  EXPECT_TRUE(is_past_the_limiter(maps({kDriver})));
  EXPECT_TRUE(is_past_the_limiter(maps({kLimiter, kDriver}))) << "its look-ups were led elsewhere";
}

TEST(Escape, is_none_where_the_limiter_is_at_work_or_has_nothing_to_do_with_it) {
  EXPECT_FALSE(is_past_the_limiter(maps({kLimiter, kDriver, kClaim})));
  EXPECT_FALSE(is_past_the_limiter(maps({kLimiter, "/usr/lib/libEGL_nvidia.so.550"}))) << "graphics";
}

TEST(Escape, is_seen_in_a_process) {
  EXPECT_TRUE(has_escaped(::getpid()));
  EXPECT_FALSE(has_escaped(2'000'000'000)) << "there is none";
}

}  // namespace
}  // namespace tensor_fusion::node::hypervisor
