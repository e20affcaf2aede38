#include "guest/limiter/core/growth.h"

#include <gtest/gtest.h>

#include <functional>
#include <memory>

#include "guest/limiter/core/ledger.h"
#include "guest/limiter/core/os.h"

namespace tensor_fusion::guest::limiter {
namespace {

using Verdict = Growth::Verdict;

class GrowthTest : public ::testing::Test {
 protected:
  GrowthTest() {
    grant().memory_limit_bytes = 1600;
    list({10});
  }
  contract::GrantDevice& grant() { return page->devices[0]; }
  void list(std::initializer_list<std::uint32_t> pids) {
    page->process_sequence += 2;
    std::uint32_t count = 0;
    for (const std::uint32_t pid : pids) page->processes[count++].tenant_pid = pid;
    page->process_count = count;
  }
  void begin() { ++grant().reading_begun; }
  void done(std::uint64_t observed, std::uint32_t turn = 0) {
    grant().reading_mark = grant().reading_begun.load();
    grant().observed_bytes = observed;
    grant().turn = turn;
    grant().reading_list = page->process_sequence.load();
    grant().reading_done = grant().reading_begun.load();
  }
  // What a process of slot 0 and pid 10 that holds `own` is told.
  Verdict asked(std::uint64_t bytes, bool fresh = false) {
    return growth.judge(grant(), *page, own, bytes, 1, 10, fresh);
  }
  void hold(std::uint64_t bytes) {
    growth.before_change(grant(), own);
    own = bytes;
    growth.after_change(own);
  }
  std::unique_ptr<contract::GrantPage> page = std::make_unique<contract::GrantPage>();
  Growth growth;
  std::uint64_t own = 0;
};

TEST_F(GrowthTest, asks_until_the_driver_was_read_and_says_nothing_where_it_cannot_tell) {
  EXPECT_EQ(asked(1), Verdict::unsure);
  begin();
  done(0);
  EXPECT_EQ(asked(5000), Verdict::fits);
}

TEST_F(GrowthTest, one_process_takes_what_was_left_and_what_it_gave_back_since) {
  hold(1000);
  begin();
  done(1100);  // its context is not in its own account
  EXPECT_EQ(asked(500), Verdict::fits);
  EXPECT_EQ(asked(501), Verdict::unsure);
  EXPECT_EQ(asked(501, true), Verdict::full);
  hold(200);
  EXPECT_EQ(asked(1300), Verdict::fits);
  EXPECT_EQ(asked(1301, true), Verdict::full);
}

TEST_F(GrowthTest, trusts_only_what_was_held_all_through_the_reading) {
  begin();
  hold(800);  // the driver may have been read before or after
  done(1);
  EXPECT_EQ(asked(799), Verdict::fits) << "1599 are left, and 800 of them may be held already";
  EXPECT_EQ(asked(800), Verdict::unsure);
  EXPECT_EQ(asked(800, true), Verdict::unsure) << "the driver may have shown others";
  EXPECT_EQ(asked(1600, true), Verdict::full) << "whatever it has shown";
  begin();
  done(800);
  EXPECT_EQ(asked(800), Verdict::fits);
  EXPECT_EQ(asked(801, true), Verdict::full);
}

// Freed before the driver is asked and taken again after, it was not among what the driver showed.
TEST_F(GrowthTest, does_not_hand_out_again_what_was_freed_while_the_driver_was_read) {
  hold(1600);
  begin();
  done(1600);
  begin();
  hold(0);
  hold(1600);  // and here no reading has said that there is room
  hold(0);
  done(1);
  EXPECT_EQ(asked(1600), Verdict::unsure);
  EXPECT_EQ(asked(1599), Verdict::fits);
  begin();
  done(1000);  // of others, who took their part
  EXPECT_EQ(asked(601, true), Verdict::full);
}

TEST_F(GrowthTest, gives_nothing_for_readings_that_fail) {
  begin();
  done(1);
  hold(1500);
  for (int i = 0; i < 5; ++i) {
    begin();  // and never published
    EXPECT_EQ(asked(200, true), Verdict::full);
    EXPECT_EQ(asked(90), Verdict::fits) << "what the last one left";
  }
  hold(1000);
  begin();
  done(1000);
  EXPECT_EQ(asked(600), Verdict::fits) << "begun since the last change";
  EXPECT_EQ(asked(601, true), Verdict::full);
}

TEST_F(GrowthTest, asks_while_a_reading_is_being_published) {
  begin();
  done(600);
  begin();
  grant().reading_mark = grant().reading_begun.load();
  grant().observed_bytes = 1;
  EXPECT_EQ(asked(1, true), Verdict::unsure) << "the figure of one reading, the number of another";
}

TEST_F(GrowthTest, counts_among_no_list_that_is_being_written) {
  page->process_sequence = 1;  // the first: it names this process already, but not yet the others
  begin();
  done(600);
  EXPECT_EQ(asked(1), Verdict::unsure);
  page->process_sequence = 2;
  EXPECT_EQ(asked(1), Verdict::unsure) << "the reading was published with another list";
  begin();
  done(600);
  EXPECT_EQ(asked(1000), Verdict::fits);
  list({10, 11});
  EXPECT_EQ(asked(1000), Verdict::fits) << "the other has no part in this reading";
  begin();
  done(600);
  EXPECT_EQ(asked(501), Verdict::unsure);
}

TEST_F(GrowthTest, several_take_their_part_and_ask_for_more) {
  list({10, 11});
  begin();
  done(600);  // 1000 are left
  EXPECT_EQ(asked(500), Verdict::fits);
  EXPECT_EQ(asked(501), Verdict::unsure);
  EXPECT_EQ(asked(1001, true), Verdict::full);
  begin();
  done(600, 1);
  EXPECT_EQ(asked(1000, true), Verdict::fits) << "its turn";
  EXPECT_EQ(asked(1000), Verdict::fits) << "till the next reading: not every piece asks anew";
  begin();
  done(600, 2);
  EXPECT_EQ(asked(1000, true), Verdict::unsure) << "the other's";
  EXPECT_EQ(asked(50, true), Verdict::fits) << "a sixteenth of the limit is for all together";
  EXPECT_EQ(asked(51, true), Verdict::unsure);
}

TEST_F(GrowthTest, one_that_the_hypervisor_has_not_listed_asks_first) {
  list({11});
  begin();
  done(600);
  EXPECT_EQ(asked(1), Verdict::unsure);
  list({10, 11});
  EXPECT_EQ(asked(1), Verdict::unsure);
  begin();
  done(600);
  EXPECT_EQ(asked(1), Verdict::fits);
}

// What the claim page says is not asked for here: whoever wipes it gets no more.
TEST_F(GrowthTest, holds_a_ledger_whose_page_is_wiped_by_others) {
  auto claim = std::make_unique<contract::ClaimPage>();
  Ledger ledger(claim.get(), 0, 1);
  static std::uint64_t shown;  // by the driver, the next time it is asked
  shown = 1500;
  ledger.set_ask(
      [](const Device& asking) {
        auto& row = const_cast<contract::GrantDevice&>(*asking.grant);
        ++row.reading_begun;
        row.reading_mark = row.reading_begun.load();
        row.observed_bytes = shown;
        row.reading_done = row.reading_begun.load();
        return true;
      },
      10);
  Device device{};
  device.grant = &grant();
  device.grant_page = page.get();
  device.claim = &claim->devices[0];
  device.mine = &claim->processes[0].devices[0];
  begin();
  done(1500);  // of others
  EXPECT_FALSE(ledger.reserve(device, 101));
  EXPECT_TRUE(ledger.reserve(device, 100));
  shown = 1600;
  claim->devices[0].used_bytes = 0;
  EXPECT_FALSE(ledger.reserve(device, 1));
  EXPECT_EQ(claim->devices[0].changes.load(), 1u);
}

TEST_F(GrowthTest, finds_what_one_alone_holds_beyond_all_that_is_shown) {
  const auto surplus = [&] { return growth.surplus(grant(), *page, own, 10); };
  EXPECT_EQ(surplus(), 0u) << "never read";
  hold(600);
  begin();
  done(500);
  EXPECT_EQ(surplus(), 100u);
  list({10, 11});
  begin();
  done(500);
  EXPECT_EQ(surplus(), 0u) << "the other may hold any part of it";
  list({10});
  begin();
  hold(700);
  done(500);
  EXPECT_EQ(surplus(), 0u) << "it held less for a part of the reading";
  begin();
  done(1);
  EXPECT_EQ(surplus(), 0u) << "the driver does not see it";
  begin();
  done(0);
  EXPECT_EQ(surplus(), 0u) << "nobody can tell";
  begin();
  done(800);
  EXPECT_EQ(surplus(), 0u);
}

// A hypervisor that answers each question with a step of a story.
std::function<void()> g_answer;
int g_asked = 0;

// A ledger of a process that asks it.
class LateTest : public GrowthTest {
 protected:
  LateTest() {
    claim->processes[0].state = contract::kSlotLive;
    claim->processes[0].pid = 10;
    device.grant = &grant();
    device.grant_page = page.get();
    device.claim = &claim->devices[0];
    device.mine = &claim->processes[0].devices[0];
    g_asked = 0;
    ledger.set_ask(
        [](const Device&) {
          ++g_asked;
          g_answer();
          return true;
        },
        10);
    ledger.set_patience({.turn_ns = 1'500'000'000, .listed_ns = kListedNs, .slot_ns = 100'000'000});
    g_answer = [this] {
      begin();
      done(600);
    };
  }
  ~LateTest() override { g_answer = nullptr; }
  // By the first answer: who waits has another.
  bool is_soon_called_unlisted() {
    const int before = g_asked;
    const Room room = ledger.reserve(device, 100);
    return !room && room.is_unlisted() && g_asked == before + 1;
  }
  static constexpr std::uint64_t kListedNs = 300'000'000;

  std::unique_ptr<contract::ClaimPage> claim = std::make_unique<contract::ClaimPage>();
  Ledger ledger{claim.get(), 0, 1};
  Device device{};
};

TEST_F(LateTest, is_told_that_memory_is_out_and_not_that_it_is_nobodys) {
  list({11});
  const Room refused = ledger.reserve(device, 100);
  EXPECT_TRUE(!refused && refused.is_unlisted());
  list({10, 11});
  EXPECT_TRUE(ledger.reserve(device, 100));
  int asked_times = 0;
  g_answer = [&] {
    begin();
    ++asked_times;
    if (asked_times == 1) {
      done(700, 2);                 // the other's turn
      page->process_sequence += 1;  // and the list is being written
    } else {
      if (asked_times == 2) page->process_sequence += 1;
      done(1600);
    }
  };
  const Room full = ledger.reserve(device, 700);
  EXPECT_FALSE(full);
  EXPECT_FALSE(full.is_unlisted());
  EXPECT_EQ(asked_times, 2);
}

TEST_F(LateTest, waits_in_vain_only_once_till_it_is_listed) {
  list({11});
  EXPECT_FALSE(is_soon_called_unlisted()) << "it may be listed any moment";
  for (int i = 0; i < 5; ++i) EXPECT_TRUE(is_soon_called_unlisted());
  list({10, 11});
  EXPECT_TRUE(ledger.reserve(device, 100));
  list({11});
  EXPECT_FALSE(is_soon_called_unlisted()) << "patient again";
}

TEST_F(LateTest, waits_in_vain_only_once_for_its_slot) {
  list({10, 11});
  g_answer = [this] {
    begin();
    done(700, 2);  // always the other's turn
  };
  claim->processes[0].pid = 99;
  EXPECT_FALSE(ledger.reserve(device, 290));
  EXPECT_GT(g_asked, 0);
  g_asked = 0;
  for (int i = 0; i < 5; ++i) EXPECT_FALSE(ledger.reserve(device, 290));
  EXPECT_EQ(g_asked, 0);
  claim->processes[0].pid = 10;
  g_answer = [this] {
    begin();
    done(600, 1);
  };
  EXPECT_TRUE(ledger.reserve(device, 290));
}

}  // namespace
}  // namespace tensor_fusion::guest::limiter
