#pragma once
// Processes of which each forks the next and exits, for ever, for tests.
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <functional>
#include <memory>
#include <string>
#include <utility>

#include "node/hypervisor/tenant_record.h"
#include "system/fd.h"
#include "system/file.h"
#include "system/process.h"

namespace tensor_fusion::node::hypervisor {

// Somebody is alive at any time, and nobody for long.
[[noreturn]] inline void relay(int out) {
  for (;;) {
    const pid_t next = ::fork();
    if (next < 0) std::_Exit(1);
    if (next != 0) std::_Exit(0);
    const char letter = 'x';
    if (::write(out, &letter, 1) != 1) std::_Exit(1);  // ends with whoever listens
  }
}

// A mount namespace by its number, which a descriptor keeps: the kernel gives the number of one that nobody has any
// more to the next, and who was looked for there would be found in another test.
class KeptNamespace {
 public:
  KeptNamespace() {
    if (::pipe(here_) != 0 || ::pipe(go_) != 0) std::abort();
  }
  ~KeptNamespace() {
    for (const int fd : {here_[0], here_[1], go_[0], go_[1]})
      if (fd >= 0) ::close(fd);
  }
  KeptNamespace(const KeptNamespace&) = delete;
  KeptNamespace& operator=(const KeptNamespace&) = delete;
  // Of who is there, until it is kept.
  void wait() const {
    const pid_t self = ::getpid();
    char letter = 0;
    if (::write(here_[1], &self, sizeof self) < 0 || ::read(go_[0], &letter, 1) != 1) std::_Exit(77);
  }
  // False: nobody came there.
  bool keep() {
    ::close(std::exchange(here_[1], -1));
    pid_t pid = 0;
    if (::read(here_[0], &pid, sizeof pid) != sizeof pid) return false;
    kept_ = system::Fd(::open(("/proc/" + std::to_string(pid) + "/ns/mnt").c_str(), O_RDONLY | O_CLOEXEC));
    number = system::namespace_inode(pid, "mnt");
    return ::write(go_[1], "g", 1) == 1;
  }
  std::uint64_t number = 0;

 private:
  int here_[2], go_[2];
  system::Fd kept_;
};

// A process to whom the orphans of all below it come, and who lets none of them stay a zombie: not every machine's
// first process comes after one that forks without pause, and then each look goes over tens of thousands.
class Keeper {
 public:
  explicit Keeper(const std::function<void()>& first) {
    pid_ = ::fork();
    if (pid_ != 0) return;
    ::prctl(PR_SET_CHILD_SUBREAPER, 1);
    ::signal(SIGCHLD, SIG_IGN);
    self = ::getpid();
    const pid_t child = ::fork();
    if (child == 0) first();
    const std::string files = "/proc/self/fd";  // nobody waits for a pipe's end because of us
    for (const std::string& name : system::list_directory(files))
      if (const int fd = std::atoi(name.c_str()); fd > 2) ::close(fd);
    for (;;) ::pause();
  }
  ~Keeper() {
    ::kill(pid_, SIGKILL);
    ::waitpid(pid_, nullptr, 0);
  }
  inline static pid_t self = 0;  // in it and its children
  Keeper(const Keeper&) = delete;
  Keeper& operator=(const Keeper&) = delete;

 private:
  pid_t pid_ = -1;
};

// Processes beside that come and go, as while something is built: in hardly any list of all are those still alive who
// have just come. They are nobody's.
class Storm {
 public:
  Storm() : keeper_([] { blow(8); }) {}

 private:
  [[noreturn]] static void blow(int strength) {
    ::prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (::getppid() != Keeper::self) std::_Exit(0);  // it was ended before that
    const pid_t first = ::getpid();
    while (--strength > 0 && ::fork() != 0) continue;
    if (::getpid() != first) {
      ::prctl(PR_SET_PDEATHSIG, SIGKILL);
      if (::getppid() != first) std::_Exit(0);  // it was ended before
    }
    for (pid_t last = 0;;) {
      const pid_t next = ::fork();
      if (next == 0) std::_Exit(0);
      siginfo_t info{};
      ::waitid(P_PID, static_cast<id_t>(next), &info, WEXITED | WNOWAIT);
      if (last > 0) ::waitpid(last, nullptr, 0);  // somebody is always there who has ended just now
      last = next;
    }
  }
  Keeper keeper_;
};

// Its letters tell that it goes on.
struct Relay {
  Relay() {
    int letters[2];
    if (::pipe(letters) != 0) std::abort();
    keeper = std::make_unique<Keeper>([&] {
      ::close(letters[0]);
      if (::unshare(CLONE_NEWNS) != 0) std::_Exit(77);
      where.wait();
      relay(letters[1]);
    });
    ::close(letters[1]);
    can_be = where.keep();
    record.mount_namespace = where.number;
    out = letters[0];
  }
  ~Relay() { ::close(out); }
  bool goes_on() const {
    char letter = 0;
    return ::read(out, &letter, 1) == 1;
  }
  KeptNamespace where;
  TenantRecord record;
  bool can_be = false;
  int out = -1;
  std::unique_ptr<Keeper> keeper;
};

}  // namespace tensor_fusion::node::hypervisor
