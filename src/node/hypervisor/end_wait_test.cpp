#include "node/hypervisor/end_wait.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include "node/hypervisor/test_slice.h"
#include "system/clock.h"

namespace tensor_fusion::node::hypervisor {
namespace {

struct Answer {
  ConnectionId to;
  base::Json said;
};

class EndWaitTest : public ::testing::Test {
 protected:
  EndWaitTest() {
    tenant_.record.id = "a";
    tenant_.record.root_pid = ::getpid();
  }
  bool soon(const std::function<bool()>& condition) {
    return eventually([&] {
      loop_->run_once(5'000'000);
      return condition();
    });
  }
  std::unique_ptr<system::Loop> loop_ = system::Loop::make().value();
  Tenant tenant_;
  bool is_there_ = true;
  unsigned looks_ = 0, looks_needed_ = ~0u;
  std::vector<Answer> answers_;
  EndWait ends_{*loop_,
                {.find = [this](const std::string& id) { return id == "a" && is_there_ ? &tenant_ : nullptr; },
                 .look = [this](Tenant&) { is_there_ = ++looks_ < looks_needed_; },
                 .send = [this](ConnectionId to, const base::Json& said) { answers_.push_back({to, said}); }}};
};

TEST_F(EndWaitTest, looks_until_a_slice_is_over_and_then_answers_all_who_asked) {
  looks_needed_ = 3;
  ASSERT_TRUE(ends_.ask(1, "a", 30'000));
  ASSERT_TRUE(ends_.ask(2, "a", 30'000));
  ASSERT_TRUE(ends_.ask(3, "a", 30'000));
  ends_.closed(2);
  ASSERT_TRUE(soon([&] { return !answers_.empty(); }));
  EXPECT_EQ(looks_, 3u);
  ASSERT_EQ(answers_.size(), 2u);
  EXPECT_EQ(answers_[0].to, 1u);
  EXPECT_EQ(answers_[1].to, 3u);
  EXPECT_TRUE(answers_[0].said["over"].as_bool());
}

TEST_F(EndWaitTest, waits_for_one_slice_at_a_time_for_each_that_asks) {
  EXPECT_TRUE(ends_.ask(1, "a", 30'000));
  EXPECT_FALSE(ends_.ask(1, "a", 30'000));
  EXPECT_FALSE(ends_.ask(1, "b", 30'000));
  EXPECT_TRUE(ends_.ask(2, "b", 30'000));
  ends_.closed(1);
  EXPECT_TRUE(ends_.ask(1, "b", 30'000));
}

TEST_F(EndWaitTest, says_of_one_that_nobody_knows_that_it_is_over) {
  ASSERT_TRUE(ends_.ask(1, "b", 30'000));
  ASSERT_TRUE(soon([&] { return !answers_.empty(); }));
  EXPECT_TRUE(answers_[0].said["over"].as_bool());
}

TEST_F(EndWaitTest, says_after_the_time_that_was_given_who_is_known_to_live) {
  const std::uint64_t begin_ns = system::monotonic_ns();
  ASSERT_TRUE(ends_.ask(1, "a", 60));
  ASSERT_TRUE(soon([&] { return !answers_.empty(); }));
  EXPECT_GE(system::monotonic_ns() - begin_ns, 60'000'000u);
  EXPECT_FALSE(answers_[0].said["over"].as_bool(true));
  EXPECT_EQ(answers_[0].said["pids"].dump(), "[" + std::to_string(::getpid()) + "]");
  tenant_.root_dead = true;
  ASSERT_TRUE(ends_.ask(1, "a", 0));
  ASSERT_TRUE(soon([&] { return answers_.size() == 2; }));
  EXPECT_FALSE(answers_[1].said["over"].as_bool(true));
  EXPECT_EQ(answers_[1].said["pids"].dump(), "[]");
}

}  // namespace
}  // namespace tensor_fusion::node::hypervisor
