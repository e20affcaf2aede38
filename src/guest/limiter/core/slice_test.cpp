#include "guest/limiter/core/slice.h"

#include <gtest/gtest.h>
#include <sys/stat.h>

#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>

namespace tensor_fusion::guest::limiter {
namespace {

class SliceFolder : public ::testing::Test {
 protected:
  SliceFolder() {
    char name[] = "/tmp/tensor-fusion-slice-XXXXXX";
    folder = mkdtemp(name);
    unsetenv(contract::kSliceVariable);
  }
  ~SliceFolder() override { std::filesystem::remove_all(folder); }
  void write_grant(std::uint64_t magic, std::uint32_t abi, std::uint32_t size, std::size_t bytes) {
    std::ofstream file(folder + "/grant", std::ios::binary);
    std::string page(bytes, '\0');
    std::memcpy(page.data(), &magic, 8);
    std::memcpy(page.data() + 8, &abi, 4);
    std::memcpy(page.data() + 12, &size, 4);
    file << page;
  }
  void write_good() {
    write_grant(contract::kGrantMagic, contract::kGrantAbi, sizeof(contract::GrantPage), sizeof(contract::GrantPage));
    std::ofstream(folder + "/claim") << "";
    std::filesystem::resize_file(folder + "/claim", sizeof(contract::ClaimPage));
  }
  std::string folder;
};

TEST_F(SliceFolder, without_any_source_there_is_no_slice) {
  Slice slice;
  EXPECT_EQ(find_slice(slice, "/usr/lib/libtensor_fusion_limiter.so"), SliceState::none);
}

TEST_F(SliceFolder, is_found_by_the_variable) {
  write_good();
  setenv(contract::kSliceVariable, folder.c_str(), 1);
  Slice slice;
  EXPECT_EQ(find_slice(slice, ""), SliceState::found) << slice.reason;
  EXPECT_NE(slice.claim, nullptr);
}

// An ssh session or a child with an empty environment once escaped its limit.
TEST_F(SliceFolder, is_found_beside_the_library_with_an_empty_environment) {
  write_good();
  Slice slice;
  EXPECT_EQ(find_slice(slice, (folder + "/libtensor_fusion_limiter.so").c_str()), SliceState::found) << slice.reason;
}

TEST_F(SliceFolder, named_and_missing_is_damage_not_freedom) {
  setenv(contract::kSliceVariable, (folder + "/gone").c_str(), 1);
  Slice slice;
  EXPECT_EQ(find_slice(slice, ""), SliceState::damaged);
}

TEST_F(SliceFolder, pages_of_another_shape_are_refused) {
  const auto state = [&] {
    Slice slice;
    return open_slice(slice, folder.c_str());
  };
  write_good();
  EXPECT_EQ(state(), SliceState::found);
  write_grant(1, contract::kGrantAbi, sizeof(contract::GrantPage), sizeof(contract::GrantPage));
  EXPECT_EQ(state(), SliceState::damaged);
  write_grant(contract::kGrantMagic, 99, sizeof(contract::GrantPage), sizeof(contract::GrantPage));
  EXPECT_EQ(state(), SliceState::damaged);
  write_grant(contract::kGrantMagic, contract::kGrantAbi, 5, sizeof(contract::GrantPage));
  EXPECT_EQ(state(), SliceState::damaged);
  write_grant(contract::kGrantMagic, contract::kGrantAbi, sizeof(contract::GrantPage), 64);  // cut short
  EXPECT_EQ(state(), SliceState::damaged);
  write_good();
  std::filesystem::resize_file(folder + "/claim", 4096);
  EXPECT_EQ(state(), SliceState::damaged);
}

TEST_F(SliceFolder, a_ring_without_a_bell_or_a_listener_does_nothing) {
  write_good();
  Slice slice;
  ASSERT_EQ(open_slice(slice, folder.c_str()), SliceState::found);
  ring(slice);
  mkfifo((folder + "/bell").c_str(), 0600);
  for (int i = 0; i < 100'000; ++i) ring(slice);  // a full pipe neither blocks nor kills
}

}  // namespace
}  // namespace tensor_fusion::guest::limiter
