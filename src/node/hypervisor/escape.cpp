#include "node/hypervisor/escape.h"

namespace tensor_fusion::node::hypervisor {

bool is_past_the_limiter(const Libraries& seen) { return !seen.limiter || seen.driver; }

Escape has_escaped(pid_t pid, std::uint64_t start_ticks, MapReader& reader, const SliceFiles& files,
                   std::uint64_t now_ns) {
  Libraries seen;
  const auto at_work = has_limiter(pid, start_ticks, reader, files, now_ns, &seen);
  if (at_work == MapReader::Answer::later) return Escape::later;
  return at_work == MapReader::Answer::no && is_past_the_limiter(seen) ? Escape::yes : Escape::no;
}

}  // namespace tensor_fusion::node::hypervisor
