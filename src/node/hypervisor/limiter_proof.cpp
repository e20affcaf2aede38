#include "node/hypervisor/limiter_proof.h"

#include <fcntl.h>
#include <unistd.h>

#include <filesystem>
#include <string>
#include <utility>

#include "contract/grant.h"
#include "system/process.h"

namespace tensor_fusion::node::hypervisor {
namespace {

bool goes_on(const system::Fd& memory) {
  char letter = 0;
  return memory && ::pread(memory.get(), &letter, 1, 0) == 1;
}

}  // namespace

MapReader::Answer has_limiter(pid_t pid, std::uint64_t start_ticks, MapReader& reader, const SliceFiles& files,
                              std::uint64_t now_ns) {
  static const std::string limiter = std::filesystem::path(kLimiterPath).filename();
  pid = system::living_thread(pid);
  const auto claim = reader.has_mapped(pid, start_ticks, files.claim, contract::kClaimFile, now_ns);
  if (claim != MapReader::Answer::yes || !files.limiter) return claim;
  return reader.has_mapped(pid, start_ticks, *files.limiter, limiter, now_ns);
}

bool LimiterProof::holds(pid_t pid, std::uint64_t start_ticks, MapReader& reader, const SliceFiles& files,
                         std::uint64_t now_ns) {
  if (goes_on(memory_)) return true;
  pid = system::living_thread(pid);
  if (std::exchange(memory_, {})) reader.forget(pid);
  system::Fd memory(::open(("/proc/" + std::to_string(pid) + "/maps").c_str(), O_RDONLY | O_CLOEXEC));
  const auto answer = has_limiter(pid, start_ticks, reader, files, now_ns);
  if (answer == MapReader::Answer::yes && goes_on(memory)) memory_ = std::move(memory);
  return answer != MapReader::Answer::no;
}

}  // namespace tensor_fusion::node::hypervisor
