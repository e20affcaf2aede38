#include "node/hypervisor/end_watch.h"

#include <gtest/gtest.h>
#include <sched.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include "node/hypervisor/test_relay.h"
#include "node/hypervisor/test_slice.h"
#include "system/loop.h"

namespace tensor_fusion::node::hypervisor {
namespace {

TEST(EndWatch, looks_once_for_all_and_not_again_while_somebody_known_lives) {
  KeptNamespace where;
  const pid_t child = ::fork();
  if (child == 0) {
    if (::unshare(CLONE_NEWNS) != 0) std::_Exit(77);
    where.wait();
    for (;;) ::pause();
  }
  const bool can_be = where.keep();
  std::vector<Tenant> tenants(3);
  for (std::size_t i = 0; i < tenants.size(); ++i) {
    tenants[i].record.id = std::to_string(i);
    tenants[i].root_dead = true;
    tenants[i].record.mount_namespace = i == 1 ? where.number : i + 1;
  }
  const auto loop = system::Loop::make().value();
  unsigned looks = 0;
  std::vector<std::string> over;
  std::vector<unsigned> seen_by;  // which look
  EndWatch ends(*loop, {.all =
                            [&] {
                              ++looks;
                              return std::vector<Tenant*>{&tenants[0], &tenants[1], &tenants[2]};
                            },
                        .find = [&](const std::string& id) { return &tenants[std::stoul(id)]; },
                        .over = [&](Tenant& tenant) { over.push_back(tenant.record.id), seen_by.push_back(looks); }});
  const auto soon = [&](const std::function<bool()>& condition) {
    return eventually([&] {
      loop->run_once(5'000'000);
      return condition();
    });
  };
  for (const Tenant& tenant : tenants) ends.ask(tenant);
  if (can_be) {
    ASSERT_TRUE(soon([&] { return over.size() == 2; }));
    EXPECT_EQ(over, (std::vector<std::string>{"0", "2"}));
    EXPECT_EQ(seen_by[0], seen_by[1]);
    const unsigned before = looks;
    ends.ask(tenants[1]);
    bool later = false;
    loop->after(500'000'000, [&] { later = true; });
    EXPECT_TRUE(soon([&] { return later; }));
    EXPECT_EQ(looks, before);
  }
  ::kill(child, SIGKILL);
  ::waitpid(child, nullptr, 0);
  if (!can_be) GTEST_SKIP() << "no mount namespace can be made here";
  EXPECT_TRUE(soon([&] {  // as is asked each second, for others may hide what is their own
    ends.ask(tenants[1]);
    return over.size() == 3;
  }));
}

// Asked once: who asks again a second later keeps a slice's share for so long from whoever waits for it.
TEST(EndWatch, sees_that_nobody_is_left_also_while_others_come_and_go_all_the_time) {
  const Storm storm;
  std::vector<Tenant> tenants(8);
  for (std::size_t i = 0; i < tenants.size(); ++i) {
    tenants[i].record.id = std::to_string(i);
    tenants[i].root_dead = true;
    tenants[i].record.mount_namespace = i + 1;  // nobody's
  }
  const auto loop = system::Loop::make().value();
  std::vector<std::string> over;
  EndWatch ends(*loop, {.all = [&] { return std::vector<Tenant*>{&tenants[0]}; },
                        .find = [&](const std::string& id) { return &tenants[std::stoul(id)]; },
                        .over = [&](Tenant& tenant) { over.push_back(tenant.record.id); }});
  for (const Tenant& tenant : tenants) {
    ends.ask(tenant);
    EXPECT_TRUE(eventually([&] {
      loop->run_once(5'000'000);
      return !over.empty() && over.back() == tenant.record.id;
    }));
  }
}

// That each is seen in a few lists is what nobody's being seen in so many is worth.
TEST(EndWatch, keeps_a_slice_in_which_each_forks_the_next_and_exits_however_often_it_looks) {
  const Relay relay;
  if (!relay.can_be) GTEST_SKIP() << "no mount namespace can be made here";
  const Storm storm;
  Tenant tenant;
  tenant.record = relay.record;
  tenant.record.id = "a";
  tenant.root_dead = true;
  const auto loop = system::Loop::make().value();
  bool over = false;
  EndWatch ends(*loop, {.all = [&] { return std::vector<Tenant*>{&tenant}; },
                        .find = [&](const std::string&) { return &tenant; },
                        .over = [&](Tenant&) { over = true; }});
  bool later = false;
  loop->after(3'000'000'000, [&] { later = true; });
  while (!later) {
    ends.ask(tenant);
    loop->run_once(5'000'000);
    ASSERT_FALSE(over);
    ASSERT_TRUE(relay.goes_on());
  }
}

}  // namespace
}  // namespace tensor_fusion::node::hypervisor
