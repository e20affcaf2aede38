#include "cli/limiter_library.h"

#include <elf.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <cstddef>
#include <filesystem>
#include <fstream>

#include "contract/limiter_mark.h"
#include "system/file.h"

namespace tensor_fusion::cli {
namespace {

namespace fs = std::filesystem;

TEST(MergedPreload, puts_the_limiter_once_before_what_was_there) {
  EXPECT_EQ(merged_preload("", "/l.so"), "/l.so\n");
  EXPECT_EQ(merged_preload("/jemalloc.so", "/l.so"), "/l.so\n/jemalloc.so\n");
  EXPECT_EQ(merged_preload("/a.so /b.so\n", "/l.so"), "/l.so\n/a.so /b.so\n");
  EXPECT_EQ(merged_preload("# /l.so is only named here\n/a.so\n", "/l.so"),
            "/l.so\n# /l.so is only named here\n/a.so\n");
  for (const char* present : {"/l.so\n", "/a.so:/l.so\n", "/a.so\t/l.so # ours\n"})
    EXPECT_EQ(merged_preload(present, "/l.so"), present);
  const std::string once = merged_preload("/a.so\n", "/l.so");
  EXPECT_EQ(merged_preload(once, "/l.so"), once);
}

TEST(MergedPreload, keeps_the_users_own_preload_variable) {
  EXPECT_EQ(merged_preload_variable("", "/l.so"), "/l.so");
  EXPECT_EQ(merged_preload_variable("/jemalloc.so", "/l.so"), "/l.so:/jemalloc.so");
  EXPECT_EQ(merged_preload_variable("/a.so  /l.so:/b.so", "/l.so"), "/l.so:/a.so:/b.so");
  EXPECT_EQ(merged_preload_variable("/lib/libasan.so.8:/a.so", "/l.so"), "/lib/libasan.so.8:/l.so:/a.so")
      << "it ends the program where it is not the first";
}

class LimiterLibraryTest : public testing::Test {
 protected:
  void SetUp() override {
    std::string pattern = testing::TempDir() + "limiter-XXXXXX";
    ASSERT_NE(::mkdtemp(pattern.data()), nullptr);
    folder_ = pattern;
    std::ifstream shell("/bin/sh", std::ios::binary);  // whole, and small whatever the build adds to ours
    program_.assign(std::istreambuf_iterator<char>(shell), {});
    elf_ = program_ + mark();
  }
  void TearDown() override { fs::remove_all(folder_); }
  std::string write(const std::string& name, std::string_view content) {
    std::ofstream(folder_ / name, std::ios::binary) << content;
    return (folder_ / name).string();
  }
  static std::string mark() {
    return {reinterpret_cast<const char*>(&contract::kLimiterMark), sizeof(contract::kLimiterMark)};
  }
  fs::path folder_;
  std::string program_;
  std::string elf_;
};

// "ld.so.preload … cannot be preloaded (cannot read file data): ignored": nothing may start then.
TEST_F(LimiterLibraryTest, is_refused_when_missing_unreadable_or_damaged_and_says_so) {
  EXPECT_NE(LimiterLibrary::load("", folder_.string()).error().find("missing"), std::string::npos);
  EXPECT_NE(LimiterLibrary::load((folder_ / "gone.so").string(), "").error().find("nothing would be limited"),
            std::string::npos);
  EXPECT_NE(LimiterLibrary::load(write("text.so", "no library"), "").error().find("damaged"), std::string::npos);
  EXPECT_NE(LimiterLibrary::load(write("empty.so", ""), "").error().find("damaged"), std::string::npos);
  for (const std::size_t size : {std::size_t{100}, std::size_t{1} << 16}) {
    const auto cut = LimiterLibrary::load(write("cut.so", elf_.substr(0, size)), "");
    ASSERT_FALSE(cut) << size;
    EXPECT_NE(cut.error().find("damaged"), std::string::npos);
  }
  EXPECT_FALSE(LimiterLibrary::load(folder_.string(), ""));
}

// Whatever else is preloaded limits nothing, and nobody would notice.
TEST_F(LimiterLibraryTest, is_refused_when_it_is_some_other_library_and_says_so) {
  const auto other = LimiterLibrary::load(write("other.so", program_), "");
  ASSERT_FALSE(other);
  EXPECT_NE(other.error().find("is some other file"), std::string::npos) << other.error();
  EXPECT_NE(other.error().find("unset TENSOR_FUSION_LIMITER"), std::string::npos) << other.error();
  EXPECT_FALSE(LimiterLibrary::load(write("knows.so", program_ + contract::kLimiterMarkPrefix), ""))
      << "this program itself has the beginning of the mark in it";
}

TEST_F(LimiterLibraryTest, is_refused_when_it_is_of_another_version_or_processor) {
  std::string older = mark();
  older.back() = static_cast<char>(older.back() + 1);
  EXPECT_NE(LimiterLibrary::load(write("older.so", program_ + older), "").error().find("another version"),
            std::string::npos);
  std::string foreign = elf_;
  foreign[offsetof(Elf64_Ehdr, e_machine)] = static_cast<char>(EM_RISCV);
  EXPECT_NE(LimiterLibrary::load(write("foreign.so", foreign), "").error().find("another processor"),
            std::string::npos);
}

// An upgrade that replaces the library under running programs ends them all.
TEST_F(LimiterLibraryTest, keeps_versions_apart_so_that_an_upgrade_never_touches_a_mapped_file) {
  const auto old_version = LimiterLibrary::load(write("limiter.so", elf_), "");
  ASSERT_TRUE(old_version) << old_version.error();
  const std::vector<std::string> folders{(folder_ / "kept").string()};
  const std::string old_path = old_version->keep(folders).value();
  const auto before = system::identity_of(old_path);

  const auto new_version = LimiterLibrary::load(write("limiter.so", elf_ + "new"), "");
  const std::string new_path = new_version->keep(folders).value();
  EXPECT_NE(new_path, old_path);
  EXPECT_EQ(system::identity_of(old_path), before);
  EXPECT_EQ(old_version->keep(folders).value(), old_path);
  EXPECT_EQ(system::identity_of(old_path), before) << "an equal file is left alone";
}

TEST_F(LimiterLibraryTest, repairs_a_kept_file_that_is_not_what_its_name_says) {
  const auto library = LimiterLibrary::load(write("limiter.so", elf_), "");
  const std::vector<std::string> folders{(folder_ / "kept").string()};
  const std::string path = library->keep(folders).value();
  std::ofstream(path) << "cut";
  EXPECT_EQ(library->keep(folders).value(), path);
  EXPECT_EQ(system::read_file(path).value(), elf_);
}

TEST_F(LimiterLibraryTest, takes_the_next_folder_when_one_cannot_be_written) {
  const auto library = LimiterLibrary::load(write("limiter.so", elf_), "");
  write("a-file", "x");
  const auto kept = library->keep({(folder_ / "a-file").string(), (folder_ / "good").string()});
  ASSERT_TRUE(kept) << kept.error();
  EXPECT_EQ(fs::path(*kept).parent_path(), folder_ / "good");
  EXPECT_FALSE(library->keep({(folder_ / "a-file").string()}));
}

TEST_F(LimiterLibraryTest, is_kept_where_nobody_else_may_write) {
  const auto library = LimiterLibrary::load(write("limiter.so", elf_), "");
  ASSERT_TRUE(library);
  const auto open_to_all = folder_ / "shared";
  fs::create_directory(open_to_all);
  fs::permissions(open_to_all, fs::perms::all);
  const auto refused = library->keep({open_to_all.string()});
  ASSERT_FALSE(refused);
  EXPECT_NE(refused.error().find("others may write"), std::string::npos) << refused.error();
  EXPECT_TRUE(fs::is_empty(open_to_all));
}

}  // namespace
}  // namespace tensor_fusion::cli
