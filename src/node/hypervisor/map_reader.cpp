#include "node/hypervisor/map_reader.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>

#include "system/process.h"

namespace tensor_fusion::node::hypervisor {
namespace {

constexpr std::size_t kMostLooks = 64;
constexpr std::size_t kPieceBytes = 16u << 10;
constexpr std::size_t kFieldBytes = 256;     // what stands before the path, and its beginning
constexpr std::size_t kFileBytes = 5 * 256;  // the last name of a path: the kernel writes some letters as four
constexpr std::string_view kLimiter = "libtensor_fusion_limiter.so";
constexpr std::string_view kDriver = "libcuda.so";

// address permissions offset device inode path: stacked file systems show another device than stat does, so the inode
// and the name decide. The path may hold anything but an end of line, also what looks like the fields before it.
bool names(std::string_view line, std::uint64_t inode, std::string_view name) {
  constexpr int kFieldsBeforeInode = 4;
  for (int field = 0; field < kFieldsBeforeInode; ++field) {
    const std::size_t blank = line.find(' ');
    if (blank == std::string_view::npos) return false;
    line.remove_prefix(blank + 1);
  }
  std::uint64_t number = 0;
  const auto [end, problem] = std::from_chars(line.data(), line.data() + line.size(), number);
  if (problem != std::errc() || number != inode) return false;
  line.remove_prefix(static_cast<std::size_t>(end - line.data()));
  const std::size_t path = line.find_first_not_of(' ');
  if (path == 0 || path == std::string_view::npos || line[path] != '/') return false;
  line = line.substr(line.rfind('/') + 1);
  constexpr std::string_view kDeleted = " (deleted)";  // what the kernel adds to one that has lost its name
  return line == name || (line.ends_with(kDeleted) && line.substr(0, line.size() - kDeleted.size()) == name);
}

// A path may be as long as its process likes. What counts are the fields and the last name.
void leave_out_the_middle(std::string& line) {
  if (line.size() > kFieldBytes + kFileBytes) line.erase(kFieldBytes, line.size() - kFieldBytes - kFileBytes);
}

bool goes_on(const system::Fd& maps) {
  char letter = 0;
  return ::pread(maps.get(), &letter, 1, 0) == 1;
}

}  // namespace

void Libraries::note(std::string_view line) {
  const auto slash = line.rfind('/');
  if (slash == std::string_view::npos) return;
  const std::string_view file = line.substr(slash + 1);
  limiter = limiter || file.starts_with(kLimiter);
  driver = driver || file.starts_with(kDriver);
}

MapReader::Answer MapReader::has_mapped(pid_t pid, std::uint64_t start_ticks, const system::FileIdentity& file,
                                        std::string_view name, std::uint64_t now_ns, Libraries* seen) {
  if (now_ns - period_ns_ >= kPeriodNs || period_ns_ == 0) {
    period_ns_ = now_ns;
    left_bytes_ = kBytesAPeriod;
  }
  looks_.remove_if([&](const Look& look) {
    return (look.answer == Answer::no || look.answer == Answer::unseen || look.ending) &&
           now_ns - look.answered_ns >= kNoHoldsNs;
  });
  auto look = std::find_if(looks_.begin(), looks_.end(), [&](const Look& one) {
    return one.pid == pid && one.start_ticks == start_ticks && one.inode == file.inode;
  });
  if (look == looks_.end()) {
    if (left_bytes_ == 0 || !has_room(now_ns)) return Answer::later;
    looks_.push_front({.pid = pid, .start_ticks = start_ticks, .inode = file.inode});
    look = looks_.begin();
    begin(*look);
  }
  look->asked_ns = now_ns;
  if (look->answer == Answer::later) go_on(*look, name);
  if (look->answer != Answer::later && look->answered_ns == 0) {
    look->answered_ns = now_ns;
    look->maps.reset();
    look->rest = {};
  }
  if (seen) *seen = look->seen;
  return look->answer;
}

// Who is being read is not given up for who comes: they would take each other's place and none would ever be read.
bool MapReader::has_room(std::uint64_t now_ns) {
  if (looks_.size() < kMostLooks) return true;
  const auto oldest = std::find_if(looks_.rbegin(), looks_.rend(), [&](const Look& look) {
    return look.answer != Answer::later || now_ns - look.asked_ns >= kNoHoldsNs;
  });
  if (oldest == looks_.rend()) return false;
  looks_.erase(std::next(oldest).base());
  return true;
}

void MapReader::begin(Look& look) {
  const std::string path = "/proc/" + std::to_string(look.pid) + "/maps";
  look.maps = system::Fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  look.answer = look.maps ? Answer::later : Answer::unseen;
  look.read_bytes = 0;
  look.rest.clear();
  look.seen = {};
  // Opening costs too, and nobody may have that for nothing.
  left_bytes_ -= std::min(left_bytes_, kPieceBytes / 4);
}

void MapReader::forget(pid_t pid) {
  looks_.remove_if([pid](const Look& look) { return look.pid == pid; });
}

bool MapReader::is_reading(pid_t pid, std::uint64_t start_ticks) const {
  return std::ranges::any_of(looks_, [&](const Look& look) {
    return look.pid == pid && look.start_ticks == start_ticks && look.answer == Answer::later && look.read_bytes != 0;
  });
}

void MapReader::go_on(Look& look, std::string_view name) {
  char piece[kPieceBytes];
  while (left_bytes_ != 0) {
    const ssize_t got = ::read(look.maps.get(), piece, std::min(sizeof piece, left_bytes_));
    if (got < 0 && errno == EINTR) continue;
    if (got == 0 && look.read_bytes != 0 && !goes_on(look.maps)) {
      // What was read is of a program that it no longer executes.
      begin(look);
      if (look.answer != Answer::later) return;
      continue;
    }
    if (got <= 0) {
      // Empty: it is ending, and its death tells the rest; or it is a thread of the kernel, which never has any.
      const auto stat = got == 0 && look.read_bytes == 0 ? system::process_stat(look.pid) : std::nullopt;
      look.ending = stat && !stat->of_kernel;
      look.seen.note(look.rest);
      look.answer = look.ending || names(look.rest, look.inode, name) ? Answer::yes
                    : got < 0                                         ? Answer::unseen
                                                                      : Answer::no;
      return;
    }
    const auto bytes = static_cast<std::size_t>(got);
    left_bytes_ -= bytes;
    look.read_bytes += bytes;
    look.rest.append(piece, bytes);
    std::size_t from = 0;
    for (std::size_t next; (next = look.rest.find('\n', from)) != std::string::npos; from = next + 1) {
      const std::string_view line = std::string_view(look.rest).substr(from, next - from);
      look.seen.note(line);
      if (!names(line, look.inode, name)) continue;
      look.answer = Answer::yes;
      return;
    }
    look.rest.erase(0, from);
    leave_out_the_middle(look.rest);
  }
}

}  // namespace tensor_fusion::node::hypervisor
