#pragma once
// A view whose first process has ended and left others behind, for tests.
#include <gtest/gtest.h>
#include <sched.h>
#include <signal.h>
#include <sys/mount.h>
#include <unistd.h>

#include <cstdlib>
#include <memory>
#include <string>

#include "node/hypervisor/process_table.h"
#include "node/hypervisor/test_relay.h"
#include "node/hypervisor/view_mount.h"
#include "system/eventually.h"
#include "system/file.h"
#include "system/process.h"
#include "system/scratch_directory.h"

namespace tensor_fusion::node::hypervisor {

using system::eventually;

inline bool is_empty(const TenantRecord& record) { return ProcessTable::look({&record}, 20'000'000).is_empty(record); }

// Who keeps it: its own, or those of whom it is not known.
inline std::string kept_by(const TenantRecord& record) {
  const ProcessTable table = ProcessTable::look({&record}, 20'000'000);
  std::string all = table.shows_nobody_of(record) ? "nobody" : "";
  for (const auto& [pid, process] : table.all()) {
    const InView in = table.in_view(record, process.mount_namespace);
    if (in == InView::kNo) continue;
    const auto stat = system::process_stat(pid);
    all += (in == InView::kYes ? " " : " maybe ") + std::to_string(pid) + " (" + (stat ? stat->name : "gone") + ")";
  }
  return all;
}

// A view whose first process has ended and left one behind in a namespace that it made within.
struct LeftBehind {
  // What that does is told by `act`; it says itself that it is there, by a letter to `out`.
  explicit LeftBehind(void (*act)(int out)) {
    if (!system::replace_file(scratch.path("grant"), "") || !system::replace_file(scratch.path("here"), ""))
      std::abort();
    record.user = ::geteuid();
    record.grant_mount = mount_name(scratch.path("grant"));
    int letters[2];
    if (::pipe(letters) != 0) std::abort();
    keeper = std::make_unique<Keeper>([&] {
      ::close(letters[0]);
      if (::unshare(CLONE_NEWNS) != 0 || ::mount(nullptr, "/", nullptr, MS_REC | MS_PRIVATE, nullptr) != 0 ||
          ::mount(scratch.path("grant").c_str(), scratch.path("here").c_str(), nullptr, MS_BIND, nullptr) != 0)
        std::_Exit(77);
      where.wait();
      if (::unshare(CLONE_NEWUSER | CLONE_NEWNS) != 0) std::_Exit(77);
      if (::fork() != 0) std::_Exit(0);
      act(letters[1]);
    });
    ::close(letters[1]);
    char letter = 0;
    can_be = where.keep() && ::read(letters[0], &letter, 1) == 1;
    record.mount_namespace = where.number;
    out = letters[0];
  }
  ~LeftBehind() {
    ::close(out);  // they end with whoever listens
    if (!can_be) return;
    EXPECT_TRUE(eventually([&] { return is_empty(record); })) << kept_by(record);
  }
  system::ScratchDirectory scratch;
  KeptNamespace where;
  TenantRecord record;
  bool can_be = false;
  int out = -1;
  std::unique_ptr<Keeper> keeper;
};

// Until nobody listens any more.
[[noreturn]] inline void stay(int out) {
  ::signal(SIGPIPE, SIG_IGN);
  while (::write(out, "x", 1) == 1) continue;
  std::_Exit(0);
}

inline void change_root(const char* root = "/usr") {
  if (::chroot(root) != 0 || ::chdir("/") != 0) std::_Exit(77);
}

}  // namespace tensor_fusion::node::hypervisor
