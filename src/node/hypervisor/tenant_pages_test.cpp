// Who can reach a slice's files. As root only: nobody else can become another user.
#include "node/hypervisor/tenant_pages.h"

#include <fcntl.h>
#include <grp.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <functional>
#include <string>

#include "contract/claim.h"
#include "contract/grant.h"
#include "system/scratch_directory.h"

namespace tensor_fusion::node::hypervisor {
namespace {

constexpr uid_t kUser = 65533, kOther = 65532;
constexpr gid_t kGroup = 65531;  // of both

int as_user(uid_t user, const std::function<bool()>& can) {
  const pid_t child = ::fork();
  if (child == 0) {
    if (::setgroups(0, nullptr) != 0 || ::setgid(kGroup) != 0 || ::setuid(user) != 0) ::_exit(99);
    ::_exit(can() ? 0 : 1);
  }
  int status = 0;
  ::waitpid(child, &status, 0);
  return WIFEXITED(status) ? WEXITSTATUS(status) : 128;
}

bool opens(const std::string& file, int how) {
  const int descriptor = ::open(file.c_str(), how | O_NONBLOCK);
  if (descriptor < 0) return false;
  ::close(descriptor);
  return true;
}

class Pages : public ::testing::Test {
 protected:
  void SetUp() override {
    if (::geteuid() != 0) GTEST_SKIP() << "only root can become another user";
    ::chmod(scratch_.root().c_str(), 0711);
    ::mkdir((scratch_.root() + "/pages").c_str(), 0700);
    record_.id = "aaaa";
    record_.user = kUser;
    record_.group = kGroup;
    auto made = TenantPages::create(folder(), scratch_.root() + "/pages/aaaa", record_);
    ASSERT_TRUE(made) << made.error().message;
  }
  std::string folder() const { return scratch_.root() + "/slice"; }
  std::string file(const char* name) const { return folder() + "/" + name; }

  system::ScratchDirectory scratch_;
  TenantRecord record_;
};

TEST_F(Pages, let_their_user_claim_and_ring_as_the_limiter_does) {
  EXPECT_EQ(as_user(kUser, [&] { return opens(file(contract::kClaimFile), O_RDWR); }), 0);
  EXPECT_EQ(as_user(kUser, [&] { return opens(file(contract::kBellFile), O_RDWR); }), 0);
  EXPECT_EQ(as_user(kUser, [&] { return opens(file(contract::kGrantFile), O_RDONLY); }), 0);
  EXPECT_EQ(as_user(kUser, [&] { return opens(file(contract::kGrantFile), O_RDWR); }), 1);
}

TEST_F(Pages, cannot_be_removed_by_their_user) {
  for (const char* name : {contract::kClaimFile, contract::kGrantFile, contract::kBellFile})
    EXPECT_EQ(as_user(kUser, [&] { return ::unlink(file(name).c_str()) == 0; }), 1) << name;
}

TEST_F(Pages, are_out_of_reach_for_others_of_the_users_group) {
  auto list = system::let_user_in(folder(), kUser);
  ASSERT_TRUE(list) << list.error().message;
  if (!*list) GTEST_SKIP() << "no access control lists on " << folder();
  for (const char* name : {contract::kClaimFile, contract::kGrantFile, contract::kBellFile})
    EXPECT_EQ(as_user(kOther, [&] { return opens(file(name), O_RDONLY); }), 1) << name;
}

TEST_F(Pages, of_an_earlier_hypervisor_get_a_bell_that_their_user_can_ring) {
  ::chmod(file(contract::kBellFile).c_str(), 0622);
  std::vector<std::string> damage;
  ASSERT_TRUE(TenantPages::attach(folder(), scratch_.root() + "/pages/aaaa", record_, &damage));
  EXPECT_EQ(as_user(kUser, [&] { return opens(file(contract::kBellFile), O_RDWR); }), 0);
}

}  // namespace
}  // namespace tensor_fusion::node::hypervisor
