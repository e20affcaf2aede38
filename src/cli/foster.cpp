#include "cli/foster.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstdlib>
#include <map>
#include <vector>

#include "cli/exit_code.h"
#include "system/clock.h"
#include "system/fd.h"
#include "system/file.h"
#include "system/process.h"

namespace tensor_fusion::cli {
namespace {

constexpr const char* kScratchVariable = "TENSOR_FUSION_SCRATCH";
constexpr std::uint64_t kPatienceNs = 10'000'000'000;  // for processes that are stuck in a driver
constexpr int kLookMs = 5;

// A folder in memory, as the simulated GPU wants it.
std::string make_folder() {
  for (const char* base : {"/dev/shm", "/tmp"}) {
    std::string name = std::string(base) + "/tensor-fusion-bench-XXXXXX";
    if (::mkdtemp(name.data()) != nullptr) return name;
  }
  return "";
}

// Descent, not the process group: a hypervisor has a session of its own. Those whose parent has ended are our children.
std::vector<pid_t> descendants() {
  std::map<pid_t, pid_t> parents;
  for (const pid_t pid : system::all_processes().value_or(std::vector<pid_t>()))
    if (const auto stat = system::process_stat(pid)) parents[pid] = stat->parent;
  std::vector<pid_t> found;
  for (const auto& [pid, parent] : parents) {
    pid_t at = parent;
    for (std::size_t step = 0; at > 1 && at != ::getpid() && step < parents.size(); ++step) {
      const auto above = parents.find(at);
      at = above == parents.end() ? 0 : above->second;
    }
    if (at == ::getpid()) found.push_back(pid);
  }
  return found;
}

// Until there is no child left; its children become ours when it ends. True: `child` was among them.
bool end_all(pid_t child, int& status) {
  bool reaped = false;
  const std::uint64_t end = system::monotonic_ns() + kPatienceNs;
  while (system::monotonic_ns() < end) {
    for (const pid_t pid : descendants()) ::kill(pid, SIGKILL);
    int one = 0;
    pid_t ended = 0;
    while ((ended = ::waitpid(-1, &one, WNOHANG)) > 0) {
      if (ended == child) {
        status = one;
        reaped = true;
      }
    }
    if (ended < 0 && errno == ECHILD) break;
    ::poll(nullptr, 0, kLookMs);
  }
  return reaped;
}

// Children whose parents have ended are ours as long as this lives.
class Subreaper {
 public:
  Subreaper() {
    ::prctl(PR_GET_CHILD_SUBREAPER, &before_);
    ::prctl(PR_SET_CHILD_SUBREAPER, 1);
  }
  Subreaper(const Subreaper&) = delete;
  Subreaper& operator=(const Subreaper&) = delete;
  ~Subreaper() { ::prctl(PR_SET_CHILD_SUBREAPER, before_); }

 private:
  int before_ = 0;
};

// The signals that ask a program to end, held back and read from a descriptor as long as this lives.
class Summons {
 public:
  Summons() {
    sigset_t all;
    sigemptyset(&all);
    for (const int number : {SIGINT, SIGTERM, SIGHUP, SIGPIPE}) {
      struct sigaction present{};
      ::sigaction(number, nullptr, &present);
      if (present.sa_handler != SIG_IGN) sigaddset(&all, number);  // as under nohup
    }
    ::sigprocmask(SIG_BLOCK, &all, &before_);
    fd_ = system::Fd(::signalfd(-1, &all, SFD_CLOEXEC | SFD_NONBLOCK));
  }
  Summons(const Summons&) = delete;
  Summons& operator=(const Summons&) = delete;
  ~Summons() { ::sigprocmask(SIG_SETMASK, &before_, nullptr); }

  int fd() const { return fd_.get(); }
  int number() const {
    signalfd_siginfo info{};
    return ::read(fd_.get(), &info, sizeof info) == sizeof info ? static_cast<int>(info.ssi_signo) : 0;
  }
  void forget() const { ::sigprocmask(SIG_SETMASK, &before_, nullptr); }  // in a child

 private:
  sigset_t before_{};
  system::Fd fd_;
};

[[noreturn]] void become(const std::string& program, const std::string& folder, int output) {
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  ::setenv(kScratchVariable, folder.c_str(), 1);
  ::setenv("TMPDIR", folder.c_str(), 1);
  ::dup2(output, STDOUT_FILENO);
  ::execl(program.c_str(), program.c_str(), nullptr);
  ::_exit(kExitNotExecutable);
}

}  // namespace

base::Result<Fostered> foster(const std::string& program, const std::function<bool(std::string_view)>& heard) {
  std::array<int, 2> ends{};
  if (::pipe2(ends.data(), O_CLOEXEC) != 0) return std::unexpected(system::error_of("make", "a pipe", errno));
  const system::Fd reader(ends[0]);
  system::Fd writer(ends[1]);
  const std::string folder = make_folder();
  if (folder.empty()) return std::unexpected(system::error_of("make a folder in", "/dev/shm or /tmp", errno));
  const Subreaper subreaper;
  const Summons summons;
  const pid_t child = ::fork();
  if (child == 0) {
    summons.forget();
    become(program, folder, writer.get());
  }
  const int problem = errno;
  writer.reset();
  Fostered fostered;
  std::array<pollfd, 2> watched{pollfd{reader.get(), POLLIN, 0}, pollfd{summons.fd(), POLLIN, 0}};
  std::array<char, 4096> part{};
  while (child > 0 && fostered.told_to_end == 0) {
    if (::poll(watched.data(), watched.size(), -1) < 0 && errno != EINTR) break;
    if ((watched[1].revents & POLLIN) != 0) fostered.told_to_end = summons.number();
    if ((watched[0].revents & (POLLIN | POLLHUP)) == 0) continue;
    const ssize_t got = ::read(reader.get(), part.data(), part.size());
    if (got == 0) break;
    if (got > 0 && !heard(std::string_view(part.data(), static_cast<std::size_t>(got)))) fostered.told_to_end = SIGPIPE;
  }
  int status = 0;
  bool reaped = false;
  // It has shut its output and is about to end by itself, unless somebody wants it to end now.
  while (child > 0 && fostered.told_to_end == 0 && !reaped) {
    reaped = ::waitpid(child, &status, WNOHANG) == child;
    if (!reaped && ::poll(&watched[1], 1, kLookMs) > 0) fostered.told_to_end = summons.number();
  }
  int killed = 0;
  if (end_all(child, killed) && !reaped) status = killed;
  static_cast<void>(system::remove_tree(folder));
  if (child < 0) return std::unexpected(system::error_of("start", program, problem));
  fostered.exit_code = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  return fostered;
}

}  // namespace tensor_fusion::cli
