#include "node/hypervisor/log_shelf.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <map>
#include <optional>
#include <string_view>
#include <utility>
#include <vector>

#include "base/id.h"
#include "system/fd.h"
#include "system/file.h"

namespace tensor_fusion::node::hypervisor {
namespace {

constexpr std::string_view kEnding = ".log";
constexpr std::uint64_t kBlock = 512;  // of st_blocks
constexpr std::uint64_t kPage = 4096;
constexpr std::size_t kMostRead = 1u << 30;

struct File {
  std::string path;
  std::uint64_t bytes = 0;  // on disk
  std::pair<std::int64_t, std::int64_t> written;
  bool runs = false;
};

std::uint64_t on_disk(const struct stat& info) { return static_cast<std::uint64_t>(info.st_blocks) * kBlock; }

// Returns what is on disk then. Whoever appends goes on behind the hole.
std::uint64_t cut_front(const File& file, std::uint64_t keep) {
  const system::Fd log(::open(file.path.c_str(), O_WRONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC));
  struct stat info{};
  if (!log || ::fstat(log.get(), &info) != 0) return file.bytes;
  const auto size = static_cast<std::uint64_t>(info.st_size);
  if (size > keep)
    static_cast<void>(::fallocate(log.get(), FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0,
                                  static_cast<off_t>((size - keep) / kPage * kPage)));
  // Where no holes are made, or the file's owner has put blocks behind its end.
  struct stat after{};
  if (::fstat(log.get(), &after) == 0 && on_disk(after) > 2 * keep + kPage) {
    if (::ftruncate(log.get(), 0) == 0) static_cast<void>(::fstat(log.get(), &after));
  }
  const std::array<timespec, 2> times{timespec{0, UTIME_OMIT}, info.st_mtim};
  static_cast<void>(::futimens(log.get(), times.data()));
  return on_disk(after);
}

// A little more is left alone, so that a file is not cut at each look.
std::uint64_t cut_to(const File& file, std::uint64_t keep) {
  return file.bytes > keep + keep / 8 + kPage ? cut_front(file, keep) : file.bytes;
}

std::optional<File> file_at(std::string path, bool runs, uid_t& owner) {
  struct stat info{};
  if (::lstat(path.c_str(), &info) != 0 || !S_ISREG(info.st_mode)) return std::nullopt;
  owner = info.st_uid;
  return File{std::move(path), on_disk(info), {info.st_mtim.tv_sec, info.st_mtim.tv_nsec}, runs};
}

}  // namespace

std::uint64_t LogShelf::kept_of_each(std::uint64_t running) const {
  return running == 0 ? bounds_.file_bytes : std::min(bounds_.file_bytes, bounds_.user_bytes / running);
}

void LogShelf::cut_running(const std::vector<std::string>& ids) const {
  std::map<uid_t, std::vector<File>> users;
  for (const std::string& id : ids) {
    uid_t owner = 0;
    if (auto file = file_at(folder_ + "/" + id + std::string(kEnding), true, owner))
      users[owner].push_back(*std::move(file));
  }
  for (const auto& [user, files] : users)
    for (const File& file : files) static_cast<void>(cut_to(file, kept_of_each(files.size())));
}

void LogShelf::prune(const std::function<bool(const std::string& id)>& runs) const {
  std::map<uid_t, std::vector<File>> users;
  for (const std::string& name : system::list_directory(folder_)) {
    const std::string id = name.substr(0, name.find('.'));
    if (!base::is_short_id(id) || name != id + std::string(kEnding)) continue;  // not ours
    uid_t owner = 0;
    if (auto file = file_at(folder_ + "/" + name, runs(id), owner)) users[owner].push_back(*std::move(file));
  }
  for (auto& [user, files] : users) {
    std::ranges::sort(files, [](const File& a, const File& b) {
      return std::pair(a.runs, a.written) > std::pair(b.runs, b.written);
    });
    const auto running = static_cast<std::uint64_t>(std::ranges::count(files, true, &File::runs));
    const std::uint64_t keep = kept_of_each(running);
    std::uint64_t all = 0;
    std::size_t ended = 0;
    for (const File& file : files) {
      const std::uint64_t bytes = cut_to(file, keep);
      const bool fits = file.runs || (ended < bounds_.user_files && all + bytes <= bounds_.user_bytes);
      if (!fits) ::unlink(file.path.c_str());
      if (fits) all += bytes;
      ended += file.runs ? 0 : 1;
    }
  }
}

void shorten(const std::string& file, std::uint64_t most, std::uint64_t keep) {
  const system::Fd log(::open(file.c_str(), O_RDWR | O_APPEND | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC));
  struct stat info{};
  if (!log || ::fstat(log.get(), &info) != 0 || static_cast<std::uint64_t>(info.st_size) <= most) return;
  std::string newest(keep, '\0');
  const ssize_t got = ::pread(log.get(), newest.data(), newest.size(), info.st_size - static_cast<off_t>(keep));
  newest.resize(static_cast<std::size_t>(std::max<ssize_t>(got, 0)));
  newest.erase(0, std::min(newest.find('\n'), newest.size() - (newest.empty() ? 0 : 1)) + 1);
  if (::ftruncate(log.get(), 0) != 0) return;
  if (::write(log.get(), newest.data(), newest.size()) < 0) return;
}

base::Result<std::string> read_kept(int file) {
  off_t place = ::lseek(file, 0, SEEK_CUR);
  struct stat info{};
  // Cut to nothing meanwhile, where holes cannot be made or by its owner: what there is now is all new.
  if (place > 0 && ::fstat(file, &info) == 0 && S_ISREG(info.st_mode) && info.st_size < place)
    place = ::lseek(file, 0, SEEK_SET);
  const off_t data = ::lseek(file, place, SEEK_DATA);
  if (data < 0) ::lseek(file, place, SEEK_SET);  // nothing is there, or it is no file that could have a hole
  std::string text;
  std::array<char, 1 << 16> part{};
  while (text.size() < kMostRead) {
    const ssize_t got = ::read(file, part.data(), part.size());
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return std::unexpected(system::error_of("read", "the output", errno));
    if (got == 0) break;
    text.append(part.data(), static_cast<std::size_t>(got));
  }
  if (data > place) text.erase(0, std::min(text.find('\n'), text.size() - (text.empty() ? 0 : 1)) + 1);
  return text;
}

}  // namespace tensor_fusion::node::hypervisor
