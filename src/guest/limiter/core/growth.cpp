#include "guest/limiter/core/growth.h"

namespace tensor_fusion::guest::limiter {
namespace {

constexpr auto kAcquire = std::memory_order_acquire;
constexpr auto kRelaxed = std::memory_order_relaxed;
// All processes of a tenant together may take this part of its limit beyond what the last reading left.
constexpr std::uint64_t kSlack = 16;

bool is_after(std::uint32_t one, std::uint32_t other) { return static_cast<std::int32_t>(one - other) > 0; }

}  // namespace

// Nothing has changed here since the last look: what is held now was held all through a reading begun since.
void Growth::before_change(const contract::GrantDevice& grant, std::uint64_t own) {
  const std::uint32_t done = grant.reading_done.load(kAcquire);
  const std::uint32_t begun = grant.reading_begun.load(kAcquire);
  if (done != done_) {
    shown_ = is_after(done, begun_) ? Window{own, own} : open_;
    done_ = done;
  }
  if (begun == begun_) return;
  if (!is_after(begun_, done_)) open_ = {own, own};
  begun_ = begun;
}

void Growth::after_change(std::uint64_t own) {
  if (own < open_.lowest) open_.lowest = own;
  if (own > open_.highest) open_.highest = own;
}

// Zero: the list does not name this process, or is another one by now.
std::uint32_t Growth::processes_of(const contract::GrantPage& page, std::uint32_t list, std::uint32_t pid) {
  if (list == list_) return listed_;
  if ((list & 1) != 0 || page.process_sequence.load(kAcquire) != list) return 0;
  std::uint32_t count = page.process_count.load(kAcquire);
  if (count > contract::kMaxListedProcesses) count = contract::kMaxListedProcesses;
  bool found = false;
  for (std::uint32_t i = 0; i < count && !found; ++i) found = page.processes[i].tenant_pid.load(kAcquire) == pid;
  if (!found || page.process_sequence.load(kRelaxed) != list) return 0;
  list_ = list;
  return listed_ = count;
}

std::optional<bool> Growth::is_listed(const contract::GrantPage& page, std::uint32_t pid) {
  const std::uint32_t list = page.process_sequence.load(kAcquire);
  if (processes_of(page, list, pid) != 0) return true;
  if ((list & 1) != 0 || page.process_sequence.load(kAcquire) != list) return std::nullopt;
  return false;
}

bool Growth::is_one_of_several(const contract::GrantPage& page, std::uint32_t pid) {
  return processes_of(page, page.process_sequence.load(kAcquire), pid) > 1;
}

std::uint64_t Growth::surplus(const contract::GrantDevice& grant, const contract::GrantPage& page, std::uint64_t own,
                              std::uint32_t pid) {
  before_change(grant, own);
  const std::uint64_t observed = grant.observed_bytes.load(kAcquire);
  const std::uint32_t list = grant.reading_list.load(kAcquire);
  if (done_ == 0 || grant.reading_mark.load(kRelaxed) != done_) return 0;
  if (observed <= 1) return 0;  // not known, or the driver does not see this process at all
  if (shown_.lowest != own || shown_.highest != own || processes_of(page, list, pid) != 1) return 0;
  return own > observed ? own - observed : 0;
}

Growth::Verdict Growth::judge(const contract::GrantDevice& grant, const contract::GrantPage& page, std::uint64_t own,
                              std::uint64_t bytes, std::uint32_t me, std::uint32_t pid, bool fresh) {
  before_change(grant, own);
  if ((grant.flags.load(kRelaxed) & contract::kMemoryUnlimited) != 0) return Verdict::fits;
  const std::uint64_t observed = grant.observed_bytes.load(kAcquire);
  const std::uint32_t turn = grant.turn.load(kAcquire);
  const std::uint32_t list = grant.reading_list.load(kAcquire);
  // Never read, or another reading is being published.
  if (done_ == 0 || grant.reading_mark.load(kRelaxed) != done_) return Verdict::unsure;
  const std::uint64_t after = own + bytes;
  if (observed == 0 || after <= shown_.lowest) return Verdict::fits;
  const std::uint64_t limit = grant.memory_limit_bytes.load(kRelaxed);
  const std::uint64_t room = limit > observed ? limit - observed : 0;
  // Whatever the driver has seen of this process, it does not fit.
  if (after > shown_.highest && after - shown_.highest > room) return fresh ? Verdict::full : Verdict::unsure;
  const std::uint64_t grown = after - shown_.lowest;
  if (grown > room) return Verdict::unsure;
  if (turn == me) return Verdict::fits;
  // Everybody may take its part of what was left, or, while one of them may take all, a little.
  const std::uint32_t count = processes_of(page, list, pid);
  if (count == 0) return Verdict::unsure;
  if (count == 1) return Verdict::fits;
  const std::uint64_t least = limit / kSlack / count;
  const std::uint64_t part = turn == 0 && room / count > least ? room / count : least;
  return grown <= part ? Verdict::fits : Verdict::unsure;
}

}  // namespace tensor_fusion::guest::limiter
