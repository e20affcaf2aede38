#include "cli/run.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <utility>

#include "base/text.h"
#include "cli/capabilities.h"
#include "cli/limiter_library.h"
#include "cli/loader_variables.h"
#include "cli/patience.h"
#include "cli/program.h"
#include "cli/program_environment.h"
#include "cli/request.h"
#include "cli/slice_view.h"
#include "contract/grant.h"
#include "system/clock.h"
#include "system/fd.h"
#include "system/file.h"
#include "view/device.h"

namespace tensor_fusion::cli {
namespace {

using base::Error;
using base::ErrorCode;
namespace hypervisor = node::hypervisor;

constexpr std::uint64_t kPatienceNs = 10'000'000'000;
constexpr std::uint64_t kSuccessorNs = 500'000'000;  // who has ended one may be about to start another
constexpr std::uint64_t kLookForSuccessorUs = 20'000;
constexpr std::uint64_t kDriverNs = 40'000'000'000;  // for one that has just come, until it knows its GPUs
constexpr std::uint64_t kWaitForeverMs = std::uint64_t{365} * 24 * 3600 * 1000;
constexpr int kHypervisorGone = -1;  // never the exit code
constexpr const char* kDefaultPath = "/usr/local/bin:/usr/bin:/bin";

struct Failure {
  int code;
  std::string message;
};
template <typename T>
using Step = std::expected<T, Failure>;

std::unexpected<Failure> stop(int code, std::string message) {
  return std::unexpected(Failure{code, std::move(message)});
}
std::unexpected<Failure> stop(const Error& error) { return stop(exit_code_of(error.code), error.message); }

void notice(std::string_view text) {
  std::fprintf(stderr, "tensor-fusion: %.*s\n", static_cast<int>(text.size()), text.data());
}

// Lines that may hold what others chose: names of their slices.
std::string lines_of(std::string_view text) {
  std::string lines;
  for (const std::string_view line : base::split(text, '\n'))
    lines += (lines.empty() ? "" : "\n") + base::printable(line);
  return lines;
}

std::vector<std::string> own_environment() {
  std::vector<std::string> all;
  for (char** entry = environ; *entry != nullptr; ++entry) all.emplace_back(*entry);
  return all;
}

// Device files of this machine that the slice was not given.
std::vector<std::string> hidden_devices(const hypervisor::RunReply& reply, const base::Json& all) {
  std::vector<std::string> granted = reply.shared_device_files;
  for (const auto& device : reply.devices)
    granted.insert(granted.end(), device.device_files.begin(), device.device_files.end());
  std::vector<std::string> hidden;
  for (const view::Device& device : view::devices_from(all)) {
    if (device.node.empty() || std::ranges::find(granted, device.node) != granted.end()) continue;
    if (std::ranges::find(reply.devices, device.uuid, &hypervisor::RunDevice::uuid) == reply.devices.end())
      hidden.push_back(device.node);
  }
  return hidden;
}

// Where a copy of the limiter may live when there is no view to put it into.
std::vector<std::string> limiter_folders(const std::string& state) {
  std::vector<std::string> folders{state + "/limiter"};
  if (const auto data = environment("XDG_DATA_HOME")) folders.push_back(*data + "/tensor-fusion");
  if (const auto home = environment("HOME")) folders.push_back(*home + "/.local/share/tensor-fusion");
  folders.push_back(fmt::format("/var/tmp/tensor-fusion-{}", ::geteuid()));
  return folders;
}

class Run {
 public:
  Run(const Context& context, std::uint64_t patience_ns)
      : context_(context),
        invocation_(context.invocation()),
        allow_unlimited_(invocation_.has("allow-unlimited")),
        patience_(patience_ns) {}

