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
  auto answer = has_limiter(pid, start_ticks, reader, files, now_ns);
  const auto after = system::process_stat(pid);
  // In the middle of an exec: that is another program's answer, and none yet.
  if (after && after->layout != layout_) answer = MapReader::Answer::later;
  proven_ = answer == MapReader::Answer::yes && after && after->shows_layout();
  // Without a layout the next exec would not be noticed.
  if (answer == MapReader::Answer::yes && !proven_) reader.forget(pid);
  if (answer != MapReader::Answer::later) {
    unknown_since_ns_ = read_since_ns_ = 0;
    return answer == MapReader::Answer::yes || (answer == MapReader::Answer::unseen && (!after || after->dead()));
  }
  if (unknown_since_ns_ == 0) unknown_since_ns_ = now_ns;
  if (!reader.is_reading(system::living_thread(pid), start_ticks)) {
    read_since_ns_ = 0;
  } else if (read_since_ns_ == 0) {
    read_since_ns_ = now_ns;
  }
  return (read_since_ns_ == 0 || now_ns - read_since_ns_ < kSeenInNs) && now_ns - unknown_since_ns_ < kWaitsForNs;
}

}  // namespace tensor_fusion::node::hypervisor
