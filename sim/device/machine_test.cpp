#include "sim/device/machine.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include <algorithm>
#include <fstream>
#include <thread>

#include "sim/device/account.h"
#include "sim/device/context.h"
#include "sim/device/kill_point.h"
#include "sim/device/memory.h"
#include "sim/device/state.h"
#include "sim/device/test_machine.h"

namespace tensor_fusion::sim::device {
namespace {

constexpr std::uint64_t kMs = 1'000'000;

Work kernel(std::uint64_t ns) { return {.kind = WorkKind::compute, .duration_ns = ns}; }

TEST(Machine, is_made_once_by_many_processes_at_the_same_time) {
  const TestDirectory directory;
  int line[2];
  ASSERT_EQ(::pipe(line), 0);
  std::vector<pid_t> children;
  for (int i = 0; i < 16; ++i) {
    children.push_back(start_child([&] {
      auto machine = directory.attach("2xh100");
      if (!machine) return 1;
      const std::uint64_t made = (*machine)->state().made_ns;
      return ::write(line[1], &made, sizeof(made)) == sizeof(made) && (*machine)->device_count() == 2 ? 0 : 2;
    }));
  }
  auto machine = directory.attach("2xh100");
  ASSERT_TRUE(machine) << machine.error().message;
  for (const pid_t pid : children) EXPECT_EQ(join_child(pid), 0);
  for (std::size_t i = 0; i < children.size(); ++i) {
    std::uint64_t made = 0;
    ASSERT_EQ(::read(line[0], &made, sizeof(made)), static_cast<ssize_t>(sizeof(made)));
    EXPECT_EQ(made, (*machine)->state().made_ns);
  }
  ::close(line[0]);
  ::close(line[1]);
}

TEST(Machine, comes_up_whole_after_its_maker_was_killed_at_any_step) {
  int killed = 0;
  for (int step = 1; step < 100; ++step) {
    const TestDirectory directory;
    const int code = join_child(start_child([&] {
      kill_countdown = step;
      return directory.attach("h100,2xtiny") ? 0 : 1;
    }));
    auto machine = directory.attach("h100,2xtiny");
    ASSERT_TRUE(machine) << machine.error().message;
    EXPECT_EQ((*machine)->visible_devices().size(), 3u) << "killed at step " << step;
    if (code == 0) break;
    ASSERT_EQ(code, 128 + SIGKILL);
    ++killed;
  }
  EXPECT_GT(killed, 8);
}

TEST(Machine, of_another_description_is_refused_while_in_use_and_remade_when_not) {
  const TestDirectory directory;
  {
    auto machine = directory.attach("2xh100");
    ASSERT_TRUE(machine);
    auto other = directory.attach("t4");
    ASSERT_FALSE(other);
    EXPECT_EQ(other.error().code, Errc::spec_conflict);
    EXPECT_NE(other.error().message.find("'2xh100'"), std::string::npos) << other.error().message;
    EXPECT_NE(other.error().message.find("'t4'"), std::string::npos);
    EXPECT_EQ(join_child(start_child([&] { return directory.attach("t4") ? 0 : 1; })), 1);
  }
  auto other = directory.attach("t4");
  ASSERT_TRUE(other) << other.error().message;
  EXPECT_STREQ((*other)->device(0).profile.name, "Tesla T4");
}

TEST(Machine, without_a_description_is_the_one_that_is_there_or_none) {
  const TestDirectory directory;
  auto none = directory.attach("");
  ASSERT_FALSE(none);
  EXPECT_EQ(none.error().code, Errc::no_device);
  auto made = directory.attach("tiny");
  ASSERT_TRUE(made);
  auto same = directory.attach("");
  ASSERT_TRUE(same);
  EXPECT_EQ((*same)->device_count(), 1u);
}

TEST(Machine, refuses_a_broken_state_file_only_without_a_description) {
  const TestDirectory directory;
  {
    ASSERT_TRUE(directory.attach("tiny"));
  }
  {
    std::ofstream(directory.path() + "/state", std::ios::trunc) << "rubbish";
  }
  EXPECT_FALSE(directory.attach(""));
  auto remade = directory.attach("tiny");
  ASSERT_TRUE(remade) << remade.error().message;
}

TEST(Machine, of_another_version_is_not_torn_from_under_its_users) {
  const TestDirectory directory;
  int line[2];
  ASSERT_EQ(::pipe(line), 0);
  const pid_t child = start_child([&] {
    auto mine = directory.attach("tiny");
    if (!mine || ::write(line[1], "x", 1) != 1) return 1;
    ::pause();
    return 0;
  });
  char byte = 0;
  ASSERT_EQ(::read(line[0], &byte, 1), 1);
  const std::string state = directory.path() + "/state";
  ASSERT_EQ(::rename(state.c_str(), (state + ".old").c_str()), 0);
  {
    std::ofstream(state) << "of another layout";
  }
  auto refused = directory.attach("tiny");
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, Errc::spec_conflict);
  ::kill(child, SIGKILL);
  join_child(child);
  EXPECT_TRUE(directory.attach("tiny"));
  ::close(line[0]);
  ::close(line[1]);
}

TEST(Machine, shows_a_process_only_the_devices_whose_files_it_can_open) {
  const TestDirectory directory;
  auto machine = directory.attach("3xtiny");
  ASSERT_TRUE(machine);
  EXPECT_EQ((*machine)->visible_devices(), (std::vector<unsigned>{0, 1, 2}));
  ASSERT_EQ(::unlink((directory.path() + "/nvidia1").c_str()), 0);
  EXPECT_EQ((*machine)->visible_devices(), (std::vector<unsigned>{0, 2}));
  ASSERT_EQ(::unlink((directory.path() + "/nvidia2").c_str()), 0);
  ASSERT_EQ(::symlink("/dev/null", (directory.path() + "/nvidia2").c_str()), 0);  // opens, but is no card
  EXPECT_EQ((*machine)->visible_devices(), (std::vector<unsigned>{0}));
  auto refused = Context::create(**machine, 1 * kEnginesPerDevice);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, Errc::no_permission);
  ASSERT_EQ(::unlink((directory.path() + "/nvidiactl").c_str()), 0);
  EXPECT_TRUE((*machine)->visible_devices().empty());
}