  // Everything that can be refused without a hypervisor.
  Step<void> prepare() {
    if (!invocation_.stray_option.empty()) {
      notice(
          fmt::format("`{0}` stands after the program and goes to it, not to `run`; write it before the program, or "
                      "`--` before the program where it is meant for that",
                      invocation_.stray_option));
    }
    if (const auto inside = current_slice()) {
      return stop(kExitUsage,
                  fmt::format("this shell already runs in the slice at `{}`; start the program directly", *inside));
    }
    auto request = run_request_of(invocation_);
    if (!request) return stop(request.error());
    request_ = std::move(*request);
    if (invocation_.has("wait")) {
      request_.wait_ms = kWaitForeverMs;
      request_.tells = true;
    }
    request_.token = fmt::format("{}-{}", ::getpid(), system::monotonic_ns());
    for (const std::string& entry : invocation_.values("env")) {
      if (entry.front() == '=') return stop(kExitUsage, fmt::format("--env needs NAME=VALUE or NAME, not `{}`", entry));
    }
    const auto path = environment("PATH").value_or(kDefaultPath);
    auto program = find_program(invocation_.arguments.front(), path);
    if (!program) return stop(program.error().exit_code, program.error().message);
    program_ = std::move(*program);
    auto limiter = LimiterLibrary::load(environment(kLimiterVariable).value_or(""), context_.program_folder());
    if (!limiter) return stop(kExitCannotLimit, limiter.error());
    limiter_.emplace(std::move(*limiter));
    return check(true);
  }

  // A hypervisor may be stopped or killed at any moment; what was asked of it is asked of the next one.
  Step<void> obtain_slice() {
    while (true) {
      auto done = ask_for_slice();
      if (done || done.error().code != kHypervisorGone) return done;
      patience_.failed(system::monotonic_ns());
      if (patience_.is_over(system::monotonic_ns()))
        return stop(exit_code_of(ErrorCode::kUnavailable), done.error().message);
      await_successor();
    }
  }

  const hypervisor::RunReply& slice() const { return slice_; }

  Step<void> become_program() {
    const std::vector<std::string> hidden = hidden_devices(slice_, devices_);
    std::expected<void, std::string> entered = std::unexpected(std::string("--no-namespace was given"));
    if (!invocation_.has("no-namespace")) {
      entered = enter_slice_view({.slice_directory = slice_.slice_directory,
                                  .state_directory = context_.state(),
                                  .limiter_bytes = limiter_->bytes(),
                                  .hidden_devices = hidden});
    }
    auto for_slice = slice_.envs;
    if (entered) {
      std::erase_if(for_slice, [](const auto& pair) { return pair.first == contract::kSliceVariable; });
      if (auto done = say_where_we_are(); !done) return done;
    } else if (auto done = preload_by_environment(entered.error(), for_slice); !done) {
      return done;
    }
    if (entered && !invocation_.has("keep-capabilities")) {
      if (const auto given_up = give_up_capabilities(); !given_up)
        return stop(kExitCannotLimit,
                    fmt::format("cannot {}; give --keep-capabilities to run the program with the rights "
                                "to undo its limits",
                                given_up.error()));
    }
    if (const auto chosen = overruled_cards(own_environment(), for_slice, invocation_.values("env")))
      notice(
          fmt::format("CUDA_VISIBLE_DEVICES={} is set anew for the program, which gets the cards of its slice; --gpu "
                      "chooses them",
                      base::printable(*chosen)));
    auto variables = program_environment(own_environment(), for_slice, invocation_.values("env"));
    if (entered) preload_first(variables, fmt::format("{}/{}", kViewDirectory, kLimiterFile));
    if (!allow_unlimited_) {
      for (const std::string& name : take_out_loader_variables(variables))
        notice(
            fmt::format("{} is left out of the program's environment, because what it names can keep the limiter "
                        "out; --allow-unlimited leaves it in",
                        name));
    }
    return execute(std::move(variables));
  }

 private:
  static std::optional<std::string> current_slice() {
    if (system::exists(fmt::format("{}/{}", contract::kSlicePath, contract::kGrantFile))) return contract::kSlicePath;
    return environment(contract::kSliceVariable);
  }

