// The share loop on pages in memory, driven by hand: time is an argument.
#include "node/hypervisor/share_loop.h"

#include <gtest/gtest.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <memory>
#include <random>
#include <utility>

#include "node/hypervisor/fake_tenant.h"
#include "pool/share.h"
#include "system/clock.h"

namespace tensor_fusion::node::hypervisor {
namespace {

TEST(ShareLoop, admits_one_tenant_of_a_device_and_hands_over) {
  FakeTenant a, b;
  ShareLoop loop;
  loop.add_tenant(1, a.tenant(5000, 10000));
  loop.add_tenant(2, b.tenant(5000, 10000));
  a.block();
  b.block();
  unsigned turns[2] = {0, 0};
  std::uint64_t now = system::monotonic_ns();
  for (int step = 0; step < 2000; ++step) {
    now += 200'000;
    for (FakeTenant* each : {&a, &b}) {
      each->tell(now);
      if (each->admitted()) each->launch(now, 200'000);
    }
    loop.run_once(now);
    EXPECT_FALSE(a.admitted() && b.admitted());
    turns[0] += a.admitted() ? 1 : 0;
    turns[1] += b.admitted() ? 1 : 0;
  }
  EXPECT_GT(turns[0], 700u);
  EXPECT_GT(turns[1], 700u);
}

TEST(ShareLoop, suspects_a_tenant_whose_counters_go_back) {
  FakeTenant a;
  ShareLoop loop;
  loop.add_tenant(1, a.tenant(3000, 3000));
  std::uint64_t now = system::monotonic_ns();
  for (int i = 0; i < 3; ++i) {
    EXPECT_FALSE(loop.usage(1, 0).bypass_suspected);
    for (const std::uint64_t launched : {std::uint64_t{200'000}, std::uint64_t{0}}) {
      a.row().launched_ns = launched;
      a.ring();
      loop.run_once(now += kMs);
    }
  }
  EXPECT_TRUE(loop.usage(1, 0).bypass_suspected);
}

TEST(ShareLoop, charges_a_tenant_whose_counters_go_back_for_the_time_it_is_let_in) {
  FakeTenant a, b;
  ShareLoop loop;
  loop.add_tenant(1, a.tenant(2000, 2000));
  loop.add_tenant(2, b.tenant(8000, 8000));
  std::uint64_t now = system::monotonic_ns();
  std::uint64_t held = 0;
  b.block();
  for (int step = 0; step < 20'000; ++step) {
    now += 200'000;
    a.row().launched_ns = step % 2 == 0 ? 100'000 : 0;
    a.block();
    b.tell(now);
    if (b.admitted()) b.launch(now, 200'000);
    loop.run_once(now);
    held += step >= 5'000 && a.admitted() ? 200'000 : 0;
  }
  EXPECT_LE(static_cast<double>(held) / (15'000 * 200e3), 0.2);
}

TEST(ShareLoop, keeps_devices_apart) {
  FakeTenant a, b;
  ShareLoop loop;
  loop.add_tenant(1, a.tenant(3000, 3000, 0));
  loop.add_tenant(2, b.tenant(3000, 3000, 1));
  a.block();
  b.block();
  loop.run_once(system::monotonic_ns() + kMs);
  EXPECT_TRUE(a.admitted());
  EXPECT_TRUE(b.admitted());
}

TEST(ShareLoop, opens_the_gate_of_a_lone_unlimited_tenant_and_shuts_it_when_another_comes) {
  FakeTenant a, b;
  ShareLoop loop;
  loop.add_tenant(1, a.tenant(3000, 10000));
  loop.run_once(system::monotonic_ns() + kMs);
  EXPECT_NE(a.grant.page->devices[0].flags & contract::kComputeUnlimited, 0u);
  loop.add_tenant(2, b.tenant(3000, 10000));
  loop.run_once(system::monotonic_ns() + 2 * kMs);
  EXPECT_EQ(a.grant.page->devices[0].flags & contract::kComputeUnlimited, 0u);
}

TEST(ShareLoop, beats_and_says_when_it_is_due) {
  FakeTenant a;
  ShareLoop loop;
  loop.add_tenant(1, a.tenant(3000, 3000));
  const std::uint64_t now = system::monotonic_ns() + 100 * kMs;
  const std::uint64_t due = loop.run_once(now);
  EXPECT_EQ(a.grant.page->heartbeat_ns.load(), now);
  EXPECT_LE(due, now + contract::kHeartbeatPeriodNs);
}

TEST(ShareLoop, sleeps_while_nobody_holds_a_slot_and_beats_for_the_first_who_rings) {
  FakeTenant a;
  a.claim.page->processes[0].state = contract::kSlotFree;
  ShareLoop loop;
  loop.add_tenant(1, a.tenant(3000, 3000));
  std::uint64_t now = system::monotonic_ns() + 100 * kMs;
  loop.run_once(now);
  now += 200 * kMs;
  EXPECT_GE(loop.run_once(now), now + 500 * kMs);
  a.claim.page->processes[0].state = contract::kSlotLive;
  a.ring();
  now += 50 * kMs;
  EXPECT_LE(loop.run_once(now), now + contract::kHeartbeatPeriodNs);
  EXPECT_EQ(a.grant.page->heartbeat_ns.load(), now) << "fresh for the one who came";
}

// A wake-up costs far more than a decision: with many devices, what falls due about the same time is decided together.
TEST(ShareLoop, wakes_for_many_devices_a_little_late_and_for_one_in_time) {
  for (const std::uint32_t devices : {1u, 6u}) {
    std::vector<std::unique_ptr<FakeTenant>> tenants;
    ShareLoop loop;
    std::uint64_t now = system::monotonic_ns() + kMs;
    for (std::uint32_t i = 0; i < devices * 2; ++i) {
      tenants.push_back(std::make_unique<FakeTenant>());
      loop.add_tenant(i, tenants.back()->tenant(4000, 10000, i / 2));
      tenants.back()->block();
    }
    unsigned wakes = 0;
    const std::uint64_t end = now + 1000 * kMs;
    for (std::uint64_t due = now; now < end; ++wakes) {
      now = std::max(due, now + 1000);
      for (std::size_t i = 0; i < tenants.size(); ++i) {
        tenants[i]->tell(now);
        if (!tenants[i]->admitted() || tenants[i]->row().progress_ns.load() > now + 2'000'000) continue;
        tenants[i]->launch(now, 1'000'000 + 137'000 * (i / 2));  // so that the devices do not go in step
      }
      due = loop.run_once(now);
      EXPECT_LE(due, now + contract::kHeartbeatPeriodNs);
    }
    EXPECT_LT(wakes, 1200u) << devices << " devices, " << loop.passes() << " decisions";
    if (devices > 1) {
      EXPECT_GT(loop.passes(), wakes);
    }
  }
}

// The same tenants on the same terms, driven at the same moments, on one device and on each of six: how much later the
// loop of six says that it is due is what a gate may be late by.
TEST(ShareLoop, is_no_later_than_a_queue_hides_for_one_device_and_no_later_than_a_stay_bears_for_many) {
  std::vector<std::unique_ptr<FakeTenant>> tenants;
  ShareLoop one, six;
  for (std::uint32_t i = 0; i < 14; ++i) {
    tenants.push_back(std::make_unique<FakeTenant>());
    ShareLoop& loop = i < 2 ? one : six;
    loop.add_tenant(i, tenants.back()->tenant(i % 2 == 0 ? 3000 : 6000, i % 2 == 0 ? 3000 : 6000, i / 2));
    tenants.back()->block();
  }
  // A busy host may have added them one long after the other. By now all of them have waited for the most that counts.
  std::uint64_t now = system::monotonic_ns() + 10'000 * kMs, due = now, shut_late = 0, open_late = 0;
  for (const std::uint64_t end = now + 500 * kMs; now < end;) {
    // One device is decided when it asks to be: nothing is due before the loop says so (but what may be done together).
    if (due > now + 60'000) {
      const std::uint64_t passes = one.passes();
      one.run_once(due - 51'000);
      six.run_once(due - 51'000);
      ASSERT_EQ(one.passes(), passes);
    }
    now = std::max(due, now + 1000);
    for (std::size_t i = 0; i < tenants.size(); ++i) {
      tenants[i]->tell(now);
      if (tenants[i]->admitted() && tenants[i]->row().progress_ns.load() <= now + 2'000'000)
        tenants[i]->launch(now, 1'000'000);
    }
    due = one.run_once(now);
    const std::uint64_t late = six.run_once(now);
    ASSERT_GE(late, due);
    const bool held = tenants[0]->admitted() || tenants[1]->admitted();
    ASSERT_EQ(tenants[2]->admitted(), tenants[0]->admitted()) << "they go in step";
    std::uint64_t& most = held ? shut_late : open_late;
    most = std::max(most, late - due);
  }
  EXPECT_LE(shut_late, 1'500'000u);
  EXPECT_LE(open_late, pool::ShareRules{}.handover_ns);
  EXPECT_GT(shut_late + open_late, 0u) << "it saves wake-ups";
}

TEST(ShareLoop, a_flood_of_rings_is_not_heard_for_long) {
  FakeTenant a, b;
  ShareLoop loop;
  loop.add_tenant(1, a.tenant(5000, 10000));
  loop.add_tenant(2, b.tenant(5000, 10000));
  std::uint64_t now = system::monotonic_ns() + kMs;
  for (int i = 0; i < 5000; ++i) {
    a.ring();
    loop.run_once(now += 1000);
  }
  EXPECT_LT(loop.passes(), 3000u);
  b.block();
  loop.run_once(now += 1000);
  EXPECT_TRUE(b.admitted()) << "the neighbour is heard";
}

TEST(ShareLoop, tells_when_a_ring_was_about_more_than_compute) {
  FakeTenant a;
  ShareLoop loop;
  const int notify = ::eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
  ShareTenant tenant = a.tenant(3000, 3000);
  tenant.notify = notify;
  loop.add_tenant(1, tenant);
  std::uint64_t now = system::monotonic_ns() + kMs;
  loop.run_once(now);
  std::uint64_t count = 0;
  static_cast<void>(!::read(notify, &count, sizeof count));
  a.ring();
  loop.run_once(now += kMs);
  EXPECT_LT(::read(notify, &count, sizeof count), 0) << "nothing but a bell";
  a.row().settle_request = 7;
  a.ring();
  loop.run_once(now += kMs);
  EXPECT_EQ(::read(notify, &count, sizeof count), 8);
  ::close(notify);
}

TEST(ShareLoop, survives_pages_full_of_noise) {
  FakeTenant liar, honest;
  ShareLoop loop;
  loop.add_tenant(1, liar.tenant(5000, 10000));
  loop.add_tenant(2, honest.tenant(5000, 10000));
  std::mt19937_64 random(5);
  std::uint64_t now = system::monotonic_ns();
  honest.block();
  std::uint64_t held = 0;
  for (int step = 0; step < 3000; ++step) {
    now += 200'000;
    auto* words = reinterpret_cast<std::uint64_t*>(&liar.row());
    for (std::size_t i = 0; i < sizeof(contract::ClaimProcessDevice) / 8; ++i) {
      __atomic_store_n(&words[i], random() >> (random() % 64), __ATOMIC_RELAXED);
    }
    liar.claim.page->process_high = static_cast<std::uint32_t>(random());
    liar.ring();
    honest.tell(now);
    if (honest.admitted()) {
      honest.launch(now, 200'000);
      held += 200'000;
    }
    loop.run_once(now);
  }
  EXPECT_GE(held, 3000ull * 200'000 * 45 / 100);
}

TEST(ShareLoop, does_not_wait_for_a_queue_that_a_page_claims_again_and_again) {
  FakeTenant liar, honest;
  ShareLoop loop;
  loop.add_tenant(1, liar.tenant(5000, 10000));
  loop.add_tenant(2, honest.tenant(5000, 10000));
  std::uint64_t now = system::monotonic_ns();
  honest.block();
  std::uint64_t held = 0;
  for (int step = 0; step < 10'000; ++step) {
    now += 200'000;
    liar.claim.page->process_high = 8;
    for (std::uint32_t slot = 0; slot < 8; ++slot) {
      contract::ClaimProcess& process = liar.claim.page->processes[slot];
      process.state = contract::kSlotLive;
      process.pid = 100 + slot;
      process.devices[0].blocked = 1;
      process.devices[0].streams = 1;
      process.devices[0].wanted_since_ns = now;
      process.devices[0].progress_ns = now + 40 * kMs;
    }
    liar.ring();
    honest.tell(now);
    if (honest.admitted()) {
      honest.launch(now, 200'000);
      held += 200'000;
    }
    loop.run_once(now);
  }
  EXPECT_GE(held, 10'000ull * 200'000 * 60 / 100);
}

}  // namespace
}  // namespace tensor_fusion::node::hypervisor
