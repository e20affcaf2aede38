#include "node/hypervisor/limiter_proof.h"

#include <filesystem>
#include <string>

#include "contract/grant.h"

namespace tensor_fusion::node::hypervisor {

MapReader::Answer has_limiter(pid_t pid, std::uint64_t start_ticks, MapReader& reader, const SliceFiles& files,
                              std::uint64_t now_ns, Libraries* seen) {
  static const std::string limiter = std::filesystem::path(kLimiterPath).filename();
  pid = system::living_thread(pid);
  const auto claim = reader.has_mapped(pid, start_ticks, files.claim, contract::kClaimFile, now_ns, seen);
  if (claim != MapReader::Answer::yes || !files.limiter) return claim;
  return reader.has_mapped(pid, start_ticks, *files.limiter, limiter, now_ns, seen);
}

bool LimiterProof::holds(pid_t pid, std::uint64_t start_ticks, MapReader& reader, const SliceFiles& files,
                         std::uint64_t now_ns) {
  auto stat = system::process_stat(pid);
  const bool first_has_ended = stat && (stat->state == 'Z' || stat->state == 'X');
  if (first_has_ended) stat = system::process_stat(pid = system::living_thread(pid));
  const auto layout = stat ? stat->layout : decltype(layout_){};
  if (proven_ && layout == layout_) return true;
  if (layout != layout_) reader.forget(pid);
  layout_ = layout;
  proven_ = false;
  const auto answer = has_limiter(pid, start_ticks, reader, files, now_ns);
  const auto after = system::process_stat(pid);
  if (after && after->layout != layout_) return true;  // in the middle of an exec: that is another program's answer
  proven_ = answer == MapReader::Answer::yes && after && after->shows_layout();
  // Without a layout the next exec would not be noticed.
  if (answer == MapReader::Answer::yes && !proven_) reader.forget(pid);
  return answer != MapReader::Answer::no;
}

}  // namespace tensor_fusion::node::hypervisor
