#include "node/hypervisor/client.h"

#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/text.h"
#include "node/hypervisor/state_directory.h"
#include "system/clock.h"
#include "system/file.h"

namespace tensor_fusion::node::hypervisor {
namespace {

using base::ErrorCode;
using base::Json;

// What the shell of the first `run` may use is no measure for who serves everybody.
void leave_limits_of_its_shell() {
  for (const auto what : {RLIMIT_CPU, RLIMIT_FSIZE, RLIMIT_DATA, RLIMIT_AS, RLIMIT_NOFILE}) {
    rlimit limit{};
    if (::getrlimit(what, &limit) != 0) continue;
    const rlimit none{RLIM_INFINITY, RLIM_INFINITY}, most{limit.rlim_max, limit.rlim_max};
    if (what == RLIMIT_NOFILE || ::setrlimit(what, &none) != 0) ::setrlimit(what, &most);
  }
  sched_param plain{};
  ::sched_setscheduler(0, SCHED_OTHER, &plain);
  ::setpriority(PRIO_PROCESS, 0, 0);
  ::umask(022);
}

// Its own session, so that a terminal's hang-up or ^C does not reach it; output goes to a file.
[[noreturn]] void become_daemon(const std::vector<std::string>& command, const std::string& log) {
  ::setsid();
  leave_limits_of_its_shell();
  const int null = ::open("/dev/null", O_RDWR);
  const int out = ::open(log.c_str(), O_WRONLY | O_CREAT | O_APPEND, 0644);
  ::dup2(null, 0);
  ::dup2(out >= 0 ? out : null, 1);
  ::dup2(out >= 0 ? out : null, 2);
  for (int number = 1; number < NSIG; ++number) ::signal(number, SIG_DFL);
  sigset_t none;
  sigemptyset(&none);
  ::sigprocmask(SIG_SETMASK, &none, nullptr);
  ::close_range(3, ~0u, 0);
  if (::chdir("/") != 0) ::_exit(126);
  std::vector<char*> arguments;
  for (const std::string& word : command) arguments.push_back(const_cast<char*>(word.c_str()));
  arguments.push_back(nullptr);
  ::execv(arguments[0], arguments.data());
  ::_exit(127);
}

constexpr std::uint64_t kSlowMs = 1000;
constexpr std::uint64_t kDevicesMs = 40'000;  // a driver may take its time when it is first opened
constexpr std::string_view kOurName = "tensor-fusion: ";
constexpr std::string_view kEventMark = "Z tensor-fusion hypervisor: ";  // after the time
constexpr std::string_view kBegun = "tensor-fusion: starts a hypervisor";

// Where nothing can be written the daemon could not say why it does not start: so this is found out before.
base::Result<void> begin_log(const std::string& path) {
  const system::Fd log(::open(path.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644));
  const std::string line = std::string(kBegun) + "\n";
  if (!log || ::write(log.get(), line.data(), line.size()) != static_cast<ssize_t>(line.size()))
    return std::unexpected(system::error_of("write", path, errno));
  return {};
}

std::string why_it_ended(const std::string& path) {
  const auto content = system::read_file(path);
  return content ? last_complaint(*content) : "";
}

// A hypervisor ends with the number of its error.
ErrorCode ended_with(int status) {
  const auto code = base::code_of(base::word_of(static_cast<ErrorCode>(WIFEXITED(status) ? WEXITSTATUS(status) : 0)));
  return code == ErrorCode::kInternal ? ErrorCode::kUnavailable : code;
}

bool may_try_again(ErrorCode code, int status) {
  return code == ErrorCode::kAlreadyRunning || (WIFEXITED(status) && WEXITSTATUS(status) == 0) ||
         (WIFSIGNALED(status) && (WTERMSIG(status) == SIGTERM || WTERMSIG(status) == SIGKILL));
}

}  // namespace

// What happened to it is in the log as well, and is no reason to end.
std::string last_complaint(std::string_view log) {
  std::string_view last;
  for (const std::string_view line : base::split(base::trim(log), '\n')) {
    if (line == kBegun) {
      last = {};
    } else if (line.starts_with(kOurName)) {
      last = line.substr(kOurName.size());
    } else if (last.empty() && line.find(kEventMark) == std::string_view::npos) {
      last = line;  // a loader's, or a driver's
    }
  }
  return std::string(last);
}

base::Result<Client> Client::connect(const std::string& state) {
  auto fd = system::connect_unix(state + "/" + kSocketName);
  if (!fd) return std::unexpected(fd.error());
  // Its answer says what our program loads: in a folder where anybody may write, anybody may have been here first.
  const auto peer = system::peer_of(fd->get());
  if (!peer || (peer->uid != 0 && peer->uid != ::geteuid() && ::geteuid() != 0))
    return base::fail(ErrorCode::kPermission,
                      "the hypervisor in " + state + " belongs to another user; choose another directory with --state");
  return Client(system::LineConnection(*std::move(fd)), peer->pid);
}

// One that is about to leave still has its socket for a moment; who has answered once does not leave while we talk.
base::Result<Client> Client::connect_and_greet(const std::string& state) {
  auto client = connect(state);
  if (!client) return client;
  if (const auto greeted = client->version(); !greeted && greeted.error().code == ErrorCode::kUnavailable)
    return std::unexpected(greeted.error());
  return client;
}

base::Result<Client> Client::ensure_running(const EnsureOptions& options) {
  auto client = connect_and_greet(options.state);
  if (client || client.error().code != ErrorCode::kUnavailable) return client;
  if (options.hypervisor_command.empty()) return client;
  const unsigned mode = ::geteuid() == 0 ? 0755 : 0700;
  if (auto made = system::make_directories(options.state, mode); !made) return std::unexpected(made.error());
  if (auto owned = check_owner(options.state); !owned) return std::unexpected(owned.error());
  const std::string log = options.state + "/hypervisor.log";
  if (auto begun = begin_log(log); !begun) return std::unexpected(begun.error());
  constexpr std::uint64_t kAgainNs = 200'000'000;
  pid_t child = -1;
  std::uint64_t start_at = 0;
  const std::uint64_t end = system::monotonic_ns() + options.timeout_ms * 1'000'000;
  while (system::monotonic_ns() < end) {
    client = connect_and_greet(options.state);
    if (client || client.error().code != ErrorCode::kUnavailable) return client;
    int status = 0;
    if (child > 0 && ::waitpid(child, &status, WNOHANG) == child) {
      child = -1;
      // Losing a race is fine: the other is about to listen, or it was about to leave and we try again. So is one that
      // was stopped before we reached it. Anything else is the end.
      if (const ErrorCode code = ended_with(status); !may_try_again(code, status)) {
        const std::string why = why_it_ended(log);
        return base::fail(code, "the hypervisor does not start: " + (why.empty() ? "see " + log : why));
      }
      start_at = system::monotonic_ns() + kAgainNs;
    }
    if (child < 0 && system::monotonic_ns() >= start_at) {
      child = ::fork();
      if (child < 0) return std::unexpected(system::error_of("start", "a hypervisor", errno));
      if (child == 0) become_daemon(options.hypervisor_command, log);
    }
    ::usleep(5000);
  }
  return base::fail(ErrorCode::kUnavailable, "the hypervisor does not come up within " +
                                                 std::to_string(options.timeout_ms / 1000) + " s; see " + log);
}

base::Result<std::string> Client::receive(std::uint64_t timeout_ms) {
  if (!when_slow_ || timeout_ms <= kSlowMs) return connection_.receive(timeout_ms);
  auto line = connection_.receive(kSlowMs);
  if (line || line.error().message != system::kNoAnswerInTime) return line;
  when_slow_(pid_);
  return connection_.receive(timeout_ms - kSlowMs);
}

base::Result<Json> Client::call(const Json& request, std::uint64_t timeout_ms) {
  const auto sent = connection_.send(request.dump(), timeout_ms);
  // One that lets nobody else in says why before it closes.
  auto line = receive(sent ? timeout_ms : 0);
  if (!line) return std::unexpected(said(sent ? line.error() : sent.error()));
  auto reply = Json::parse(*line);
  if (!reply) return base::fail(ErrorCode::kProtocol, "the hypervisor's answer is " + reply.error().message);
  if (!(*reply)["ok"].as_bool()) return std::unexpected(error_from(*reply));
  return reply;
}

base::Error Client::said(base::Error error) const {
  if (pid_ <= 0 || error.message != system::kNoAnswerInTime) return error;
  const std::string pid = std::to_string(pid_);
  error.message = "the hypervisor (pid " + pid + ") does not answer; `kill -9 " + pid +
                  "` ends it: slices go on, and the next command starts another";
  return error;
}

// What may take long is asked only of one that answers at all.
base::Result<Json> Client::call_patiently(const Json& request, std::uint64_t timeout_ms) {
  if (auto greeted = version(); !greeted && greeted.error().code == ErrorCode::kUnavailable) return greeted;
  return call(request, timeout_ms);
}

base::Result<RunReply> Client::run(const RunRequest& request, const std::function<void(const std::string&)>& waits) {
  auto reply = call_patiently(to_json(request), request.wait_ms + kDevicesMs);
  for (when_slow_ = {}; reply && !(*reply)["waiting"].is_null();) {  // it has answered, and there is no haste any more
    if (waits) waits((*reply)["waiting"].as_string());
    auto line = connection_.receive(request.wait_ms + kDevicesMs);
    if (!line) return std::unexpected(said(line.error()));
    reply = Json::parse(*line);
    if (!reply) return base::fail(ErrorCode::kProtocol, "the hypervisor's answer is " + reply.error().message);
    if (!(*reply)["ok"].as_bool()) return std::unexpected(error_from(*reply));
  }
  if (!reply) return std::unexpected(reply.error());
  return run_reply_from(*reply);
}

base::Result<void> Client::started(const std::string& id, int pid) {
  const auto reply = call(Json::object({{"op", "started"}, {"id", id}, {"pid", pid}}));
  if (!reply) return std::unexpected(reply.error());
  return {};
}

base::Result<Json> Client::list() { return call(Json::object({{"op", "list"}})); }
base::Result<Json> Client::devices() { return call(Json::object({{"op", "devices"}})); }
base::Result<Json> Client::limit(const LimitRequest& request) { return call_patiently(to_json(request), kDevicesMs); }

base::Result<Json> Client::kill(const std::string& tenant, int signal_number) {
  return call(Json::object({{"op", "kill"}, {"tenant", tenant}, {"signal", signal_number}}));
}

base::Result<Json> Client::await_end(const std::string& id, std::uint64_t wait_ms) {
  constexpr std::uint64_t kTimeoutMs = 10'000;
  return call(Json::object({{"op", "await_end"}, {"id", id}, {"wait_ms", wait_ms}}), wait_ms + kTimeoutMs);
}

base::Result<Json> Client::logs(const std::string& tenant) {
  return call(Json::object({{"op", "logs"}, {"tenant", tenant}}));
}
base::Result<Json> Client::doctor() { return call(Json::object({{"op", "doctor"}})); }
base::Result<Json> Client::events(std::uint64_t after) {
  return call(Json::object({{"op", "events"}, {"after", after}}));
}
base::Result<Json> Client::version(std::uint64_t timeout_ms) {
  return call(Json::object({{"op", "version"}}), timeout_ms);
}

base::Result<void> Client::stop() {
  const auto reply = call(Json::object({{"op", "stop"}}));
  if (!reply) return std::unexpected(reply.error());
  return {};
}

base::Result<void> Client::stream(const Json& request, const std::function<bool(const Json&)>& each) {
  constexpr std::uint64_t kTimeoutMs = 10'000;
  constexpr std::uint64_t kBetweenMs = 3'600'000;  // events may be far apart
  if (auto sent = connection_.send(request.dump(), kTimeoutMs); !sent) return sent;
  while (true) {
    auto line = connection_.receive(kBetweenMs);
    if (!line) return std::unexpected(line.error());
    auto reply = Json::parse(*line);
    if (!reply) return base::fail(ErrorCode::kProtocol, "the hypervisor's answer is " + reply.error().message);
    if (!(*reply)["ok"].as_bool()) return std::unexpected(error_from(*reply));
    if (!each(*reply)) return {};
  }
}

}  // namespace tensor_fusion::node::hypervisor
