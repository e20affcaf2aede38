#include "node/hypervisor/escape.h"

#include <fcntl.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <string>

#include "base/text.h"
#include "contract/grant.h"
#include "system/fd.h"

namespace tensor_fusion::node::hypervisor {
namespace {

constexpr std::size_t kMostBytes = 4u << 20;  // a large framework has a quarter of a MiB
constexpr std::string_view kLimiter = "libtensor_fusion_limiter.so";
constexpr std::string_view kDriver = "libcuda.so";

}  // namespace

bool is_past_the_limiter(std::string_view maps) {
  bool limiter = false, driver = false;
  for (const std::string_view line : base::split(maps, '\n')) {
    const auto slash = line.rfind('/');
    if (slash == std::string_view::npos) continue;
    const std::string_view file = line.substr(slash + 1);
    if (file == contract::kClaimFile) return false;
    limiter = limiter || file.starts_with(kLimiter);
    driver = driver || file.starts_with(kDriver);
  }
  return !limiter || driver;
}

bool has_escaped(pid_t pid) {
  const std::string path = "/proc/" + std::to_string(pid) + "/maps";
  const system::Fd file(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (!file) return false;
  std::string maps;
  std::array<char, 16384> block{};
  while (maps.size() < kMostBytes) {
    const ssize_t got = ::read(file.get(), block.data(), block.size());
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return false;
    if (got == 0) break;
    maps.append(block.data(), static_cast<std::size_t>(got));
  }
  return !maps.empty() && is_past_the_limiter(maps);  // empty: it is ending
}

}  // namespace tensor_fusion::node::hypervisor
