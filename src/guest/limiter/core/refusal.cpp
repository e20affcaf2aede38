#include "guest/limiter/core/refusal.h"

#include "guest/limiter/core/attachment.h"
#include "guest/limiter/core/log.h"
#include "guest/limiter/core/os.h"
#include "guest/limiter/core/pace.h"
#include "guest/limiter/core/words.h"

namespace tensor_fusion::guest::limiter {
namespace {

constexpr auto kRelaxed = std::memory_order_relaxed;

constinit Pace g_pace{};

using Line = Text<512>;

Line& add_size(Line& line, std::uint64_t bytes) {
  constexpr std::uint64_t kMiB = 1 << 20;
  if (bytes < kMiB) return line.add_number(bytes).add(" bytes");
  line.add_number(bytes / kMiB);
  if (bytes % kMiB != 0) line.add(".").add_number(bytes % kMiB * 10 / kMiB);
  return line.add(" MiB");
}

// By the claim page, as everything here: what the program is told does not depend on it.
std::uint32_t holders(std::uint32_t device) {
  const contract::ClaimPage& page = *g_shared.slice.claim;
  std::uint32_t count = 0;
  for (std::uint32_t slot = 0; slot < contract::kMaxProcesses && slot < page.process_high.load(kRelaxed); ++slot)
    if (page.processes[slot].state.load(kRelaxed) == contract::kSlotLive &&
        page.processes[slot].devices[device].ledger_bytes.load(kRelaxed) != 0)
      ++count;
  return count;
}

void add_reason(Line& line, const Device& device, Room room) {
  const contract::GrantDevice& grant = *device.grant;
  if (device.grant_page->closed.load(kRelaxed) != 0) {
    line.add("the slice has ended");
    return;
  }
  if (room.is_unlisted()) {
    line.add("the hypervisor does not count this process among the slice's");
    return;
  }
  const std::uint64_t unledgered = grant.unledgered_bytes.load(kRelaxed);
  const std::uint64_t observed = grant.observed_bytes.load(kRelaxed);
  add_size(line.add("the limit is "), grant.memory_limit_bytes.load(kRelaxed));
  add_size(line.add(", held are "), device.claim->used_bytes.load(kRelaxed));
  const std::uint32_t count = holders(device.index);
  line.add(" by ").add_number(count).add(count == 1 ? " process (" : " processes (");
  add_size(line, device.mine->ledger_bytes.load(kRelaxed)).add(" by this one)");
  if (unledgered != 0) add_size(line.add(" and "), unledgered).add(" by the driver itself");
  if (observed > 1) add_size(line.add("; the driver last showed "), observed);
}

}  // namespace

void explain(const char* why) {
  std::uint32_t skipped = 0;
  if (says_all() && g_pace.is_due(os::monotonic_ns(), skipped)) say(why);
}

void refuse(const Device& device, std::uint64_t bytes, Room room) {
  Ledger::count_refusal(device);
  std::uint32_t skipped = 0;
  if (!says_all() || !g_pace.is_due(os::monotonic_ns(), skipped)) return;
  Line line;
  add_size(line.add("memory was refused by the limiter and not by the driver, "), bytes);
  line.add(" on device ").add_number(static_cast<std::uint64_t>(device.ordinal)).add(": ");
  add_reason(line, device, room);
  if (skipped != 0) line.add("; ").add_number(skipped).add(" more were refused since the last line");
  say(line.letters);
}

}  // namespace tensor_fusion::guest::limiter
