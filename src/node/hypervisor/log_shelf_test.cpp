#include "node/hypervisor/log_shelf.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <set>

#include "system/fd.h"
#include "system/file.h"
#include "system/scratch_directory.h"

namespace tensor_fusion::node::hypervisor {
namespace {

class Shelf : public ::testing::Test {
 protected:
  static constexpr std::uint64_t kPage = 4096;
  static std::string full(std::string id) { return id.size() < 6 ? id.append(6 - id.size(), 'x') : id; }
  std::string path(const std::string& id) const { return scratch_.path(full(id) + ".log"); }
  bool has(const std::string& id) const { return system::exists(path(id)); }
  // A line each that says which it is.
  void print(const std::string& id, std::size_t bytes) {
    const system::Fd log(::open(path(id).c_str(), O_WRONLY | O_CREAT | O_APPEND, 0600));
    std::string text;
    while (text.size() < bytes) text += "line " + std::to_string(lines_++) + "\n";
    ASSERT_EQ(::write(log.get(), text.data(), text.size()), static_cast<ssize_t>(text.size()));
    // In the order they were written in.
    const timespec times[2] = {{static_cast<time_t>(1'000'000 + lines_), 0},
                               {static_cast<time_t>(1'000'000 + lines_), 0}};
    ASSERT_EQ(::futimens(log.get(), times), 0);
  }
  std::uint64_t on_disk(const std::string& id) const {
    struct stat info{};
    return ::stat(path(id).c_str(), &info) == 0 ? static_cast<std::uint64_t>(info.st_blocks) * 512 : 0;
  }
  void prune() {
    LogShelf(scratch_.path(""), bounds_).prune([this](const std::string& id) {
      return running_.contains(id.substr(0, id.find('x')));
    });
  }
  std::string read(const std::string& id) const {
    const system::Fd log(::open(path(id).c_str(), O_RDONLY));
    return read_kept(log.get()).value();
  }

  system::ScratchDirectory scratch_;
  ShelfBounds bounds_{.file_bytes = 16 * kPage, .user_bytes = 64 * kPage, .user_files = 5};
  std::set<std::string> running_;
  std::size_t lines_ = 0;
};

TEST_F(Shelf, keeps_the_newest_part_of_a_file_in_whole_lines) {
  running_ = {"a"};
  print("a", 100 * kPage);
  const std::size_t last = lines_ - 1;
  prune();
  EXPECT_LE(on_disk("a"), bounds_.file_bytes + 2 * kPage);
  const std::string kept = read("a");
  EXPECT_GE(kept.size(), bounds_.file_bytes - 32);
  EXPECT_TRUE(kept.starts_with("line ")) << kept.substr(0, 20);
  EXPECT_TRUE(kept.ends_with("\nline " + std::to_string(last) + "\n"));
  print("a", 1);
  EXPECT_TRUE(read("a").ends_with("\nline " + std::to_string(last + 1) + "\n")) << "who appends goes on behind it";
}

TEST_F(Shelf, reads_on_where_a_reader_stands_and_skips_what_was_cut_out_meanwhile) {
  print("a", 10);
  const system::Fd log(::open(path("a").c_str(), O_RDONLY));
  EXPECT_EQ(read_kept(log.get()).value(), "line 0\nline 1\n");
  EXPECT_EQ(read_kept(log.get()).value(), "");
  print("a", 100 * kPage);
  prune();
  const std::string further = read_kept(log.get()).value();
  EXPECT_EQ(further.find('\0'), std::string::npos);
  EXPECT_TRUE(further.starts_with("line "));
  print("a", 1);
  EXPECT_EQ(read_kept(log.get()).value(), "line " + std::to_string(lines_ - 1) + "\n");
}

TEST_F(Shelf, reads_from_the_front_what_was_written_since_all_was_cut) {
  print("a", 100);
  const system::Fd log(::open(path("a").c_str(), O_RDONLY));
  EXPECT_NE(read_kept(log.get()).value(), "");
  ASSERT_EQ(::truncate(path("a").c_str(), 0), 0);
  EXPECT_EQ(read_kept(log.get()).value(), "");
  print("a", 1);
  EXPECT_EQ(read_kept(log.get()).value(), "line " + std::to_string(lines_ - 1) + "\n");
}

TEST_F(Shelf, takes_the_oldest_of_those_that_have_ended_and_never_one_that_runs) {
  running_ = {"quiet"};
  print("quiet", 1);
  for (const char* id : {"a", "b", "c", "d", "e", "f", "g"}) print(id, 10);
  prune();
  EXPECT_TRUE(has("quiet")) << "the oldest of all";
  EXPECT_FALSE(has("a") || has("b"));
  EXPECT_TRUE(has("c") && has("g"));
}

TEST_F(Shelf, bounds_what_one_user_fills) {
  for (const char* id : {"a", "b", "c", "d", "e"}) print(id, 30 * kPage);
  prune();
  EXPECT_FALSE(has("a"));
  EXPECT_TRUE(has("e"));
  running_ = {"b", "c", "d", "e", "f", "g", "h", "i"};
  for (const std::string& id : running_) print(id, 30 * kPage);
  prune();
  std::uint64_t all = 0;
  for (const std::string& id : running_) all += on_disk(id);
  EXPECT_LE(all, bounds_.user_bytes + running_.size() * kPage);
}

TEST_F(Shelf, cuts_often_only_what_may_have_grown) {
  for (const char* id : {"a", "b", "c"}) print(id, 50 * kPage);
  LogShelf(scratch_.path(""), bounds_).cut_running({full("a"), full("c"), full("n")});
  EXPECT_LE(on_disk("a"), bounds_.file_bytes + 2 * kPage);
  EXPECT_LE(on_disk("c"), bounds_.file_bytes + 2 * kPage);
  EXPECT_GE(on_disk("b"), 50 * kPage) << "it has ended: that waits for the next look at all";
  EXPECT_TRUE(has("b"));
}

TEST_F(Shelf, frees_what_an_owner_has_put_behind_the_end) {
  print("a", 10);
  const system::Fd log(::open(path("a").c_str(), O_WRONLY));
  if (::fallocate(log.get(), FALLOC_FL_KEEP_SIZE, 0, static_cast<off_t>(100 * kPage)) != 0)
    GTEST_SKIP() << "this file system puts nothing behind the end of a file";
  prune();
  EXPECT_LE(on_disk("a"), bounds_.file_bytes);
}

TEST_F(Shelf, shortens_a_file_of_its_own_to_whole_lines) {
  print("own", 10 * kPage);
  shorten(path("own"), 20 * kPage, kPage);
  EXPECT_GE(system::read_file(path("own"))->size(), 10 * kPage);
  shorten(path("own"), 8 * kPage, kPage);
  const std::string kept = system::read_file(path("own")).value();
  EXPECT_LE(kept.size(), kPage);
  EXPECT_TRUE(kept.starts_with("line ") && kept.ends_with("line " + std::to_string(lines_ - 1) + "\n"));
}

}  // namespace
}  // namespace tensor_fusion::node::hypervisor