  // Ends with kHypervisorGone when that went away before this process was on its books.
  Step<void> ask_for_slice() {
    auto client = context_.ensure_running();
    if (!client) {
      // Somebody else's may be about to be replaced; ours we would have started.
      if (client.error().code != ErrorCode::kUnavailable || context_.may_start_one()) return stop(client.error());
      if (!std::exchange(waits_for_owner_, true))
        notice(fmt::format("waiting for a hypervisor on {}, which only its owner may start", context_.state()));
      return gone_or(client.error());
    }
    client_.emplace(std::move(*client));
    if (const auto greeted = client_->version(); !greeted) return gone_or(greeted.error());
    patience_.reached(system::monotonic_ns());
    const bool promised = !slice_.id.empty();  // by one that has gone: the next finds it among its records
    if (!promised) {
      auto reply = client_->run(
          request_, [](const std::string& why) { notice(fmt::format("waiting in line: {}", lines_of(why))); });
      if (!reply) return gone_or(reply.error());
      slice_ = std::move(*reply);
    }
    if (auto known = await_devices(); !known) return known;
    // Before the view is entered: from within nobody could ask another hypervisor.
    if (const auto done = client_->started(slice_.id, ::getpid()); !done) {
      const bool forgotten = promised && done.error().code == ErrorCode::kNotFound;
      if (forgotten) slice_ = {};
      return forgotten ? stop(kHypervisorGone, done.error().message) : gone_or(done.error());
    }
    for (const std::string& sentence : slice_.notices) notice(base::printable(sentence));
    return {};
  }

  static std::unexpected<Failure> gone_or(const Error& error) {
    return error.code == ErrorCode::kUnavailable ? stop(kHypervisorGone, error.message) : stop(error);
  }

  // One that has just come does not know them before its driver is open, and then it knows its slices, too.
  Step<void> await_devices() {
    for (const std::uint64_t end = system::monotonic_ns() + kDriverNs; system::monotonic_ns() < end;) {
      auto devices = client_->devices();
      if (!devices) return gone_or(devices.error());
      devices_ = std::move(*devices);
      if (devices_["known"].as_bool(true)) return {};
      ::usleep(kLookForSuccessorUs);
    }
    return stop(exit_code_of(ErrorCode::kUnavailable), "the hypervisor does not know its GPUs yet");
  }

  void await_successor() const {
    const std::uint64_t end = system::monotonic_ns() + kSuccessorNs;
    while (!context_.connect_running() && system::monotonic_ns() < end) ::usleep(kLookForSuccessorUs);
  }

  // Told again, it looks where this process is now. One that has come since finds that out by itself.
  Step<void> say_where_we_are() {
    const auto told = client_->started(slice_.id, ::getpid());
    if (told || told.error().code == ErrorCode::kUnavailable) return {};
    return stop(told.error());
  }

  Step<void> check(bool through_file) {
    program_.inspected.clear();
    const auto checked = check_limitable(program_, {.through_file = through_file,
                                                    .limiter_needs_glibc = limiter_->needs_glibc(),
                                                    .search_path = environment("PATH").value_or(kDefaultPath)});
    if (checked) return {};
    if (checked.error().exit_code != kExitCannotLimit) return stop(checked.error().exit_code, checked.error().message);
    if (!allow_unlimited_)
      return stop(kExitCannotLimit,
                  fmt::format("{}; {}, or give --allow-unlimited, which runs it watched but not limited",
                              checked.error().message, checked.error().advice));
    notice(fmt::format("not limited: {}", checked.error().message));
    return {};
  }

  Step<void> preload_by_environment(const std::string& why,
                                    std::vector<std::pair<std::string, std::string>>& for_slice) {
    if (auto done = check(false); !done) return done;
    auto kept = limiter_->keep(limiter_folders(context_.state()));
    if (!kept) return stop(kExitCannotLimit, kept.error());
    notice(fmt::format("limits reach the program through LD_PRELOAD only, which a child may take off ({})", why));
    std::string present = environment("LD_PRELOAD").value_or("");
    for (const std::string& entry : invocation_.values("env")) {
      if (entry.starts_with("LD_PRELOAD=")) present = entry.substr(entry.find('=') + 1);
    }
    for_slice.emplace_back("LD_PRELOAD", merged_preload_variable(present, *kept));
    return {};
  }

  Step<void> execute(std::vector<std::string> variables) {
    std::vector<char*> arguments;
    for (const std::string& argument : invocation_.arguments) arguments.push_back(const_cast<char*>(argument.c_str()));
    arguments.push_back(nullptr);
    std::vector<char*> environment_block;
    for (std::string& variable : variables) environment_block.push_back(variable.data());
    environment_block.push_back(nullptr);
    std::fflush(nullptr);
    ::execve(program_.path.c_str(), arguments.data(), environment_block.data());
    return stop(errno == ENOENT ? kExitNoProgram : kExitNotExecutable,
                fmt::format("`{}` cannot be executed: {}", program_.path, std::strerror(errno)));
  }

