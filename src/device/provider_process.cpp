#include "device/provider_process.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/epoll.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include "device/provider.h"
#include "system/clock.h"
#include "system/file.h"

namespace tensor_fusion::device {
namespace {

using base::ErrorCode;

std::string number_text(std::uint64_t ns) { return std::to_string(ns / 1'000'000) + " ms"; }

std::string end_of(int status) {
  if (WIFSIGNALED(status))
    return "died of signal " + std::to_string(WTERMSIG(status)) + " (" + ::strsignal(WTERMSIG(status)) + ")";
  return "ended with code " + std::to_string(WEXITSTATUS(status));
}

// Nothing of the daemon may be left in the child but its code: no descriptor, no blocked signal, no handler.
[[noreturn]] void become_provider(const std::string& library, int socket, pid_t parent) {
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (::getppid() != parent) ::_exit(0);  // the daemon died before the line above
  ::prctl(PR_SET_NAME, "tf-provider");
  for (int number = 1; number < NSIG; ++number) ::signal(number, SIG_DFL);
  sigset_t none;
  sigemptyset(&none);
  ::pthread_sigmask(SIG_SETMASK, &none, nullptr);
  const int null = ::open("/dev/null", O_RDWR);
  ::dup2(null, 0);
  ::dup2(null, 1);
  constexpr int kSocket = 3;
  if (socket != kSocket) ::dup2(socket, kSocket);
  ::syscall(SYS_close_range, static_cast<unsigned>(kSocket + 1), ~0u, 0u);
  ::_exit(serve_provider(library.c_str(), kSocket));
}

}  // namespace

ProviderProcess::ProviderProcess(system::Loop& loop, std::string library, ProviderDeadlines deadlines, Events events)
    : loop_(loop), library_(std::move(library)), deadlines_(deadlines), events_(std::move(events)) {}

ProviderProcess::~ProviderProcess() {
  loop_.cancel(restart_);
  drop_process();
}

void ProviderProcess::start() { spawn(); }

void ProviderProcess::spawn() {
  int ends[2];
  if (::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) != 0) {
    fail(system::error_of("make a socket for", "the provider", errno).message);
    return;
  }
  system::Fd ours(ends[0]), theirs(ends[1]);
  const pid_t self = ::getpid();
  const pid_t child = ::fork();
  if (child == 0) become_provider(library_, theirs.get(), self);
  if (child < 0) {
    fail(system::error_of("start", "the provider process", errno).message);
    return;
  }
  pid_ = child;
  ::fcntl(ours.get(), F_SETFL, O_NONBLOCK);
  socket_ = std::move(ours);
  received_.clear();
  static_cast<void>(loop_.watch(socket_.get(), EPOLLIN, [this](std::uint32_t) { on_readable(); }));
  calls_.push_front(Call{ProviderCall::kStart, {}, {}, next_id_++});
  sent_ = false;
  send_next();
}

void ProviderProcess::call(ProviderCall what, Body body, Done done) {
  if (!ready_) {
    done(base::fail(ErrorCode::kUnavailable, "the provider is not ready: " + trouble_));
    return;
  }
  calls_.push_back(Call{what, std::move(body), std::move(done), next_id_++});
  send_next();
}

void ProviderProcess::send_next() {
  if (sent_ || calls_.empty() || !socket_) return;
  const Call& call = calls_.front();
  const ProviderHeader header{static_cast<std::uint32_t>(call.what), 0, call.id, call.body.size()};
  Body message(sizeof header + call.body.size());
  std::memcpy(message.data(), &header, sizeof header);
  if (!call.body.empty()) std::memcpy(message.data() + sizeof header, call.body.data(), call.body.size());
  // Requests are at most a few KB and one is under way at a time: the socket's buffer always holds one.
  if (::send(socket_.get(), message.data(), message.size(), MSG_NOSIGNAL) != static_cast<ssize_t>(message.size())) {
    fail(std::string("the provider process takes no request (") + word_of(call.what) + ")");
    return;
  }
  sent_ = true;
  const std::uint64_t limit = call.what == ProviderCall::kStart ? deadlines_.start_ns : deadlines_.call_ns;
  const char* word = word_of(call.what);
  deadline_ = loop_.after(limit, [this, limit, word] {
    deadline_ = 0;
    fail(std::string("the provider hangs in ") + word + " for more than " + number_text(limit) + " and was killed");
  });
}

