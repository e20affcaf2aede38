#include "guest/limiter/core/file_mark.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

namespace tensor_fusion::guest::limiter {
namespace {

class FileMark : public ::testing::Test {
 protected:
  FileMark() : file(::memfd_create("marked", MFD_CLOEXEC)), other(open_again(file, O_RDWR)) {}
  ~FileMark() override {
    ::close(file);
    ::close(other);
  }
  const int file;
  const int other;
  const std::uint64_t mark = fresh_mark();
};

TEST_F(FileMark, is_seen_by_other_open_files_until_the_last_copy_is_closed) {
  ASSERT_GE(other, 0);
  EXPECT_FALSE(has_mark(other, mark));
  ASSERT_EQ(set_mark(file, mark), 0);
  EXPECT_TRUE(has_mark(other, mark));
  EXPECT_FALSE(has_mark(other, mark + 1));
  const int copy = ::dup(file);
  ::close(file);
  EXPECT_TRUE(has_mark(other, mark));
  ::close(copy);
  EXPECT_FALSE(has_mark(other, mark));
}

TEST_F(FileMark, stays_while_a_child_has_the_descriptor) {
  ASSERT_EQ(set_mark(file, mark), 0);
  int line[2];
  ASSERT_EQ(::pipe(line), 0);
  const pid_t child = ::fork();
  if (child == 0) {
    char byte;
    ::close(line[1]);
    ::_exit(::read(line[0], &byte, 1) == 0 ? 0 : 1);
  }
  ::close(file);
  ::close(line[0]);
  EXPECT_TRUE(has_mark(other, mark));
  ::close(line[1]);
  int status = -1;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_FALSE(has_mark(other, mark));
}

TEST_F(FileMark, is_read_off_its_own_file_beside_other_locks) {
  EXPECT_EQ(mark_on(file), 0u);
  ASSERT_EQ(::flock(file, LOCK_SH), 0);
  EXPECT_EQ(mark_on(file), 0u);
  ASSERT_EQ(set_mark(file, mark), 0);
  EXPECT_EQ(mark_on(file), mark);
  EXPECT_EQ(mark_on(other), 0u);
  clear_mark(file, mark);
  EXPECT_EQ(mark_on(file), 0u);
}

TEST_F(FileMark, is_no_lock_over_all_bytes) {
  ASSERT_EQ(::lockf(other, F_LOCK, 0), 0);
  EXPECT_FALSE(has_mark(file, mark));
  EXPECT_NE(set_mark(file, mark), 0);
}

TEST_F(FileMark, of_a_process_goes_with_it_though_a_child_has_the_descriptor) {
  int line[2];
  ASSERT_EQ(::pipe(line), 0);
  const pid_t maker = ::fork();
  if (maker == 0) {
    if (set_own_mark(file, mark) != 0) ::_exit(1);
    if (::fork() == 0) {
      char byte;
      ::close(line[1]);
      static_cast<void>(!::read(line[0], &byte, 1));  // beyond its parent, until the test is over
    }
    ::_exit(0);
  }
  int status = -1;
  ASSERT_EQ(::waitpid(maker, &status, 0), maker);
  EXPECT_EQ(status, 0);
  EXPECT_FALSE(has_mark(file, mark));
  ASSERT_EQ(set_own_mark(file, mark), 0);
  EXPECT_TRUE(has_mark(other, mark));
  clear_own_mark(file, mark);
  EXPECT_FALSE(has_mark(other, mark));
  ::close(line[0]);
  ::close(line[1]);
}

TEST_F(FileMark, is_the_same_for_the_same_bytes_only) {
  const char a[] = "abc", b[] = "abd";
  EXPECT_EQ(mark_of(a, 3), mark_of("abc", 3));
  EXPECT_NE(mark_of(a, 3), mark_of(b, 3));
  EXPECT_NE(fresh_mark(), fresh_mark());
}

TEST_F(FileMark, a_file_is_known_by_its_inode) {
  EXPECT_EQ(identity_of(file), identity_of(other));
  EXPECT_EQ(identity_of(-1), 0u);
  EXPECT_FALSE(is_device_file(file));
  const int null = ::open("/dev/null", O_RDWR | O_CLOEXEC);
  EXPECT_TRUE(is_device_file(null));
  EXPECT_NE(identity_of(null), identity_of(file));
  EXPECT_EQ(set_mark(null, mark), 0);
  EXPECT_EQ(mark_on(null), mark);
  ::close(null);
}

}  // namespace
}  // namespace tensor_fusion::guest::limiter
