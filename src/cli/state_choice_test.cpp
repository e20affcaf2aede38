#include "cli/state_choice.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "node/hypervisor/client.h"
#include "system/clock.h"
#include "system/scratch_directory.h"
#include "system/unix_socket.h"

namespace tensor_fusion::cli {
namespace {

namespace fs = std::filesystem;

class StateChoice : public ::testing::Test {
 protected:
  StateChoice() {
    for (const std::string& state : {own_, machine_}) fs::create_directories(state);
  }
  static base::Result<system::Fd> serve(const std::string& state) {
    return system::listen_unix(state + "/" + node::hypervisor::kSocketName, 0600);
  }
  void leave_a_slice_of_the_machine() const { fs::create_directories(machine_ + "/tenants/a"); }
  std::string chosen() const { return choose_state(own_, machine_); }

  system::ScratchDirectory scratch_;
  const std::string own_ = scratch_.path("own");
  const std::string machine_ = scratch_.path("machine");
};

TEST_F(StateChoice, is_the_own_one_where_there_is_nothing) { EXPECT_EQ(chosen(), own_); }

TEST_F(StateChoice, is_the_machines_where_only_that_hypervisor_answers) {
  const auto listener = serve(machine_);
  ASSERT_TRUE(listener);
  EXPECT_EQ(chosen(), machine_);
}

TEST_F(StateChoice, is_the_own_one_whose_hypervisor_answers_and_at_once_whatever_the_machine_holds) {
  const auto listener = serve(own_);
  ASSERT_TRUE(listener);
  leave_a_slice_of_the_machine();
  const std::uint64_t begin = system::monotonic_ns();
  EXPECT_EQ(chosen(), own_);
  EXPECT_LT(system::monotonic_ns() - begin, 1'500'000'000u);
  const auto others = serve(machine_);
  EXPECT_EQ(chosen(), own_);
}

TEST_F(StateChoice, is_nothing_that_somebody_else_has_put_in_the_own_ones_place) {
  if (::geteuid() != 0) GTEST_SKIP() << "only root can become another user";
  constexpr uid_t kNobody = 65534;
  for (const std::string& folder : {fs::path(own_).parent_path().string(), own_})
    fs::permissions(folder, fs::perms::all);
  ASSERT_EQ(::seteuid(kNobody), 0);
  const auto others = serve(own_);
  ASSERT_EQ(::seteuid(0), 0);
  ASSERT_TRUE(others);
  const auto listener = serve(machine_);
  EXPECT_EQ(chosen(), machine_);
}

TEST_F(StateChoice, stays_with_the_machines_slices_while_their_hypervisor_is_away) {
  leave_a_slice_of_the_machine();
  const std::uint64_t begin = system::monotonic_ns();
  EXPECT_EQ(chosen(), machine_) << "or the card would be given out a second time";
  EXPECT_LT(system::monotonic_ns() - begin, 1'500'000'000u) << "only `run` waits, and says so";
}

TEST_F(StateChoice, stays_with_the_own_slices_where_no_hypervisor_answers) {
  leave_a_slice_of_the_machine();
  fs::create_directories(own_ + "/records");
  std::ofstream(own_ + "/records/a.json") << "{}";
  EXPECT_EQ(chosen(), own_);
}

}  // namespace
}  // namespace tensor_fusion::cli
