#pragma once
// What the kernel says about processes. A process is a pid and its start time: a pid alone may be another one by now.
// Any thread; nothing cached.
#include <sys/types.h>

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/result.h"
#include "system/fd.h"

namespace tensor_fusion::system {

struct ProcessStat {
  pid_t pid = 0;
  pid_t parent = 0;
  char state = '?';               // 'Z' and 'X' are dead
  std::uint64_t start_ticks = 0;  // field 22 of /proc/<pid>/stat
  unsigned threads = 1;           // the first is counted also when it has ended and others go on
  bool of_kernel = false;         // a thread of the kernel: nobody's process, and it never ends
  std::string name;
  // Where code, stack, heap, arguments and environment of what it executes were put: other numbers after each exec, and
  // read without waiting for the memory's lock. The stack's is 0 where that is not to be seen, or it has no memory.
  std::array<std::uint64_t, 10> layout{};
  bool shows_layout() const { return layout[2] != 0; }
  bool dead() const { return (state == 'Z' || state == 'X') && threads <= 1; }
};

std::optional<ProcessStat> process_stat(pid_t pid);
std::optional<std::uint64_t> start_ticks(pid_t pid);
// Under whose number /proc has the process's memory and namespaces: its own, or where its first thread has ended while
// others go on, that of one of these.
pid_t living_thread(pid_t pid);
std::vector<pid_t> namespace_pids(pid_t pid);  // NSpid: outermost first; the last is how the process names itself
std::uint64_t namespace_inode(pid_t pid, const char* kind);  // "mnt", "pid", "user"; 0 = not readable
struct ProcessUsers {
  uid_t real = 0, effective = 0, saved = 0;
};
std::optional<ProcessUsers> process_users(pid_t pid);
std::optional<uid_t> process_user(pid_t pid);  // its effective user
// Who made the outermost of the user namespaces, below ours, in which this one stands, itself included. Nobody: it is
// ours, as what a service or a container of root has, or stands outside of it.
std::optional<uid_t> maker_of(Fd user_namespace);
std::string process_cgroup(pid_t pid);   // the unified (or first) cgroup path, "" = not readable
std::string process_program(pid_t pid);  // the file that it executes, "" = not readable
// How to name it to people: as it names itself, in at most fifteen letters. Its arguments lie in its memory: whoever
// reads them waits for that memory's lock and for whatever its pages come from, as long as the process likes.
std::string shown_name(const ProcessStat& stat);
std::string process_name(pid_t pid);                // the same, "" = there is none
std::optional<std::vector<pid_t>> all_processes();  // nothing: they cannot be listed now
std::string boot_id();

bool is_alive(pid_t pid, std::uint64_t ticks);  // same process, not a zombie; false also where it cannot be read
// For whoever must not take one for gone that cannot be read now, as for want of descriptors.
enum class Life : std::uint8_t { lives, gone, unknown };
Life life_of(pid_t pid, std::uint64_t ticks);
bool is_gone(pid_t pid);                 // there is none of that number, not even a zombie; needs no descriptor
base::Result<Fd> open_pidfd(pid_t pid);  // readable when the process has died
// How a process that has died has ended, as waitpid() tells its parent: while it is a zombie, and afterwards where the
// kernel remembers (Linux 6.15).
std::optional<int> ended_with(int pidfd, pid_t pid);
base::Result<void> signal_process(int pidfd, int signal_number);
std::uint64_t resident_bytes(pid_t pid);
std::uint64_t cpu_ns(pid_t pid);  // of its living threads

}  // namespace tensor_fusion::system
