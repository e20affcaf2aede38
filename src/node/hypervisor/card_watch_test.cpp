#include "node/hypervisor/card_watch.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <memory>

#include "system/file.h"
#include "system/scratch_directory.h"

namespace tensor_fusion::node::hypervisor {
namespace {

class CardWatchTest : public ::testing::Test {
 protected:
  std::string card(const std::string& name) {
    EXPECT_TRUE(system::replace_file(scratch_.path(name), "x"));
    return scratch_.path(name);
  }
  system::ScratchDirectory scratch_;
  std::unique_ptr<system::Loop> loop_ = *system::Loop::make();
  const std::string us_ = "process " + std::to_string(::getpid()) + " of user " + std::to_string(::geteuid());
};

TEST_F(CardWatchTest, tells_both_of_each_other) {
  const std::string nvidia0 = card("nvidia0");
  CardWatch first(*loop_), second(*loop_);
  EXPECT_EQ(first.look("GPU-a", nvidia0), "");
  EXPECT_EQ(first.look("GPU-a", nvidia0), "") << "not of itself";
  EXPECT_EQ(second.look("GPU-a", nvidia0), us_);
  EXPECT_EQ(first.look("GPU-a", nvidia0), us_);
}

TEST_F(CardWatchTest, knows_the_card_by_any_path_and_forgets_who_has_gone) {
  const std::string nvidia0 = card("nvidia0");
  std::filesystem::create_hard_link(nvidia0, scratch_.path("other"));
  CardWatch first(*loop_);
  EXPECT_EQ(first.look("GPU-a", nvidia0), "");
  {
    CardWatch second(*loop_);
    EXPECT_EQ(second.look("GPU-a", scratch_.path("other")), us_);
  }
  EXPECT_EQ(first.look("GPU-a", nvidia0), "");
}

TEST_F(CardWatchTest, takes_cards_of_other_machines_for_others_even_if_their_uuids_are_equal) {
  CardWatch first(*loop_), second(*loop_);
  EXPECT_EQ(first.look("GPU-a", card("nvidia0")), "");
  EXPECT_EQ(second.look("GPU-a", card("nvidia1")), "");
  EXPECT_EQ(second.look("GPU-b", card("nvidia0")), "");
  EXPECT_EQ(second.look("GPU-a", ""), "");
  EXPECT_EQ(second.look("GPU-a", scratch_.path("none")), "");
}

TEST_F(CardWatchTest, answers_however_often_it_is_asked) {
  const std::string nvidia0 = card("nvidia0");
  CardWatch first(*loop_), second(*loop_);
  EXPECT_EQ(first.look("GPU-a", nvidia0), "");
  for (int i = 0; i < 100; ++i) {
    ASSERT_EQ(second.look("GPU-a", nvidia0), us_) << i;
    loop_->run_once(0);
  }
}

}  // namespace
}  // namespace tensor_fusion::node::hypervisor