TEST(Machine, attaches_in_less_than_a_millisecond) {
  const TestDirectory directory;
  auto keeper = directory.attach("8xh100");
  ASSERT_TRUE(keeper);
  std::uint64_t best = ~std::uint64_t{0};
  for (int i = 0; i < 20; ++i) {
    const std::uint64_t start = now_ns();
    auto machine = directory.attach("8xh100");
    best = std::min(best, now_ns() - start);
    ASSERT_TRUE(machine);
  }
  EXPECT_LT(best, 1 * kMs);
}

TEST(Context, tells_exact_device_times_and_waits_for_them) {
  const TestDirectory directory;
  auto machine = directory.attach("tiny");
  ASSERT_TRUE(machine);
  auto context = Context::create(**machine, 0);
  ASSERT_TRUE(context) << context.error().message;
  Ticket last = 0;
  for (int i = 0; i < 10; ++i) last = context->submit(0, kernel(1 * kMs));
  const auto event = context->allocate_event();
  ASSERT_TRUE(event);
  const Ticket marker = context->submit(0, {.kind = WorkKind::marker, .event = *event});
  EXPECT_FALSE(context->done(marker));
  EXPECT_FALSE(context->wait(marker, now_ns()));
  ASSERT_TRUE(context->wait(marker));
  EXPECT_GE(now_ns(), context->span(last)->end_ns);
  EXPECT_EQ(context->span(last)->end_ns - context->span(make_ticket(0, 1))->start_ns, 10 * kMs);
  EXPECT_EQ(context->event_time_ns(*event), context->span(last)->end_ns);
  const EngineAccount truth = account(**machine, 0);
  ASSERT_EQ(truth.contexts.size(), 1u);
  EXPECT_EQ(truth.contexts[0].service_ns, 10 * kMs);
  EXPECT_EQ(truth.contexts[0].kernels, 10u);
}