void ProviderProcess::on_readable() {
  char block[65536];
  while (true) {
    const ssize_t got = ::recv(socket_.get(), block, sizeof block, 0);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0 && errno == EAGAIN) break;
    if (got <= 0) {
      const std::string during = calls_.empty() || !sent_ ? "" : std::string(" in ") + word_of(calls_.front().what);
      const auto status = end_process();
      fail("the provider process " + (status ? end_of(*status) : std::string("went away")) + during);
      return;
    }
    received_.insert(received_.end(), block, block + got);
  }
  while (socket_ && take_message()) {
  }
}

bool ProviderProcess::take_message() {
  ProviderHeader header;
  if (received_.size() < sizeof header) return false;
  std::memcpy(&header, received_.data(), sizeof header);
  if (header.size > kMaxProviderMessage) {
    fail("the provider process answers nonsense and was killed");
    return false;
  }
  if (received_.size() < sizeof header + header.size) return false;
  const auto begin = received_.begin() + static_cast<std::ptrdiff_t>(sizeof header);
  Body body(begin, begin + static_cast<std::ptrdiff_t>(header.size));
  received_.erase(received_.begin(), begin + static_cast<std::ptrdiff_t>(header.size));
  if (header.call == static_cast<std::uint32_t>(ProviderCall::kLog)) {
    const auto split = std::find(body.begin(), body.end(), '\0');
    if (events_.log && split != body.end())
      events_.log(std::string(body.begin(), split), std::string(split + 1, body.end()));
    return true;
  }
  if (calls_.empty() || !sent_ || calls_.front().id != header.id) return true;
  Call call = std::move(calls_.front());
  calls_.pop_front();
  sent_ = false;
  loop_.cancel(deadline_);
  deadline_ = 0;
  const auto result = static_cast<AccelResult>(header.result);
  if (call.what == ProviderCall::kStart) {
    on_start(result, body);
    return true;
  }
  send_next();
  if (result == ACCEL_SUCCESS) {
    call.done(std::move(body));
  } else {
    const ErrorCode code = result == ACCEL_ERROR_NOT_FOUND ? ErrorCode::kNotFound : ErrorCode::kInternal;
    call.done(base::fail(code, std::string(word_of(call.what)) + ": " + word_of(result)));
  }
  return true;
}

void ProviderProcess::on_start(AccelResult result, const Body& body) {
  const std::string text(body.begin(), body.end());
  if (result != ACCEL_SUCCESS) {
    fail(text);
    return;
  }
  name_ = text;
  ready_ = true;
  trouble_.clear();
  ready_since_ns_ = system::monotonic_ns();
  if (events_.ready) events_.ready();
  send_next();
}

void ProviderProcess::drop_process() {
  loop_.cancel(deadline_);
  deadline_ = 0;
  if (socket_) loop_.forget(socket_.get());
  socket_.reset();
  static_cast<void>(end_process());
  ready_ = false;
  sent_ = false;
  received_.clear();
}

// Kills and reaps. A process stuck inside the driver cannot be reaped now: it is looked at again at the next start, for
// the daemon must not wait here longer than a heartbeat.
std::optional<int> ProviderProcess::end_process() {
  std::erase_if(stuck_, [](pid_t pid) { return ::waitpid(pid, nullptr, WNOHANG) != 0; });
  if (pid_ <= 0) return std::nullopt;
  const pid_t child = std::exchange(pid_, -1);
  ::kill(child, SIGKILL);
  int status = 0;
  for (int tries = 0; tries < 20; ++tries) {
    if (::waitpid(child, &status, WNOHANG) == child) return status;
    ::usleep(500);
  }
  stuck_.push_back(child);
  return std::nullopt;
}

void ProviderProcess::fail(const std::string& why) {
  const bool was_ready = ready_;
  drop_process();
  trouble_ = why;
  constexpr std::uint64_t kSteadyNs = 30'000'000'000;  // ran so long: the next pause begins small again
  if (was_ready && system::monotonic_ns() - ready_since_ns_ > kSteadyNs) pause_ns_ = 0;
  std::deque<Call> lost;
  lost.swap(calls_);
  schedule_restart();
  if (events_.unhealthy) events_.unhealthy(why);
  for (Call& call : lost)
    if (call.done) call.done(base::fail(ErrorCode::kUnavailable, why));
}

void ProviderProcess::schedule_restart() {
  pause_ns_ = pause_ns_ == 0 ? deadlines_.first_pause_ns : std::min(pause_ns_ * 2, deadlines_.longest_pause_ns);
  loop_.cancel(restart_);
  restart_ = loop_.after(pause_ns_, [this] {
    restart_ = 0;
    ++restarts_;
    spawn();
  });
}

}  // namespace tensor_fusion::device
