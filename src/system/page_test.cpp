#include "system/page.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstring>

#include "system/scratch_directory.h"

namespace tensor_fusion::system {
namespace {

constexpr std::size_t kSize = 5 * 4096;

TEST(MappedPage, survives_a_file_cut_under_it) {
  const ScratchDirectory scratch;
  auto page = MappedPage::create(scratch.path("p"), kSize, 0666).value();
  std::memset(page.data(), 7, kSize);
  ASSERT_EQ(::truncate(scratch.path("p").c_str(), 0), 0);
  EXPECT_FALSE(page.damaged());
  volatile char* bytes = page.as<char>();
  EXPECT_EQ(bytes[4096 * 3 + 5], 0);  // SIGBUS without the guard
  EXPECT_TRUE(page.damaged());
  bytes[10] = 1;  // a write is as harmless
  ASSERT_TRUE(page.repair());
  EXPECT_FALSE(page.damaged());
  bytes[10] = 9;
  char seen = 0;
  ASSERT_EQ(::pread(page.fd(), &seen, 1, 10), 1);
  EXPECT_EQ(seen, 9) << "the mapping must be the file again";
}

TEST(MappedPage, shares_bytes_between_two_mappings) {
  const ScratchDirectory scratch;
  auto one = MappedPage::create(scratch.path("p"), kSize, 0600).value();
  auto two = MappedPage::attach(scratch.path("p"), kSize, true).value();
  one.as<char>()[4100] = 5;
  EXPECT_EQ(two.as<char>()[4100], 5);
  EXPECT_EQ(one.identity(), two.identity());
}

TEST(MappedPage, refuses_files_of_another_size_or_kind) {
  const ScratchDirectory scratch;
  {
    auto page = MappedPage::create(scratch.path("p"), kSize, 0600);
  }
  EXPECT_FALSE(MappedPage::attach(scratch.path("p"), kSize + 1, true));
  EXPECT_FALSE(MappedPage::create(scratch.path("p"), kSize, 0600)) << "an existing file is never reused by create";
  ASSERT_EQ(::symlink(scratch.path("p").c_str(), scratch.path("l").c_str()), 0);
  EXPECT_FALSE(MappedPage::attach(scratch.path("l"), kSize, true));
  EXPECT_FALSE(MappedPage::attach(scratch.path(""), kSize, false));
}

TEST(MappedPage, leaves_other_bus_errors_alone) {
  const ScratchDirectory scratch;
  auto page = MappedPage::create(scratch.path("guarded"), kSize, 0600).value();
  {
    auto file = MappedPage::create(scratch.path("bare"), kSize, 0600);
  }
  const Fd fd(::open(scratch.path("bare").c_str(), O_RDWR | O_CLOEXEC));
  auto* bare = static_cast<volatile char*>(::mmap(nullptr, kSize, PROT_READ | PROT_WRITE, MAP_SHARED, fd.get(), 0));
  ASSERT_EQ(::ftruncate(fd.get(), 0), 0);
  EXPECT_DEATH(static_cast<void>(bare[0]), "");
}

// A page that was only promised was a signal to whoever touched it first, in a program that had done nothing wrong.
TEST(MappedPage, takes_its_space_when_it_is_made) {
  const ScratchDirectory scratch;
  const std::string path = scratch.path("page");
  ASSERT_TRUE(MappedPage::create(path, kSize, 0600));
  struct stat info{};
  ASSERT_EQ(::stat(path.c_str(), &info), 0);
  EXPECT_GE(static_cast<std::size_t>(info.st_blocks) * 512, kSize);
}

}  // namespace
}  // namespace tensor_fusion::system
