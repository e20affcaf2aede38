#pragma once
// What `run` makes, made by a test: a slice with its pages mapped, and a child that stands for its program.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sched.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/stat.h>

#include <filesystem>
#include <vector>

#include "node/hypervisor/test_daemon.h"
#include "node/hypervisor/view_mount.h"

namespace tensor_fusion::node::hypervisor {

inline RunRequest request(const std::string& name, std::uint64_t vram = kTestGi, std::uint32_t compute = 1000) {
  RunRequest r;
  r.name = name;
  r.command = "python train.py";
  r.vram = base::Bytes{vram};
  r.compute = base::Percent{compute};
  return r;
}

// A tenant as `run` makes one: asked for, started, with its pages mapped.
struct Slice {
  Slice(const TestDaemon& daemon, const RunRequest& r) : client(daemon.client()) {
    auto answer = client.run(r);
    if (!answer) {
      ADD_FAILURE() << answer.error().message;
      return;
    }
    reply = *answer;
    grant = *system::MappedPage::attach(reply.slice_directory + "/grant", sizeof(contract::GrantPage), false);
    claim = *system::MappedPage::attach(reply.slice_directory + "/claim", sizeof(contract::ClaimPage), true);
  }
  bool start(pid_t pid) {
    show_grant_to(pid);
    return client.started(reply.id, pid).has_value();
  }
  // As `run` does, where the process has a mount namespace of its own: a view is where the slice's grant is mounted.
  void show_grant_to(pid_t pid) const {
    const std::string file = reply.slice_directory + "/grant";
    const system::Fd theirs(
        ::open(("/proc/" + std::to_string(system::living_thread(pid)) + "/ns/mnt").c_str(), O_RDONLY | O_CLOEXEC));
    if (!theirs || system::namespace_inode(pid, "mnt") == system::namespace_inode(::getpid(), "mnt") ||
        has_mount(mounts_of(pid).text, mount_name(file)))
      return;
    const pid_t mounter = ::fork();
    if (mounter == 0) {
      // A thread of its own that a sanitizer begins shares its root and working folder.
      const bool done = ::unshare(CLONE_FS) == 0 && ::setns(theirs.get(), CLONE_NEWNS) == 0 &&
                        ::mount(nullptr, "/", nullptr, MS_REC | MS_PRIVATE, nullptr) == 0 &&
                        ::mount(file.c_str(), file.c_str(), nullptr, MS_BIND, nullptr) == 0;
      ::_exit(done ? 0 : 1);
    }
    int status = 0;
    ::waitpid(mounter, &status, 0);
    EXPECT_EQ(status, 0);
  }
  const contract::GrantPage& granted() const { return *grant.as<contract::GrantPage>(); }
  contract::ClaimPage& claimed() const { return *claim.as<contract::ClaimPage>(); }
  void ring() const {
    const system::Fd bell(::open((reply.slice_directory + "/bell").c_str(), O_WRONLY | O_NONBLOCK));
    EXPECT_EQ(::write(bell.get(), "r", 1), 1);
  }

  Client client;
  RunReply reply;
  system::MappedPage grant, claim;
};

// Stands for the child of `run`.
struct Child {
  explicit Child(const char* name = nullptr) : pid(::fork()) {
    if (pid != 0) return;
    if (name) ::prctl(PR_SET_NAME, name);
    for (;;) ::pause();
  }
  ~Child() { end(); }
  void end() {
    if (pid <= 0) return;
    ::kill(pid, SIGKILL);
    ::waitpid(pid, nullptr, 0);
    pid = -1;
  }
  pid_t pid;
};

// A program of that name which sleeps; `before` runs in it first.
class Program {
 public:
  explicit Program(const std::string& name, const std::function<void()>& before = {}) {
    const std::string file = scratch_.path(name);
    std::filesystem::copy_file("/bin/sleep", file);
    std::filesystem::permissions(scratch_.path(""), std::filesystem::perms::others_exec,
                                 std::filesystem::perm_options::add);
    int done[2];
    if (::pipe2(done, O_CLOEXEC) != 0) std::abort();
    pid = ::fork();
    if (pid == 0) {
      if (before) before();
      ::execl(file.c_str(), "sleep", "1000", nullptr);
      std::_Exit(1);
    }
    ::close(done[1]);
    char none = 0;
    if (::read(done[0], &none, 1) != 0) std::abort();  // it executes the file now
    ::close(done[0]);
    const std::string known_as = name.substr(0, 15);  // as much of it as the kernel keeps, which is set after that
    EXPECT_TRUE(eventually([&] {
      const auto stat = system::process_stat(pid);
      return stat && stat->name == known_as;
    }));
  }
  ~Program() {
    ::kill(pid, SIGKILL);
    ::waitpid(pid, nullptr, 0);
  }
  Program(const Program&) = delete;
  Program& operator=(const Program&) = delete;
  pid_t pid = -1;

 private:
  system::ScratchDirectory scratch_;
};

// Maps a file below that folder whose path is longer than any buffer for paths, in letters that the kernel writes as
// four. Whether it could.
inline bool map_long_path(const std::string& folder) {
  const std::string name(250, '\n');
  system::Fd at(::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  for (int i = 0; i < 42 && at; ++i) {
    if (::mkdirat(at.get(), name.c_str(), 0700) != 0) return false;
    at = system::Fd(::openat(at.get(), name.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  }
  const system::Fd file(::openat(at.get(), "x", O_RDWR | O_CREAT | O_CLOEXEC, 0600));
  return file && ::ftruncate(file.get(), 4096) == 0 &&
         ::mmap(nullptr, 4096, PROT_READ, MAP_SHARED, file.get(), 0) != MAP_FAILED;
}

}  // namespace tensor_fusion::node::hypervisor
