#include "cli/context.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/ioctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <charconv>
#include <cstddef>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <utility>

#include "base/text.h"
#include "cli/driver.h"
#include "cli/simulated_machine.h"
#include "cli/state_choice.h"
#include "contract/grant.h"
#include "node/hypervisor/state_path.h"
#include "system/fd.h"
#include "system/file.h"
#include "system/process.h"
#include "system/unix_socket.h"

namespace tensor_fusion::cli {
namespace {

constexpr const char* kMachineVariable = "TENSOR_FUSION_SIM";

std::string find_state(const std::optional<std::string>& chosen) {
  if (chosen) return node::hypervisor::state_directory(*chosen);
  std::string own = node::hypervisor::state_directory();
  if (environment(node::hypervisor::kStateVariable) || ::geteuid() == 0) return own;
  return choose_state(own, kMachineState);
}

// The hypervisor and its provider run in other folders, and so may the program of a slice. A word without a slash is a
// list of cards unless it ends as such files do.
void make_simulated_machine_absolute() {
  const auto machine = environment(kMachineVariable);
  if (!machine || machine->starts_with('/')) return;
  if (machine->find('/') == std::string::npos && !machine->ends_with(".yaml") && !machine->ends_with(".yml")) return;
  std::error_code error;
  const auto absolute = std::filesystem::absolute(*machine, error).lexically_normal();
  if (!error) ::setenv(kMachineVariable, absolute.c_str(), 1);
}

// The slice whose pages lie in this folder, by its name.
std::optional<std::string> slice_at(std::string_view folder) {
  const auto page = system::read_file(fmt::format("{}/{}", folder, contract::kGrantFile), sizeof(contract::GrantPage));
  if (!page || page->size() < sizeof(contract::GrantPage)) return std::nullopt;
  const char* name = page->data() + offsetof(contract::GrantPage, tenant);
  return std::string(name, ::strnlen(name, sizeof(contract::GrantPage::tenant)));
}

// The slice whose view this process is in; nothing outside of slices, and where one has no view of its own.
std::optional<std::string> slice_around() { return slice_at(contract::kSlicePath); }

// Of a hypervisor that was killed a moment ago a child may have the door open still, and nobody is behind it.
void await_open_door(const std::string& state) {
  constexpr int kTries = 50;
  constexpr unsigned kPauseUs = 10'000;
  constexpr std::uint64_t kPatienceMs = 200;  // one that answers late is there
  for (int tries = 0; tries < kTries; ++tries) {
    auto probe = node::hypervisor::Client::connect(state);
    const auto greeted = probe ? probe->version(kPatienceMs) : base::Result<base::Json>(base::Json());
    if (greeted || greeted.error().message != system::kClosed) return;
    ::usleep(kPauseUs);
  }
}

bool is_stopped(pid_t pid) {
  const auto stat = system::process_stat(pid);
  return stat && stat->state == 'T';
}

}  // namespace

std::optional<std::string> environment(const char* name) {
  const char* value = std::getenv(name);
  if (value == nullptr || *value == '\0') return std::nullopt;
  return value;
}

int say_failure(bool in_json, int status, std::string_view message) {
  if (in_json) {
    const auto error =
        base::Json::object({{"error", base::Json::object({{"exit_code", status}, {"message", message}})}});
    std::fprintf(stderr, "%s\n", base::valid_utf8(error.dump()).c_str());
  } else {
    // One sentence; reasons, a line each, may follow.
    std::string text;
    for (const std::string_view line : base::split(message, '\n')) text += base::printable(line) + "\n";
    std::fprintf(stderr, "tensor-fusion: %s", text.c_str());
  }
  return status;
}

Context::Context(Invocation invocation, std::string program) : invocation_(std::move(invocation)) {
  std::error_code error;
  auto self = std::filesystem::read_symlink("/proc/self/exe", error);
  if (error) self = std::filesystem::absolute(program, error);
  program_folder_ = self.parent_path().string();
  make_simulated_machine_absolute();
  // Absolute: a hypervisor that is started for it works in another folder.
  state_ = find_state(invocation_.value("state"));
  if (const auto absolute = std::filesystem::absolute(state_, error); !error) state_ = absolute.string();
}

view::Style Context::style() const {
  view::Style style;
  if (::isatty(STDOUT_FILENO) == 0) {  // whole lines, unless whoever reads them says how much fits
    if (const auto columns = environment("COLUMNS"))
      std::from_chars(columns->data(), columns->data() + columns->size(), style.width);
    return style;
  }
  style.colours = !environment("NO_COLOR") && environment("TERM").value_or("dumb") != "dumb";
  winsize size{};
  if (::ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0) style.width = size.ws_col;
  return style;
}

base::Result<node::hypervisor::Client> Context::connect_running() const {
  if (auto sound = node::hypervisor::check_state_path(state_); !sound) return std::unexpected(sound.error());
  await_open_door(state_);
  auto client = node::hypervisor::Client::connect(state_);
  const bool watches = invocation_.command != nullptr && invocation_.command->name == "top" && !invocation_.has("once");
  if (client && !watches) client->when_slow([this](pid_t pid) { say_slow(pid); });
  if (client) say_other_machine(client->pid());
  return client;
}

// `doctor` has a finding for it, and whoever stops the hypervisor is about to mend it.
void Context::say_other_machine(pid_t hypervisor) const {
  const std::string_view command = invocation_.command != nullptr ? invocation_.command->name : "";
  if (json() || command == "doctor" || command == "hypervisor" || std::exchange(said_machine_, true)) return;
  if (const auto doubt = other_machine(hypervisor))
    std::fprintf(stderr, "tensor-fusion: %s\n", base::printable(doubt->detail + "; " + doubt->advice).c_str());
}

// Nothing of it for programs: they read one document from standard error, and only where something failed.
void Context::say_slow(pid_t hypervisor) const {
  if (json() || std::exchange(said_slow_, true)) return;
  const std::string who = hypervisor > 0 ? fmt::format(" (pid {})", hypervisor) : "";
  const std::string why = hypervisor > 0 && is_stopped(hypervisor)
                              ? fmt::format("is stopped; `kill -CONT {}` lets it go on", hypervisor)
                              : "has not answered for a second";
  std::fprintf(stderr, "tensor-fusion: waiting for the hypervisor%s, which %s\n", who.c_str(), why.c_str());
}

// Slices run on when their hypervisor is killed or stopped; only another one can say which, and reach them.
base::Result<node::hypervisor::Client> Context::connect() const {
  auto client = connect_running();
  if (client || client.error().code != base::ErrorCode::kUnavailable) return client;
  if (auto outside = check_outside(); !outside) return std::unexpected(outside.error());
  if (auto there = check_state(); !there) return std::unexpected(there.error());
  const bool ours = ::access(state_.c_str(), W_OK) == 0;
  if (!ours && left_slices()) {
    return base::fail(base::ErrorCode::kPermission,
                      fmt::format("no hypervisor runs on {}; its slices go on with their last limits, and only the "
                                  "directory's owner can start another: any command does, such as `tensor-fusion ps`",
                                  state_));
  }
  if (!ours || !holds_slices(state_)) return client;
  auto another = ensure_running();
  if (another && !json())
    std::fprintf(
        stderr,
        "tensor-fusion: the hypervisor was gone; another was started, and has taken over the slices that still run\n");
  return another;
}

base::Result<void> Context::check_state() const {
  if (!invocation_.value("state") || system::exists(state_)) return {};
  return base::fail(base::ErrorCode::kNotFound,
                    fmt::format("there is no state directory {}, and so no hypervisor; name the one that a hypervisor "
                                "was started with, or leave out --state",
                                state_));
}

bool Context::left_slices() const { return !system::list_directory(state_ + "/tenants").empty(); }

std::optional<std::string> Context::slice() const {
  if (auto name = slice_around()) return name;
  const auto folder = environment(contract::kSliceVariable);
  return folder ? slice_at(*folder) : std::nullopt;
}

base::Result<node::hypervisor::Client> Context::ensure_running() const {
  auto client = connect_running();
  if (client || client.error().code != base::ErrorCode::kUnavailable) return client;
  if (auto outside = check_outside(); !outside) return std::unexpected(outside.error());
  if (!may_start_one())
    return base::fail(base::ErrorCode::kUnavailable,
                      fmt::format("no hypervisor runs on {}, and only the directory's owner may start one there; "
                                  "--state chooses a directory of your own",
                                  state_));
  // A hypervisor keeps the environment it was started with: one that sees no GPU for a mistake in it would stay, and
  // answer the next attempt too.
  if (const auto driver = check_driver(); !driver)
    return base::fail(
        base::ErrorCode::kNoDevice,
        fmt::format("there is no GPU to share here: {}; `tensor-fusion doctor` says how to get one", driver.error()));
  // One that was started may be stopped again before we reach it.
  constexpr int kAttempts = 3;
  for (int attempt = 0; attempt < kAttempts; ++attempt) {
    if (auto started = start_one(); !started) return std::unexpected(started.error());
    client = connect_running();
    if (client || client.error().code != base::ErrorCode::kUnavailable) break;
  }
  return client;
}

bool Context::may_start_one() const {
  return ::access(state_.c_str(), W_OK) == 0 || errno != EACCES || !system::exists(state_);
}

base::Result<void> Context::check_outside() const {
  const auto slice = slice_around();
  if (!slice) return {};
  return base::fail(
      base::ErrorCode::kUsage,
      fmt::format("this is inside the slice `{}`, from where no hypervisor is to be seen; ask from outside "
                  "of it, or start programs directly",
                  *slice));
}

// A hypervisor started by this process would be its child, and so the child of the program that `run` becomes. So a
// process between the two starts it and ends; what it has to say comes back through a pipe.
base::Result<void> Context::start_one() const {
  std::array<int, 2> ends{};
  if (::pipe2(ends.data(), O_CLOEXEC) != 0) return std::unexpected(system::error_of("make", "a pipe", errno));
  const system::Fd reader(ends[0]);
  system::Fd writer(ends[1]);
  const pid_t starter = ::fork();
  if (starter < 0) return std::unexpected(system::error_of("start", "a process", errno));
  if (starter == 0) {
    std::error_code error;
    const auto self = std::filesystem::read_symlink("/proc/self/exe", error);
    const auto started = node::hypervisor::Client::ensure_running(
        {.state = state_, .hypervisor_command = {self.string(), "hypervisor", "--state", state_, "--idle-exit"}});
    if (started) ::_exit(0);
    const std::string& message = started.error().message;
    if (::write(writer.get(), message.data(), message.size()) < 0) ::_exit(exit_code_of(base::ErrorCode::kInternal));
    ::_exit(exit_code_of(started.error().code));
  }
  writer.reset();
  std::string message;
  std::array<char, 512> part{};
  for (ssize_t got = 0; (got = ::read(reader.get(), part.data(), part.size())) > 0 || (got < 0 && errno == EINTR);) {
    if (got > 0) message.append(part.data(), static_cast<std::size_t>(got));
  }
  int status = 0;
  while (::waitpid(starter, &status, 0) < 0 && errno == EINTR) {
  }
  if (WIFEXITED(status) && WEXITSTATUS(status) == 0) return {};
  const int code = WIFEXITED(status) ? WEXITSTATUS(status) : exit_code_of(base::ErrorCode::kInternal);
  return base::fail(static_cast<base::ErrorCode>(code), message);
}

void Context::print(std::string_view text) const {
  while (!text.empty()) {
    const ssize_t written = ::write(STDOUT_FILENO, text.data(), text.size());
    if (written < 0 && errno == EINTR) continue;
    if (written <= 0) {
      if (written < 0 && errno == EPIPE) ::_exit(kExitOk);
      ::_exit(fail(kExitProblem, fmt::format("cannot write the output: {}", std::strerror(errno))));
    }
    text.remove_prefix(static_cast<std::size_t>(written));
  }
}

void Context::print_json(const base::Json& value) const { print(base::valid_utf8(value.pretty()) + "\n"); }

int Context::fail(int code, std::string_view message) const {
  const int status = invocation_.command != nullptr && invocation_.command->takes_program ? run_exit_code(code) : code;
  return say_failure(json(), status, message);
}

int Context::fail(const base::Error& error) const { return fail(exit_code_of(error.code), error.message); }

}  // namespace tensor_fusion::cli