  const Context& context_;
  const Invocation& invocation_;
  bool allow_unlimited_;
  Patience patience_;
  bool waits_for_owner_ = false;
  hypervisor::RunRequest request_;
  Program program_;
  std::optional<LimiterLibrary> limiter_;
  std::optional<hypervisor::Client> client_;
  hypervisor::RunReply slice_;
  base::Json devices_;
};

int run_here(const Context& context, std::uint64_t patience_ns) {
  Run run(context, patience_ns);
  auto done = run.prepare();
  if (done) done = run.obtain_slice();
  if (done) done = run.become_program();
  return context.fail(done.error().code, done.error().message);
}

std::expected<void, Failure> redirect_to(const std::string& log_path) {
  const system::Fd log(::open(log_path.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0640));
  const system::Fd nothing(::open("/dev/null", O_RDONLY | O_CLOEXEC));
  if (!log) return stop(system::error_of("keep output in", log_path, errno));
  if (::dup2(nothing.get(), STDIN_FILENO) < 0 || ::dup2(log.get(), STDOUT_FILENO) < 0 ||
      ::dup2(log.get(), STDERR_FILENO) < 0) {
    return stop(kExitProblem, fmt::format("cannot redirect the output: {}", std::strerror(errno)));
  }
  return {};
}

// The child reports through the pipe: the slice's name, or a failure before the program could start. An empty rest
// after the name means that exec has closed the pipe.
int run_detached(const Context& context, std::uint64_t patience_ns) {
  Run run(context, patience_ns);
  if (auto done = run.prepare(); !done) return context.fail(done.error().code, done.error().message);
  std::array<int, 2> ends{};
  if (::pipe2(ends.data(), O_CLOEXEC) != 0)
    return context.fail(kExitProblem, fmt::format("cannot make a pipe: {}", std::strerror(errno)));
  const system::Fd reader(ends[0]);
  system::Fd writer(ends[1]);
  const pid_t child = ::fork();
  if (child < 0) return context.fail(kExitProblem, fmt::format("cannot start a process: {}", std::strerror(errno)));
  if (child == 0) {
    ::setsid();
    const auto tell = [&](const std::string& text) {
      return ::write(writer.get(), text.data(), text.size()) == static_cast<ssize_t>(text.size());
    };
    auto done = run.obtain_slice();
    if (done) done = redirect_to(run.slice().log_path);
    if (done && !tell(fmt::format("name {}\n", run.slice().name))) ::_exit(kExitProblem);
    if (done) done = run.become_program();
    tell(fmt::format("fail {} {}", done.error().code, done.error().message));
    ::_exit(run_exit_code(done.error().code));
  }
  writer.reset();
  std::string told;
  std::array<char, 1024> part{};
  for (ssize_t got = 0; (got = ::read(reader.get(), part.data(), part.size())) > 0 || (got < 0 && errno == EINTR);) {
    if (got > 0) told.append(part.data(), static_cast<std::size_t>(got));
  }
  std::string_view rest = told;
  std::string name;
  if (rest.starts_with("name ")) {
    name = rest.substr(5, rest.find('\n') - 5);
    rest.remove_prefix(rest.find('\n') + 1);
  }
  if (rest.starts_with("fail ")) {
    rest.remove_prefix(5);
    const auto blank = rest.find(' ');
    return context.fail(std::atoi(std::string(rest.substr(0, blank)).c_str()), rest.substr(blank + 1));
  }
  if (name.empty()) return context.fail(kExitProblem, "the background process ended before it had a slice");
  if (context.json()) {
    context.print_json(base::Json::object({{"name", name}, {"pid", child}}));
  } else {
    context.print(name + "\n");
  }
  return kExitOk;
}

}  // namespace

int run(const Context& context) { return run(context, kPatienceNs); }

int run(const Context& context, std::uint64_t patience_ns) {
  return context.invocation().has("detach") ? run_detached(context, patience_ns) : run_here(context, patience_ns);
}

}  // namespace tensor_fusion::cli
