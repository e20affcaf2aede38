#include "sim/device/account.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>

#include "sim/device/context.h"
#include "sim/device/test_machine.h"

namespace tensor_fusion::sim::device {
namespace {

TEST(Account, two_processes_share_the_device_evenly) {
  const TestDirectory directory;
  auto machine = directory.attach("tiny");
  ASSERT_TRUE(machine);
  int ready[2], go[2];
  ASSERT_EQ(::pipe(ready), 0);
  ASSERT_EQ(::pipe(go), 0);
  const auto body = [&] {
    auto m = directory.attach("");
    auto c = Context::create(**m, 0);
    if (!c) return 1;
    std::uint64_t start = 0;  // the same for both, when both are here
    if (::write(ready[1], "x", 1) != 1 || ::read(go[0], &start, sizeof start) != sizeof start) return 3;
    Ticket last = 0;
    for (int i = 0; i < 300; ++i)
      last = c->submit(0, {.kind = WorkKind::compute, .duration_ns = 1 * kMs, .arrival_ns = start});
    return c->wait(last, start + 400 * kMs) ? 2 : 0;  // not everything fits
  };
  const pid_t a = start_child(body), b = start_child(body);
  char letter = 0;
  for (int i = 0; i < 2; ++i) ASSERT_EQ(::read(ready[0], &letter, 1), 1);
  const std::uint64_t starts[2] = {now_ns() + 200 * kMs, now_ns() + 200 * kMs};
  ASSERT_EQ(::write(go[1], starts, sizeof starts), static_cast<ssize_t>(sizeof starts));
  EXPECT_EQ(join_child(a), 0);
  EXPECT_EQ(join_child(b), 0);
  const EngineAccount truth = account(**machine, 0);
  ASSERT_EQ(truth.processes.size(), 2u);
  const auto x = static_cast<double>(truth.processes[0].service_ns);
  const auto y = static_cast<double>(truth.processes[1].service_ns);
  EXPECT_NEAR(x / (x + y), 0.5, 0.05);
}

TEST(Account, samples_utilisation_like_a_driver) {
  const TestDirectory directory;
  auto machine = directory.attach("tiny");
  ASSERT_TRUE(machine);
  auto context = Context::create(**machine, 0);
  ASSERT_TRUE(context);
  const Ticket last = context->submit(0, kernel(2 * kSampleWindowNs + kSampleWindowNs / 2));
  ASSERT_TRUE(context->wait(last));
  const auto device = utilisation(**machine, 0, 0);
  ASSERT_GE(device.size(), 2u);
  EXPECT_TRUE(std::ranges::any_of(device, [](const auto& one) { return one.compute == 100; }))
      << "of two windows and a half one at least is full";
  const auto processes = process_utilisation(**machine, 0, 0);
  ASSERT_GE(processes.size(), 2u);
  EXPECT_EQ(processes[1].pid, static_cast<std::uint32_t>(::getpid()));
  EXPECT_TRUE(process_utilisation(**machine, 0, processes.back().timestamp_us).empty() ||
              process_utilisation(**machine, 0, processes.back().timestamp_us).front().timestamp_us >
                  processes.back().timestamp_us);
}

}  // namespace
}  // namespace tensor_fusion::sim::device
