#include "node/hypervisor/escape.h"

#include <fcntl.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <optional>
#include <string>

#include "base/text.h"
#include "contract/grant.h"
#include "system/fd.h"
#include "system/process.h"

namespace tensor_fusion::node::hypervisor {
namespace {

constexpr std::string_view kLimiter = "libtensor_fusion_limiter.so";
constexpr std::string_view kDriver = "libcuda.so";

// Nothing where there is more, it is not to be read, or the process is ending.
std::optional<std::string> all_maps(pid_t pid, std::size_t most_bytes) {
  const std::string path = "/proc/" + std::to_string(system::living_thread(pid)) + "/maps";
  const system::Fd file(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (!file) return std::nullopt;
  std::string maps;
  std::array<char, 16384> block{};
  while (maps.size() <= most_bytes) {
    const ssize_t got = ::read(file.get(), block.data(), block.size());
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return std::nullopt;
    if (got == 0) return maps.empty() ? std::nullopt : std::optional(std::move(maps));
    maps.append(block.data(), static_cast<std::size_t>(got));
  }
  return std::nullopt;
}

}  // namespace

bool is_past_the_limiter(std::string_view maps) {
  bool limiter = false, driver = false;
  for (const std::string_view line : base::split(maps, '\n')) {
    const auto slash = line.rfind('/');
    if (slash == std::string_view::npos) continue;
    const std::string_view file = line.substr(slash + 1);
    limiter = limiter || file.starts_with(kLimiter);
    driver = driver || file.starts_with(kDriver);
  }
  return !limiter || driver;
}

Escape has_escaped(pid_t pid, std::uint64_t start_ticks, MapReader& reader, const SliceFiles& files,
                   std::uint64_t now_ns, std::size_t most_bytes) {
  const auto at_work = has_limiter(pid, start_ticks, reader, files, now_ns);
  if (at_work == MapReader::Answer::later) return Escape::later;
  if (at_work != MapReader::Answer::no) return Escape::no;
  const auto maps = all_maps(pid, most_bytes);
  return maps && is_past_the_limiter(*maps) ? Escape::yes : Escape::no;
}

}  // namespace tensor_fusion::node::hypervisor
