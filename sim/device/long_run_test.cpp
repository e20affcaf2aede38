#include "sim/device/long_run.h"

#include "sim/device/test_machine.h"

namespace tensor_fusion::sim::device {
namespace {

Work unknown() {
  Work work;
  work.kind = WorkKind::compute;
  work.duration_ns = kUnknownNs;
  return work;
}
Work known(std::uint64_t ns) {
  Work work = unknown();
  work.duration_ns = ns;
  return work;
}

}  // namespace

TEST(LongRun, lets_others_have_their_slices_and_ends_when_its_work_is_over) {
  const TestDirectory directory;
  auto machine = directory.attach("tiny");
  ASSERT_TRUE(machine);
  auto endless = Context::create(**machine, 0), other = Context::create(**machine, 0);
  ASSERT_TRUE(endless && other);
  const Ticket first = endless->submit(0, unknown());
  const Ticket second = other->submit(0, known(20'000'000));
  ASSERT_FALSE(other->wait(second, now_ns() + 50'000'000));  // the clock stands at the first one's beginning
  const std::uint64_t give_up = now_ns() + 30'000'000'000;
  while (!other->poll(second) && now_ns() < give_up) keep_running(**machine, *endless, first, 5'000'000);
  ASSERT_TRUE(other->done(second));
  const auto span = other->span(second);
  ASSERT_TRUE(span);
  EXPECT_GT(span->end_ns - span->start_ns, 36'000'000U);  // every other slice was the first one's
  EXPECT_FALSE(endless->poll(first));
  endless->publish_duration(first, 1000);
  EXPECT_TRUE(endless->wait(first, now_ns() + 10'000'000'000));  // at once: it has had more
  keep_running(**machine, *endless, first, 5'000'000);           // says nothing of what is over
  EXPECT_TRUE(endless->done(first));
}

}  // namespace tensor_fusion::sim::device
