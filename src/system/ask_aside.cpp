#include "system/ask_aside.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>

#include "system/clock.h"
#include "system/fd.h"

namespace tensor_fusion::system {
namespace {

using Ask = std::function<bool(std::size_t)>;

constexpr int kAnswers = 3;  // the descriptor, in the process that asks

[[noreturn]] void ask_all(int answers, std::size_t from, std::size_t count, const Ask& ask) {
  if (::dup2(answers, kAnswers) != kAnswers) std::_Exit(1);
  ::close_range(kAnswers + 1, ~0u, 0);
  const pid_t self = ::getpid();
  if (::write(kAnswers, &self, sizeof self) != sizeof self) std::_Exit(1);
  for (std::size_t i = from; i < count; ++i) {
    const char answer = ask(i) ? 1 : 0;
    if (::write(kAnswers, &answer, 1) != 1) std::_Exit(1);
  }
  std::_Exit(0);
}

// Nobody's child: one that is killed while it waits may end much later, and is waited for by none of us.
Fd start(std::size_t from, std::size_t count, const Ask& ask) {
  int ends[2];
  if (::pipe2(ends, O_CLOEXEC) != 0) return {};
  Fd reader(ends[0]);
  const Fd writer(ends[1]);
  const pid_t between = ::fork();
  if (between == 0) {
    if (::fork() == 0) ask_all(writer.get(), from, count, ask);
    std::_Exit(0);
  }
  if (between < 0) return {};
  while (::waitpid(between, nullptr, 0) < 0 && errno == EINTR) {
  }
  return reader;
}

// How many bytes have come; 0: it has ended, or says nothing for so long.
std::size_t read_within(int reader, void* to, std::size_t size, std::uint64_t until_ns, bool& ended) {
  for (;;) {
    const std::uint64_t now = monotonic_ns();
    pollfd wait{.fd = reader, .events = POLLIN, .revents = 0};
    const int left_ms = now < until_ns ? static_cast<int>((until_ns - now) / 1'000'000) + 1 : 0;
    const int ready = ::poll(&wait, 1, left_ms);
    if (ready < 0 && errno == EINTR) continue;
    if (ready <= 0) return 0;
    const ssize_t got = ::read(reader, to, size);
    if (got < 0 && errno == EINTR) continue;
    ended = got <= 0;
    return ended ? 0 : static_cast<std::size_t>(got);
  }
}

}  // namespace

std::vector<bool> asked_aside(std::size_t count, const Ask& ask, Patience patience) {
  constexpr std::uint64_t kMs = 1'000'000;
  std::vector<bool> answers;
  const std::uint64_t end_ns = monotonic_ns() + static_cast<std::uint64_t>(patience.all_ms) * kMs;
  const auto until_ns = [&] {
    return std::min(end_ns, monotonic_ns() + static_cast<std::uint64_t>(patience.each_ms) * kMs);
  };
  while (answers.size() < count && monotonic_ns() < end_ns) {
    const Fd reader = start(answers.size(), count, ask);
    pid_t pid = 0;
    bool ended = false;
    // It has its number ready before it asks anything; how soon it is let run depends on how busy the machine is.
    if (!reader || read_within(reader.get(), &pid, sizeof pid, end_ns, ended) != sizeof pid) break;
    char answer = 0;
    while (answers.size() < count && read_within(reader.get(), &answer, 1, until_ns(), ended) == 1)
      answers.push_back(answer != 0);
    if (!ended && answers.size() < count) ::kill(pid, SIGKILL);  // it lives: nobody else has the other end
    if (answers.size() < count) answers.push_back(false);
  }
  answers.resize(count, false);
  return answers;
}

}  // namespace tensor_fusion::system
