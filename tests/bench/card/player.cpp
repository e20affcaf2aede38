#include "tests/bench/card/player.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>

#include "tests/bench/share/execute.h"

namespace tensor_fusion::bench::card {
namespace {

constexpr int kPatienceMs = 60'000;  // a real card without a persistence daemon takes seconds to start

}  // namespace

Player::Player(const std::vector<std::string>& command, const Variables& more) {
  int to[2], from[2];
  if (::pipe2(to, O_CLOEXEC) != 0 || ::pipe2(from, O_CLOEXEC) != 0) return;
  pid_ = ::fork();
  if (pid_ == 0) {
    ::dup2(to[0], STDIN_FILENO);
    ::dup2(from[1], STDOUT_FILENO);
    share::execute(command, more);
  }
  ::close(to[0]);
  ::close(from[1]);
  in_ = to[1];
  out_ = from[0];
}

Player::~Player() {
  if (in_ >= 0) ::close(in_);
  if (pid_ > 0) {
    while (hear()) continue;  // until it has ended
    ::kill(pid_, SIGKILL);    // where it has not
    ::waitpid(pid_, nullptr, 0);
  }
  if (out_ >= 0) ::close(out_);
}

void Player::tell(const std::string& line) const {
  const std::string whole = line + "\n";
  [[maybe_unused]] const ssize_t written = ::write(in_, whole.data(), whole.size());  // who has ended says nothing
}

std::optional<std::string> Player::hear() {
  for (;;) {
    if (const std::size_t end = heard_.find('\n'); end != std::string::npos) {
      std::string line = heard_.substr(0, end);
      heard_.erase(0, end + 1);
      return line;
    }
    pollfd readable{out_, POLLIN, 0};
    const int ready = ::poll(&readable, 1, kPatienceMs);
    if (ready < 0 && errno == EINTR) continue;
    if (ready <= 0) return std::nullopt;
    char part[4096];
    const ssize_t got = ::read(out_, part, sizeof part);
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) return std::nullopt;
    heard_.append(part, static_cast<std::size_t>(got));
  }
}

}  // namespace tensor_fusion::bench::card
