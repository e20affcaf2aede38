#include "system/loop.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include <thread>

#include "system/clock.h"
#include "system/scratch_directory.h"
#include "system/unix_socket.h"

namespace tensor_fusion::system {
namespace {

TEST(Loop, fires_timers_in_order_and_repeats) {
  auto loop = Loop::make().value();
  std::string seen;
  loop->after(3'000'000, [&] { seen += 'b'; });
  loop->after(1'000'000, [&] { seen += 'a'; });
  int ticks = 0;
  Loop::TimerId ticker = 0;
  ticker = loop->every(2'000'000, [&] {
    if (++ticks == 5) {
      loop->cancel(ticker);
      loop->stop();
    }
  });
  const std::uint64_t begin = monotonic_ns();
  loop->run();
  EXPECT_GE(monotonic_ns() - begin, 9'000'000u);
  EXPECT_EQ(seen, "ab");
  EXPECT_EQ(ticks, 5);
}

// A batch may still hold an event of a descriptor that an earlier handler of the batch has closed; the next descriptor
// gets its number.
TEST(Loop, gives_nobody_what_was_meant_for_a_closed_descriptor) {
  auto loop = Loop::make().value();
  Fd both[2] = {Fd(::eventfd(1, EFD_CLOEXEC | EFD_NONBLOCK)), Fd(::eventfd(1, EFD_CLOEXEC | EFD_NONBLOCK))};
  Fd next;
  int handled = 0, misled = 0;
  for (int i = 0; i < 2; ++i) {
    ASSERT_TRUE(loop->watch(both[i].get(), EPOLLIN, [&, i](std::uint32_t) {
      if (++handled > 1) return;
      Fd& other = both[1 - i];
      const int number = other.get();
      loop->forget(number);
      other.reset();
      next = Fd(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
      ASSERT_EQ(next.get(), number);
      ASSERT_TRUE(loop->watch(number, EPOLLIN, [&](std::uint32_t) { ++misled; }));
    }));
  }
  loop->run_once(0);
  EXPECT_EQ(handled, 1);
  EXPECT_EQ(misled, 0);
}

TEST(Loop, lets_a_handler_remove_itself) {
  auto loop = Loop::make().value();
  int ends[2];
  ASSERT_EQ(::pipe(ends), 0);
  int calls = 0;
  ASSERT_TRUE(loop->watch(ends[0], EPOLLIN, [&](std::uint32_t) {
    ++calls;
    loop->forget(ends[0]);
  }));
  ASSERT_EQ(::write(ends[1], "xx", 2), 2);
  loop->run_once(1'000'000);
  loop->run_once(1'000'000);
  EXPECT_EQ(calls, 1);
  ::close(ends[0]);
  ::close(ends[1]);
}

TEST(Loop, is_stopped_from_another_thread) {
  auto loop = Loop::make().value();
  std::thread other([&] { loop->stop(); });
  loop->run();
  other.join();
}

TEST(Loop, reads_signals) {
  auto loop = Loop::make().value();
  bool seen = false;
  ASSERT_TRUE(loop->on_signal(SIGUSR1, [&] {
    seen = true;
    loop->stop();
  }));
  ::pthread_kill(::pthread_self(), SIGUSR1);
  loop->run();
  EXPECT_TRUE(seen);
}

TEST(UnixSocket, carries_lines_and_knows_its_peer) {
  const ScratchDirectory scratch;
  auto listener = listen_unix(scratch.path("s"), 0600).value();
  LineConnection client(connect_unix(scratch.path("s")).value());
  const Fd served(::accept(listener.get(), nullptr, nullptr));
  EXPECT_EQ(peer_of(served.get())->uid, ::getuid());
  ASSERT_TRUE(client.send("hello", 1000));
  char buffer[16] = {};
  EXPECT_EQ(::read(served.get(), buffer, sizeof buffer), 6);
  ASSERT_EQ(::write(served.get(), "a\nb", 3), 3);
  EXPECT_EQ(client.receive(1000).value(), "a");
  EXPECT_EQ(client.receive(5).error().code, base::ErrorCode::kUnavailable) << "half a line is none";
}

TEST(UnixSocket, says_what_to_do_when_nobody_listens) {
  const ScratchDirectory scratch;
  const auto fd = connect_unix(scratch.path("s"));
  ASSERT_FALSE(fd);
  EXPECT_NE(fd.error().message.find("tensor-fusion hypervisor"), std::string::npos);
}

}  // namespace
}  // namespace tensor_fusion::system
