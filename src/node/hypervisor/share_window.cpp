#include "node/hypervisor/share_window.h"

#include <algorithm>

namespace tensor_fusion::node::hypervisor {

void ShareWindow::add(std::uint64_t now_ns, std::uint64_t service_ns) {
  if (!readings_.empty() && now_ns <= readings_.back().at_ns) return;
  // An account that was corrected, or begun anew: what is not in it any more was not used.
  for (Reading& reading : readings_) reading.service_ns = std::min(reading.service_ns, service_ns);
  readings_.push_back({now_ns, service_ns});
  while (readings_.size() > 2 && (now_ns - readings_.front().at_ns > kLongestNs || readings_.size() > kMostReadings))
    readings_.pop_front();
}

std::uint64_t ShareWindow::turn_ns() const {
  std::uint64_t longest = 0;
  std::size_t last = 0;
  for (std::size_t i = 1; i < readings_.size(); ++i) {
    if (!grew(i)) continue;
    const std::uint64_t apart = readings_[i].at_ns - readings_[i - 1].at_ns;
    const std::uint64_t used = readings_[i].service_ns - readings_[i - 1].service_ns;
    if (used > apart + apart / 4) longest = std::max(longest, used);  // of a launch that has ended since
    if (last != 0 && i - last > 1) longest = std::max(longest, readings_[i].at_ns - readings_[last].at_ns);
    last = i;
  }
  const bool rests = last == 0 || readings_.back().at_ns - readings_[last].at_ns > 2 * longest;
  return rests ? 0 : longest;
}

double ShareWindow::between(std::size_t from, std::size_t to) const {
  const auto elapsed = static_cast<double>(readings_[to].at_ns - readings_[from].at_ns);
  return std::min(1.0, static_cast<double>(readings_[to].service_ns - readings_[from].service_ns) / elapsed);
}

double ShareWindow::share() const {
  if (readings_.size() < 2) return 0;
  const std::size_t end = readings_.size() - 1;
  const std::uint64_t turn = turn_ns();
  if (turn == 0) {
    std::size_t first = end - 1;
    while (first > 0 && readings_[end].at_ns - readings_[first].at_ns < kShortestNs) --first;
    return between(first, end);
  }
  // From the end of one turn to the end of another: a part of a turn would count as none or as a whole one.
  const std::uint64_t window = std::clamp(kTurns * turn + turn / 2, kShortestNs, kLongestNs);
  std::size_t first = 0, last = 0;
  for (std::size_t i = 1; i <= end; ++i) {
    if (!grew(i) || readings_[end].at_ns - readings_[i].at_ns > window) continue;
    if (first == 0) first = i;
    last = i;
  }
  return first == last ? between(0, end) : between(first, last);
}

}  // namespace tensor_fusion::node::hypervisor
