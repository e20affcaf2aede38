// What the built libraries are made of, read with readelf: what they need, and what loading them costs.
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <iterator>
#include <sstream>

#include "contract/limiter_mark.h"
#include "guest/limiter/testing/slice.h"

namespace tensor_fusion::guest::limiter::testing {
namespace {

class Library : public ::testing::TestWithParam<const char*> {
 protected:
  void SetUp() override {
    path = std::string(TF_BUILD_FOLDER) + "/lib/" + GetParam() + "libtensor_fusion_limiter.so";
    if (!std::filesystem::exists(path)) GTEST_SKIP() << path << " is not built here (needs aarch64-linux-gnu-g++)";
  }
  std::string readelf(const char* what) const {
    return run({{"readelf", "-W", what, path}, {"PATH=/usr/bin:/bin", "LC_ALL=C"}}).out;
  }
  std::string path;
};
INSTANTIATE_TEST_SUITE_P(Machines, Library, ::testing::Values("", "arm64/"),
                         [](const auto& folder) { return folder.param[0] == 0 ? "this" : "arm64"; });

std::vector<std::string> lines_with(const std::string& text, const std::string& part) {
  std::vector<std::string> found;
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);)
    if (line.find(part) != std::string::npos) found.push_back(line);
  return found;
}

TEST_P(Library, needs_the_c_library_alone) {
  const auto needed = lines_with(readelf("-d"), "(NEEDED)");
  ASSERT_EQ(needed.size(), 1u);
  EXPECT_NE(needed[0].find("[libc.so.6]"), std::string::npos);
}

TEST_P(Library, loads_with_glibc_2_17) {
  const auto versions = lines_with(readelf("-V"), "Name: GLIBC_");
  ASSERT_FALSE(versions.empty());
  for (const std::string& line : versions) {
    const std::string version = line.substr(line.find("GLIBC_") + 6);
    EXPECT_TRUE(version.starts_with("2.2.5 ") || version.starts_with("2.17 ")) << line;
  }
}

TEST_P(Library, carries_the_mark_by_which_run_knows_it) {
  std::ifstream file(path, std::ios::binary);
  const std::string bytes{std::istreambuf_iterator<char>(file), {}};
  const auto* mark = reinterpret_cast<const char*>(&contract::kLimiterMark);
  EXPECT_NE(bytes.find(std::string(mark, sizeof(contract::kLimiterMark))), std::string::npos);
}

TEST_P(Library, runs_no_code_and_relocates_little_at_load) {
  const std::string dynamic = readelf("-d");
  EXPECT_TRUE(lines_with(dynamic, "(INIT").empty()) << dynamic;
  EXPECT_TRUE(lines_with(dynamic, "(FINI").empty()) << dynamic;
  EXPECT_TRUE(lines_with(dynamic, "(TEXTREL)").empty());
  // Pointer tables would show here.
  EXPECT_LT(lines_with(readelf("-r"), "R_").size(), 30u);
  EXPECT_EQ(lines_with(readelf("-l"), "LOAD").size(), 2u);
}

TEST_P(Library, exports_only_entry_points_and_the_look_up_functions) {
  int entries = 0;
  for (const std::string& line : lines_with(readelf("--dyn-syms"), " GLOBAL ")) {
    if (line.find(" UND ") != std::string::npos) continue;
    const std::string name = line.substr(line.rfind(' ') + 1);
    const bool look_up = name == "dlsym" || name == "dlvsym" || name == "dlopen" || name == "dlmopen";
    EXPECT_TRUE(look_up || name.starts_with("cu") || name.starts_with("nvml")) << name;
    ++entries;
  }
  EXPECT_GT(entries, 90);
}

}  // namespace
}  // namespace tensor_fusion::guest::limiter::testing
