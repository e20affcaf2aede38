#include "system/process.h"

#include <dirent.h>
#include <linux/nsfs.h>
#include <signal.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <charconv>
#include <cstdlib>
#include <cstring>
#include <utility>

#include "base/text.h"
#include "system/file.h"

namespace tensor_fusion::system {
namespace {

std::string entry(pid_t pid, const char* name) { return "/proc/" + std::to_string(pid) + "/" + name; }

template <typename Number>
Number number_from(std::string_view text) {
  Number value{};
  std::from_chars(text.data(), text.data() + text.size(), value);
  return value;
}

// The fields of /proc/<pid>/stat after the name; [0] is the state, field 3 of the manual.
std::vector<std::string_view> stat_fields(const std::string& content, std::string* name) {
  const std::size_t open = content.find('('), close = content.rfind(')');  // a name may hold any letter, ')' too
  if (open == std::string::npos || close == std::string::npos || close < open) return {};
  if (name) *name = content.substr(open + 1, close - open - 1);
  return base::split(base::trim(std::string_view(content).substr(close + 1)), ' ');
}

}  // namespace

std::optional<ProcessStat> process_stat(pid_t pid) {
  if (pid <= 0) return std::nullopt;
  const auto content = read_file(entry(pid, "stat"), 8192);
  if (!content) return std::nullopt;
  ProcessStat stat;
  const auto fields = stat_fields(*content, &stat.name);
  if (fields.size() < 20) return std::nullopt;
  stat.pid = pid;
  stat.state = fields[0].empty() ? '?' : fields[0][0];
  stat.parent = number_from<pid_t>(fields[1]);
  constexpr unsigned kKernelThread = 0x00200000;  // PF_KTHREAD
  stat.of_kernel = (number_from<unsigned>(fields[6]) & kKernelThread) != 0;
  stat.threads = number_from<unsigned>(fields[17]);
  stat.start_ticks = number_from<std::uint64_t>(fields[19]);
  constexpr std::array<std::size_t, 10> kLayoutFields = {23, 24, 25, 42, 43, 44, 45, 46, 47, 48};  // 26 to 28, 45 to 51
  for (std::size_t i = 0; i < kLayoutFields.size() && kLayoutFields[i] < fields.size(); ++i)
    stat.layout[i] = number_from<std::uint64_t>(fields[kLayoutFields[i]]);
  return stat;
}

std::optional<std::uint64_t> start_ticks(pid_t pid) {
  const auto stat = process_stat(pid);
  if (!stat) return std::nullopt;
  return stat->start_ticks;
}

std::vector<pid_t> namespace_pids(pid_t pid) {
  std::vector<pid_t> pids;
  const auto content = read_file(entry(pid, "status"), 65536);
  if (!content) return pids;
  for (const std::string_view line : base::split(*content, '\n')) {
    if (!line.starts_with("NSpid:")) continue;
    for (const std::string_view field : base::split(line.substr(6), '\t'))
      if (!base::trim(field).empty()) pids.push_back(number_from<pid_t>(base::trim(field)));
  }
  return pids;
}

pid_t living_thread(pid_t pid) {
  const auto first = process_stat(pid);
  if (!first || first->threads <= 1 || (first->state != 'Z' && first->state != 'X')) return pid;
  for (const std::string& task : list_directory(entry(pid, "task"))) {
    const auto thread = process_stat(number_from<pid_t>(task));
    if (thread && thread->state != 'Z' && thread->state != 'X') return thread->pid;
  }
  return pid;
}

std::uint64_t namespace_inode(pid_t pid, const char* kind) {
  struct stat info{};
  if (::stat((entry(pid, "ns/") + kind).c_str(), &info) == 0) return static_cast<std::uint64_t>(info.st_ino);
  const pid_t thread = errno == EACCES ? pid : living_thread(pid);
  if (thread == pid || ::stat((entry(thread, "ns/") + kind).c_str(), &info) != 0) return 0;
  return static_cast<std::uint64_t>(info.st_ino);
}

std::optional<ProcessUsers> process_users(pid_t pid) {
  // Not the owner of its entry: that is root where a process does not let itself be dumped, which it says itself.
  const auto content = read_file(entry(pid, "status"), 65536);
  const std::size_t at = content ? content->find("\nUid:\t") : std::string::npos;
  if (at == std::string::npos) return std::nullopt;
  const auto fields = base::split(std::string_view(*content).substr(at + 6), '\t');  // real, effective, saved, files
  if (fields.size() < 3) return std::nullopt;
  return ProcessUsers{number_from<uid_t>(fields[0]), number_from<uid_t>(fields[1]), number_from<uid_t>(fields[2])};
}

std::optional<uid_t> process_user(pid_t pid) {
  const auto users = process_users(pid);
  return users ? std::optional(users->effective) : std::nullopt;
}

std::optional<uid_t> maker_of(Fd user_namespace) {
  const std::uint64_t ours = namespace_inode(::getpid(), "user");
  std::optional<uid_t> maker;
  struct stat info{};
  while (user_namespace && ::fstat(user_namespace.get(), &info) == 0 && info.st_ino != ours) {
    uid_t user = 0;
    if (::ioctl(user_namespace.get(), NS_GET_OWNER_UID, &user) == 0) maker = user;
    user_namespace = Fd(::ioctl(user_namespace.get(), NS_GET_PARENT));
  }
  return maker;
}

std::string process_cgroup(pid_t pid) {
  const auto content = read_file(entry(pid, "cgroup"), 65536);
  if (!content) return "";
  std::string first;
  for (const std::string_view line : base::split(*content, '\n')) {
    const auto fields = base::split(line, ':');
    if (fields.size() < 3) continue;
    if (fields[0] == "0") return std::string(fields[2]);
    if (first.empty()) first = fields[2];
  }
  return first;
}

std::string process_program(pid_t pid) {
  constexpr std::string_view kGone = " (deleted)";
  std::array<char, 4096> path{};
  const ssize_t length = ::readlink(entry(pid, "exe").c_str(), path.data(), path.size());
  std::string_view program(path.data(), length > 0 ? static_cast<std::size_t>(length) : 0);
  if (program.ends_with(kGone)) program.remove_suffix(kGone.size());  // replaced by a newer one
  return std::string(program);
}

std::string shown_name(const ProcessStat& stat) {
  std::string name = stat.name;
  for (char& c : name)
    if (static_cast<unsigned char>(c) < 0x20) c = ' ';
  return name;
}

std::string process_name(pid_t pid) {
  const auto stat = process_stat(pid);
  return stat ? shown_name(*stat) : "";
}

std::optional<std::vector<pid_t>> all_processes() {
  std::vector<pid_t> pids;
  DIR* listing = ::opendir("/proc");
  if (!listing) return std::nullopt;
  errno = 0;
  while (const dirent* item = ::readdir(listing)) {
    const pid_t pid = number_from<pid_t>(item->d_name);
    if (pid > 0) pids.push_back(pid);
    errno = 0;
  }
  const bool whole = errno == 0;
  ::closedir(listing);
  return whole ? std::optional(std::move(pids)) : std::nullopt;
}

std::string boot_id() {
  const auto content = read_file("/proc/sys/kernel/random/boot_id", 256);
  return content ? std::string(base::trim(*content)) : "";
}

bool is_alive(pid_t pid, std::uint64_t ticks) {
  const auto stat = process_stat(pid);
  return stat && !stat->dead() && stat->start_ticks == ticks;
}

Life life_of(pid_t pid, std::uint64_t ticks) {
  const auto stat = process_stat(pid);
  if (!stat) return is_gone(pid) ? Life::gone : Life::unknown;
  return !stat->dead() && stat->start_ticks == ticks ? Life::lives : Life::gone;
}

bool is_gone(pid_t pid) { return pid <= 0 || (::kill(pid, 0) != 0 && errno == ESRCH); }

base::Result<Fd> open_pidfd(pid_t pid) {
  const long fd = ::syscall(SYS_pidfd_open, pid, 0);
  if (fd < 0) return std::unexpected(error_of("watch process", std::to_string(pid), errno == ESRCH ? ENOENT : errno));
  return Fd(static_cast<int>(fd));
}

std::optional<int> ended_with(int pidfd, pid_t pid) {
  struct Info {  // struct pidfd_info of Linux 6.15
    std::uint64_t mask, cgroup;
    std::uint32_t ids[11];
    std::int32_t exit_status;
  };
  static_assert(sizeof(Info) == 64);
  constexpr std::uint64_t kExit = 1u << 3;
  const auto remembered = [pidfd]() -> std::optional<int> {
    Info info{};
    info.mask = kExit;
    if (::ioctl(pidfd, _IOWR(0xff, 11, Info), &info) != 0 || (info.mask & kExit) == 0) return std::nullopt;
    return info.exit_status;
  };
  if (const auto status = remembered()) return status;
  constexpr std::size_t kExitField = 49;  // the 52nd, after the number and the name
  const auto content = read_file(entry(pid, "stat"), 8192);
  std::string name;
  const auto fields = content ? stat_fields(*content, &name) : std::vector<std::string_view>();
  if (fields.size() > kExitField && fields[0] == "Z") return number_from<int>(fields[kExitField]);
  return remembered();  // taken by its parent meanwhile
}

base::Result<void> signal_process(int pidfd, int signal_number) {
  if (::syscall(SYS_pidfd_send_signal, pidfd, signal_number, nullptr, 0) != 0)
    return std::unexpected(error_of("signal", "a process", errno == ESRCH ? ENOENT : errno));
  return {};
}

std::uint64_t resident_bytes(pid_t pid) {
  const auto content = read_file(entry(pid, "statm"), 4096);
  if (!content) return 0;
  const auto fields = base::split(*content, ' ');
  if (fields.size() < 2) return 0;
  return number_from<std::uint64_t>(fields[1]) * static_cast<std::uint64_t>(::sysconf(_SC_PAGESIZE));
}

std::uint64_t cpu_ns(pid_t pid) {
  // Nanoseconds of every thread that lives; /proc/<pid>/stat counts ticks of 10 ms.
  std::uint64_t total = 0;
  const std::string tasks = entry(pid, "task");
  for (const std::string& task : list_directory(tasks)) {
    const auto content = read_file(tasks + "/" + task + "/schedstat", 4096);
    if (content) total += number_from<std::uint64_t>(*content);
  }
  return total;
}

}  // namespace tensor_fusion::system
