#include "sim/device/machine.h"

#include <gtest/gtest.h>
#include <signal.h>

#include <algorithm>
#include <fstream>

#include "sim/device/account.h"
#include "sim/device/context.h"
#include "sim/device/kill_point.h"
#include "sim/device/memory.h"
#include "sim/device/state.h"
#include "sim/device/test_machine.h"

namespace tensor_fusion::sim::device {
namespace {

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
  StayingChild child([&](const StayingChild::Stay& stay) { return directory.attach("tiny") ? stay() : 1; });
  ASSERT_TRUE(child.stays());
  const std::string state = directory.path() + "/state";
  ASSERT_EQ(::rename(state.c_str(), (state + ".old").c_str()), 0);
  {
    std::ofstream(state) << "of another layout";
  }
  auto refused = directory.attach("tiny");
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, Errc::spec_conflict);
  child.end();
  EXPECT_TRUE(directory.attach("tiny"));
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

}  // namespace
}  // namespace tensor_fusion::sim::device
