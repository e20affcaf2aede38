#include "guest/limiter/core/event_clock.h"

#include <vector>

#include "guest/limiter/core/gate_fixture.h"

namespace tensor_fusion::guest::limiter {
namespace {

using EventClockTest = Gate;  // its driver

CUstream stream() { return reinterpret_cast<CUstream>(0x7000); }

TEST_F(EventClockTest, bounds_its_base_from_both_sides_and_moves_no_bound_further_than_it_must) {
  EventClock clock;
  clock.begin(reinterpret_cast<CUcontext>(kContext));
  ASSERT_TRUE(clock.start(stream(), 1000));
  EXPECT_EQ(clock.narrow(1200, 1400), 1300);
  EXPECT_EQ(clock.narrow(1100, 1500), 1300) << "what is wider says nothing new";
  EXPECT_EQ(clock.narrow(1250, 1300), 1275);
  EXPECT_EQ(clock.narrow(1000, 1200), 1200) << "against what was known: the newest word counts, and no more of it";
  EXPECT_EQ(clock.narrow(1300, 1400), 1300);
}

TEST_F(EventClockTest, has_no_more_events_than_it_may_and_gives_out_again_what_came_back) {
  EventClock clock;
  clock.begin(reinterpret_cast<CUcontext>(kContext));
  std::vector<CUevent> events;
  while (CUevent event = clock.take()) events.push_back(event);
  EXPECT_EQ(events.size(), EventClock::kEvents);
  EXPECT_FALSE(clock.start(stream(), 1)) << "there is no event to start it by";
  EXPECT_FALSE(clock.started());
  clock.give(events.back());
  EXPECT_EQ(clock.take(), events.back());
  clock.end();
  clock.begin(reinterpret_cast<CUcontext>(kContext));
  EXPECT_NE(clock.take(), nullptr) << "those of the context before are gone with it";
}

TEST_F(EventClockTest, tells_the_same_moment_by_a_new_base_as_by_the_old_one) {
  EventClock clock;
  clock.begin(reinterpret_cast<CUcontext>(kContext));
  const std::uint64_t began = os::monotonic_ns();
  ASSERT_TRUE(clock.start(stream(), began));
  const auto moment = [&](CUevent event) {
    std::int64_t since = 0;
    EXPECT_TRUE(clock.tell(event, since));
    return clock.narrow(static_cast<std::int64_t>(began), static_cast<std::int64_t>(began) + 40'000) + since;
  };
  CUevent event = clock.take();
  ASSERT_EQ(event_record(event, stream()), CUDA_SUCCESS);
  const std::int64_t by_the_old = moment(event);
  EXPECT_FALSE(clock.renew(stream(), began + 900 * kMs)) << "it is young";
  EXPECT_FALSE(clock.renew(stream(), began + 1'100 * kMs)) << "the next one has only been recorded";
  EXPECT_TRUE(clock.renew(stream(), began + 1'101 * kMs));
  std::int64_t since = 0;
  EXPECT_TRUE(clock.tell(event, since));
  EXPECT_LE(since, 0) << "it lies before the new base";
  const std::int64_t by_the_new = clock.narrow(INT64_MIN / 2, INT64_MAX / 2) + since;
  EXPECT_NEAR(static_cast<double>(by_the_new), static_cast<double>(by_the_old), 40'000) << "what two clocks may drift";
}

}  // namespace
}  // namespace tensor_fusion::guest::limiter
