#include "guest/limiter/core/growth.h"

namespace tensor_fusion::guest::limiter {
namespace {

constexpr auto kRelaxed = std::memory_order_relaxed;
// All processes of a tenant together may take this part of its limit beyond what the last reading left.
constexpr std::uint64_t kSlack = 16;

}  // namespace

void Growth::before_change(const contract::GrantDevice& grant, std::uint64_t own) {
  const std::uint32_t begun = grant.reading_begun.load(std::memory_order_acquire);
  if (begun == now_.reading) return;
  // Nothing has changed here since the last look: what is held now was held all through the readings between.
  last_ = begun == now_.reading + 1 ? now_ : Window{begun - 1, own};
  now_ = {begun, own};
}

void Growth::after_change(const contract::GrantDevice& grant, std::uint64_t own) {
  if (own > now_.highest && grant.reading_done.load(std::memory_order_acquire) != now_.reading) now_.highest = own;
}

std::uint64_t Growth::highest_at(std::uint32_t reading, std::uint64_t own) const {
  return reading == now_.reading ? now_.highest : reading == last_.reading ? last_.highest : own;
}

bool Growth::listed(const contract::GrantPage& page, std::uint32_t pid) {
  const std::uint32_t sequence = page.process_sequence.load(std::memory_order_acquire);
  if (sequence == listed_at_) return true;
  std::uint32_t count = page.process_count.load(kRelaxed);
  if (count > contract::kMaxListedProcesses) count = contract::kMaxListedProcesses;
  for (std::uint32_t i = 0; i < count; ++i) {
    if (page.processes[i].tenant_pid.load(kRelaxed) != pid) continue;
    listed_at_ = sequence;
    return true;
  }
  return false;
}

Growth::Verdict Growth::judge(const contract::GrantDevice& grant, const contract::GrantPage& page, std::uint64_t own,
                              std::uint64_t bytes, std::uint32_t me, std::uint32_t pid, bool fresh) {
  before_change(grant, own);
  const std::uint32_t done = grant.reading_done.load(std::memory_order_acquire);
  const std::uint64_t observed = grant.observed_bytes.load(kRelaxed);
  const std::uint64_t limit = grant.memory_limit_bytes.load(kRelaxed);
  if (observed == 0 || (grant.flags.load(kRelaxed) & contract::kMemoryUnlimited) != 0) return Verdict::fits;
  const std::uint64_t known = highest_at(done, own);
  const std::uint64_t after = own + bytes;
  if (after <= known) return Verdict::fits;
  const std::uint64_t grown = after - known;
  const std::uint64_t room = limit > observed ? limit - observed : 0;
  if (grown > room) return fresh ? Verdict::full : Verdict::unsure;
  const std::uint32_t turn = grant.turn.load(kRelaxed);
  if (turn == me && fresh) return Verdict::fits;
  if (!listed(page, pid)) return Verdict::unsure;
  // Everybody may take its part of what was left, or, while one of them may take all, a little.
  const std::uint32_t count = page.process_count.load(kRelaxed);
  if (count <= 1) return Verdict::fits;
  const std::uint64_t least = limit / kSlack / count;
  const std::uint64_t part = turn == 0 && room / count > least ? room / count : least;
  return grown <= part ? Verdict::fits : Verdict::unsure;
}

}  // namespace tensor_fusion::guest::limiter