TEST(Context, blocks_a_submitter_at_a_full_lane_until_there_is_room) {
  const TestDirectory directory;
  auto machine = directory.attach("tiny");
  ASSERT_TRUE(machine);
  auto context = Context::create(**machine, 0);
  ASSERT_TRUE(context);
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

TEST(Context, host_side_delay_of_a_duration_is_no_idle_time_of_the_device) {
  const TestDirectory directory;
  auto machine = directory.attach("tiny");
  ASSERT_TRUE(machine);
  auto context = Context::create(**machine, 0);
  ASSERT_TRUE(context);
  Ticket first = 0, last = 0;
  for (int i = 0; i < 50; ++i) {
    last = context->submit(0, kernel(kUnknownNs));
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
  const Ticket first = a->submit(0, kernel(5 * kMs));
  b->submit(0, {.kind = WorkKind::wait, .after = {a->id(), first}});
  const Ticket second = b->submit(0, kernel(1 * kMs));
  a->submit(0, {.kind = WorkKind::wait, .after = {b->id(), second}});
  const Ticket third = a->submit(0, kernel(1 * kMs));
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
  const std::uint64_t start = now_ns() + 1 * kMs;
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

TEST(Context, gates_and_events_reach_another_process) {
  const TestDirectory directory;
  auto machine = directory.attach("tiny");
  ASSERT_TRUE(machine);
  auto context = Context::create(**machine, 0);
  ASSERT_TRUE(context);
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
  int line[2];
  ASSERT_EQ(::pipe(line), 0);
  const pid_t child = start_child([&] {
    auto mine = directory.attach("");
    auto context = Context::create(**mine, 0);
    if (!context || !reserve_memory(**mine, 0, 100 << 20)) return 1;
    const Ticket done = context->submit(0, kernel(3 * kMs));
    if (!context->wait(done)) return 2;
    context->submit(0, kernel(kUnknownNs));  // owed for ever
    (*mine)->advance(0, now_ns() + kMs);
    if (::write(line[1], "x", 1) != 1) return 3;
    ::pause();
    return 0;
  });
  char byte = 0;
  ASSERT_EQ(::read(line[0], &byte, 1), 1);
  EXPECT_GE(memory_info(**machine, 0).used_bytes, 100u << 20);
  ::kill(child, SIGKILL);  // not yet waited for: a zombie holds nothing either
  auto context = Context::create(**machine, 0);
  ASSERT_TRUE(context);
  const Ticket mine = context->submit(0, kernel(1 * kMs));
  EXPECT_TRUE(context->wait(mine, now_ns() + 2000 * kMs));
  (*machine)->reap();
  EXPECT_EQ(memory_info(**machine, 0).used_bytes, (*machine)->device(0).profile.context_overhead_bytes);
  join_child(child);
  const EngineAccount truth = account(**machine, 0);
  const auto gone = std::find_if(truth.processes.begin(), truth.processes.end(),
                                 [&](const ProcessAccount& p) { return p.pid == static_cast<std::uint32_t>(child); });
  ASSERT_NE(gone, truth.processes.end());
  EXPECT_FALSE(gone->alive);
  EXPECT_EQ(gone->service_ns, 3 * kMs);
  ::close(line[0]);
  ::close(line[1]);
}

TEST(Context, is_not_its_forked_childs_to_destroy) {
  const TestDirectory directory;
  auto machine = directory.attach("tiny");
  ASSERT_TRUE(machine);
  auto context = Context::create(**machine, 0);
  ASSERT_TRUE(context);
  join_child(start_child([&] {
    {
      const Context taken = std::move(*context);
    }
    machine->reset();
    return 0;
  }));
  EXPECT_TRUE(context->wait(context->submit(0, kernel(100'000))));
}

// A process dies at every single step of a life on the device; whoever is left can always go on.
TEST(Machine, survives_a_process_killed_at_every_step) {
  const TestDirectory directory;
  auto machine = directory.attach("2xtiny");
  ASSERT_TRUE(machine);
  auto context = Context::create(**machine, 0);
  ASSERT_TRUE(context);
  const std::uint64_t mine = memory_info(**machine, 0).used_bytes;
  int killed = 0;
  bool survived = false;
  for (int step = 1; step < 3000 && !survived; step += step < 150 ? 1 : 7) {
    const pid_t child = start_child([&] {
      kill_countdown = step;
      auto m = directory.attach("");
      if (!m) return 1;
      auto c = Context::create(**m, 0);
      if (!c) return 2;
      auto peer = Context::create(**m, kEnginesPerDevice);
      if (!peer) return 3;
      if (!reserve_memory(**m, 0, 1 << 20)) return 4;
      const Ticket a = c->submit(0, kernel(20'000));
      const Ticket b = c->submit(1, {.kind = WorkKind::h2d, .duration_ns = 10'000});
      peer->submit(0, {.kind = WorkKind::wait, .after = {c->id(), a}});
      const Ticket p = peer->submit(0, kernel(10'000));
      if (!c->wait(a) || !c->wait(b) || !peer->wait(p)) return 5;
      return release_memory(**m, 0, 1 << 20) ? 0 : 6;
    });
    // We work at the same time, and again after its death.
    ASSERT_TRUE(context->wait(context->submit(0, kernel(20'000)), now_ns() + 5000 * kMs)) << "step " << step;
    const int code = join_child(child);
    ASSERT_TRUE(code == 0 || code == 128 + SIGKILL) << "step " << step << " code " << code;
    ASSERT_TRUE(context->wait(context->submit(0, kernel(20'000)), now_ns() + 5000 * kMs)) << "step " << step;
    (*machine)->reap();
    ASSERT_EQ(memory_info(**machine, 0).used_bytes, mine) << "step " << step;
    ASSERT_EQ(memory_info(**machine, 1 * kEnginesPerDevice).used_bytes, 0u) << "step " << step;
    ASSERT_EQ(account(**machine, 0).contexts.size(), 1u) << "step " << step;
    const EngineAccount truth = account(**machine, 0);
    std::uint64_t service = 0;
    for (const auto& p : truth.processes) service += p.service_ns;
    ASSERT_EQ(service, truth.busy_ns) << "step " << step;
    ASSERT_EQ(truth.busy_ns + truth.switch_ns + truth.idle_ns, truth.clock_ns - truth.created_ns);
    survived = code == 0;
    if (!survived) ++killed;
  }
  EXPECT_TRUE(survived);
  EXPECT_GT(killed, 60);
}

TEST(Memory, never_exceeds_the_capacity_however_many_processes_race) {
  const TestDirectory directory;
  auto machine = directory.attach("tiny");
  ASSERT_TRUE(machine);
  std::vector<pid_t> children;
  for (unsigned i = 0; i < 8; ++i) {
    children.push_back(start_child([&, i] {
      auto m = directory.attach("");
      if (!m) return 1;
      std::uint64_t held = 0;
      std::uint64_t random = 88172645463325252ull + i;
      for (int n = 0; n < 20'000; ++n) {
        random ^= random << 13;
        random ^= random >> 7;
        random ^= random << 17;
        const std::uint64_t bytes = (random % 300) << 20;
        if (reserve_memory(**m, 0, bytes)) held += bytes;
        if (random % 3 == 0 && held != 0) {
          if (!release_memory(**m, 0, held)) return 2;
          held = 0;
        }
      }
      return held == 0 || release_memory(**m, 0, held) ? 0 : 3;
    }));
  }
  for (const pid_t pid : children) EXPECT_EQ(join_child(pid), 0);
  const MemoryInfo info = memory_info(**machine, 0);
  EXPECT_EQ(info.used_bytes, 0u);
  EXPECT_LE(info.peak_bytes, info.capacity_bytes);
  EXPECT_GT(info.refused, 0u);
}

TEST(Memory, refuses_to_take_back_more_than_was_given) {
  const TestDirectory directory;
  auto machine = directory.attach("tiny");
  ASSERT_TRUE(machine);
  ASSERT_TRUE(reserve_memory(**machine, 0, 4096));
  EXPECT_FALSE(release_memory(**machine, 0, 4097));
  EXPECT_FALSE(reserve_memory(**machine, 0, ~std::uint64_t{0}));
  EXPECT_TRUE(release_memory(**machine, 0, 4096));
  EXPECT_EQ(memory_info(**machine, 0).peak_bytes, 4096u);
}

TEST(Account, two_processes_share_the_device_evenly) {
  const TestDirectory directory;
  auto machine = directory.attach("tiny");
  ASSERT_TRUE(machine);
  const auto body = [&] {
    auto m = directory.attach("");
    auto c = Context::create(**m, 0);
    if (!c) return 1;
    Ticket last = 0;
    for (int i = 0; i < 300; ++i) last = c->submit(0, kernel(1 * kMs));
    return c->wait(last, now_ns() + 400 * kMs) ? 2 : 0;  // not everything fits
  };
  const pid_t a = start_child(body), b = start_child(body);
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
  EXPECT_EQ(device[1].compute, 100u);
  const auto processes = process_utilisation(**machine, 0, 0);
  ASSERT_GE(processes.size(), 2u);
  EXPECT_EQ(processes[1].pid, static_cast<std::uint32_t>(::getpid()));
  EXPECT_TRUE(process_utilisation(**machine, 0, processes.back().timestamp_us).empty() ||
              process_utilisation(**machine, 0, processes.back().timestamp_us).front().timestamp_us >
                  processes.back().timestamp_us);
}

}  // namespace
}  // namespace tensor_fusion::sim::device
