#include "sim/device/context.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <thread>

#include "sim/device/account.h"
#include "sim/device/memory.h"
#include "sim/device/state.h"
#include "sim/device/test_machine.h"

namespace tensor_fusion::sim::device {
namespace {

using ContextOnACard = OnTinyCard;

TEST_F(ContextOnACard, tells_exact_device_times_and_waits_for_them) {
  Ticket last = 0;
  const std::uint64_t begin = now_ns();
  for (int i = 0; i < 10; ++i) last = context->submit(0, kernel(1 * kMs));
  const auto event = context->allocate_event();
  ASSERT_TRUE(event);
  const Ticket marker = context->submit(0, {.kind = WorkKind::marker, .event = *event});
  // A busy host may come here when all is over, and not before.
  EXPECT_TRUE(!context->done(marker) || now_ns() >= begin + 10 * kMs);
  EXPECT_TRUE(!context->wait(marker, now_ns()) || now_ns() >= begin + 10 * kMs);
  ASSERT_TRUE(context->wait(marker));
  EXPECT_GE(now_ns(), context->span(last)->end_ns);
  EXPECT_EQ(context->span(last)->end_ns - context->span(make_ticket(0, 1))->start_ns, 10 * kMs);
  EXPECT_EQ(context->event_time_ns(*event), context->span(last)->end_ns);
  const EngineAccount truth = account(**machine, 0);
  ASSERT_EQ(truth.contexts.size(), 1u);
  EXPECT_EQ(truth.contexts[0].service_ns, 10 * kMs);
  EXPECT_EQ(truth.contexts[0].kernels, 10u);
}

TEST_F(ContextOnACard, blocks_a_submitter_at_a_full_lane_until_there_is_room) {
  const Ticket gate = context->submit(3, {.kind = WorkKind::gate});
  for (std::uint32_t i = 1; i < kLaneDepth; ++i) ASSERT_NE(context->try_submit(3, kernel(20'000)), 0u);
  EXPECT_EQ(context->try_submit(3, kernel(20'000)), 0u);
  EXPECT_NE(context->try_submit(4, kernel(20'000)), 0u);  // only that lane is full
  std::thread host([&] { context->open_gate(gate); });
  const Ticket last = context->submit(3, kernel(20'000));
  host.join();
  EXPECT_EQ(ticket_number(last), kLaneDepth + 1u);
  EXPECT_TRUE(context->wait(last));
}

TEST_F(ContextOnACard, host_side_delay_of_a_duration_is_no_idle_time_of_the_device) {
  Ticket first = 0, last = 0;
  Work owed = kernel(kUnknownNs);
  owed.arrival_ns = now_ns();  // all at once: how long it takes this test to say so is no time of the device either
  for (int i = 0; i < 50; ++i) {
    last = context->submit(0, owed);
    if (first == 0) first = last;
  }
  std::thread publisher([&] {
    for (std::uint64_t n = 1; n <= 50; ++n) {
      (*machine)->advance(0);
      context->publish_duration(make_ticket(0, n), 200'000);
    }
  });
  ASSERT_TRUE(context->wait(last));
  publisher.join();
  EXPECT_EQ(context->span(last)->end_ns - context->span(first)->start_ns, 50 * 200'000u);
}

TEST(Context, a_lane_that_waits_for_another_card_goes_on_exactly_when_that_is_done) {
  const TestDirectory directory;
  auto machine = directory.attach("2xtiny");
  ASSERT_TRUE(machine);
  auto a = Context::create(**machine, 0);
  auto b = Context::create(**machine, kEnginesPerDevice);
  ASSERT_TRUE(a && b);
  const std::uint64_t start = now_ns() + 200 * kMs;  // all of it is there by then
  const auto from_start = [&](std::uint64_t ns) {
    Work work = kernel(ns);
    work.arrival_ns = start;
    return work;
  };
  const Ticket first = a->submit(0, from_start(5 * kMs));
  b->submit(0, {.kind = WorkKind::wait, .after = {a->id(), first}, .arrival_ns = start});
  const Ticket second = b->submit(0, from_start(1 * kMs));
  a->submit(0, {.kind = WorkKind::wait, .after = {b->id(), second}, .arrival_ns = start});
  const Ticket third = a->submit(0, from_start(1 * kMs));
  ASSERT_TRUE(b->wait(second));
  EXPECT_EQ(b->span(second)->start_ns, a->span(first)->end_ns);
  ASSERT_TRUE(a->wait(third));
  EXPECT_EQ(a->span(third)->start_ns, b->span(second)->end_ns);
}

TEST(Context, cards_that_wait_for_each_other_in_turns_lose_no_time) {
  const TestDirectory directory;
  auto machine = directory.attach("3xtiny");
  ASSERT_TRUE(machine);
  std::vector<Context> ring;
  for (unsigned d = 0; d < 3; ++d) ring.push_back(*Context::create(**machine, d * kEnginesPerDevice));
  const std::uint64_t start = now_ns() + 200 * kMs;  // all of it is there by then
  Dependency before;
  std::vector<Ticket> hops;
  for (unsigned i = 0; i < 60; ++i) {  // a baton that goes round, beside work of each card's own
    Context& card = ring[i % 3];
    card.submit(0, {.kind = WorkKind::wait, .after = before, .arrival_ns = start});
    const Ticket hop =
        card.submit(0, {.kind = WorkKind::compute, .duration_ns = 50'000, .width = 0.5F, .arrival_ns = start});
    card.submit(1, {.kind = WorkKind::compute, .duration_ns = 70'000, .width = 0.5F, .arrival_ns = start});
    before = {card.id(), hop};
    hops.push_back(hop);
  }
  ASSERT_TRUE(ring[59 % 3].wait(hops.back()));
  for (unsigned i = 0; i < 60; ++i) {
    EXPECT_EQ(ring[i % 3].span(hops[i])->end_ns, start + (i + 1) * 50'000) << i;
  }
}

TEST_F(ContextOnACard, gates_and_events_reach_another_process) {
  const auto event = context->allocate_event();
  const Ticket gate = context->submit(0, {.kind = WorkKind::gate});
  const Ticket marker = context->submit(0, {.kind = WorkKind::marker, .event = *event});
  int line[2];
  ASSERT_EQ(::pipe(line), 0);
  const pid_t child = start_child([&] {
    auto mine = directory.attach("");
    if (!mine) return 1;
    if (remote_done(**mine, {context->id(), marker})) return 2;
    if (::write(line[1], "x", 1) != 1) return 3;  // it may be opened now
    if (!remote_wait(**mine, {context->id(), marker})) return 4;
    return remote_event_time_ns(**mine, context->id(), *event) != 0 ? 0 : 5;
  });
  char byte = 0;
  ASSERT_EQ(::read(line[0], &byte, 1), 1);
  EXPECT_FALSE(context->wait(marker, now_ns() + 1 * kMs));
  context->open_gate(gate);
  ASSERT_TRUE(context->wait(marker));
  EXPECT_EQ(join_child(child), 0);
  ::close(line[0]);
  ::close(line[1]);
}

TEST(Context, a_killed_process_leaves_nothing_but_its_account) {
  const TestDirectory directory;
  auto machine = directory.attach("tiny");
  ASSERT_TRUE(machine);
  StayingChild child([&](const StayingChild::Stay& stay) {
    auto mine = directory.attach("");
    auto context = Context::create(**mine, 0);
    if (!context || !reserve_memory(**mine, 0, 100 << 20)) return 1;
    const Ticket done = context->submit(0, kernel(3 * kMs));
    if (!context->wait(done)) return 2;
    context->submit(0, kernel(kUnknownNs));  // owed for ever
    (*mine)->advance(0, now_ns() + kMs);
    return stay();
  });
  ASSERT_TRUE(child.stays());
  EXPECT_GE(memory_info(**machine, 0).used_bytes, 100u << 20);
  const pid_t pid = child.pid();
  child.kill();  // not yet waited for: a zombie holds nothing either
  auto context = Context::create(**machine, 0);
  ASSERT_TRUE(context);
  const Ticket mine = context->submit(0, kernel(1 * kMs));
  EXPECT_TRUE(context->wait(mine, now_ns() + 8000 * kMs)) << "and not by waiting until the dead one's is given up";
  (*machine)->reap();
  EXPECT_EQ(memory_info(**machine, 0).used_bytes, (*machine)->device(0).profile.context_overhead_bytes);
  child.end();
  const EngineAccount truth = account(**machine, 0);
  const auto gone = std::find_if(truth.processes.begin(), truth.processes.end(),
                                 [&](const ProcessAccount& p) { return p.pid == static_cast<std::uint32_t>(pid); });
  ASSERT_NE(gone, truth.processes.end());
  EXPECT_FALSE(gone->alive);
  EXPECT_EQ(gone->service_ns, 3 * kMs);
}

TEST_F(ContextOnACard, is_not_its_forked_childs_to_destroy) {
  join_child(start_child([&] {
    {
      const Context taken = std::move(*context);
    }
    machine->reset();
    return 0;
  }));
  EXPECT_TRUE(context->wait(context->submit(0, kernel(100'000))));
}

}  // namespace
}  // namespace tensor_fusion::sim::device
