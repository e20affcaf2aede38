#include "node/hypervisor/bulletin.h"

#include <algorithm>

#include "system/clock.h"
#include "system/futex.h"

namespace tensor_fusion::node::hypervisor {
namespace {

// One of those that asked may take all that is left. It keeps its turn until the driver shows that it has taken
// something (or it does not, for a while): given to another in between, the same memory would be had twice. So would be
// what was taken while the driver was being read, and was not shown: from one of several to another the turn goes over
// a reading that began when nobody might take any more.
void give_turn(Tenant& tenant, const BeforeReading& before, std::uint32_t row, const ShownMemory& shown_by) {
  constexpr std::uint64_t kTurnNs = 20'000'000;
  Turn& turn = tenant.usage[row].turn;
  const std::string& uuid = tenant.record.devices[row].uuid;
  const auto shown = [&](pid_t pid) -> std::uint64_t {
    const auto process = shown_by.find(pid);
    if (process == shown_by.end()) return 0;
    const auto bytes = process->second.find(uuid);
    return bytes == process->second.end() ? 0 : bytes->second;
  };
  const std::uint64_t now = system::monotonic_ns();
  const bool lives = turn.name != 0 && tenant.live_process(turn.pid) != nullptr;
  if (lives && shown(turn.pid) == turn.shown_bytes && now - turn.since_ns < kTurnNs) return;
  const LiveProcess *first = nullptr, *next = nullptr;
  std::size_t listed = 0;
  for (const LiveProcess& process : tenant.processes) {
    if (process.dead || process.host_pid == 0) continue;
    ++listed;
    const auto asked = before.settle.find({process.slot, row});
    if (asked == before.settle.end() || asked->second == process.settle_seen[row]) continue;
    if (!first || process.slot < first->slot) first = &process;
    if (process.slot >= turn.last && (!next || process.slot < next->slot)) next = &process;
  }
  if (!next) next = first;
  const std::uint32_t name = next ? next->slot + 1 : 0;
  if (listed > 1 && name != turn.name && turn.name != contract::kNobodysTurn) {
    turn = {contract::kNobodysTurn, turn.last, 0, 0, 0};
    return;
  }
  turn = next ? Turn{name, name, next->host_pid, shown(next->host_pid), now} : Turn{0, turn.last, 0, 0, 0};
}

}  // namespace

// What no process of the tenant can write: each holds itself to it, whatever the claim says
// (guest/limiter/core/growth.h).
void publish_reading(Tenant& tenant, const BeforeReading& before, const ShownMemory& shown, DeviceTable& devices) {
  for (std::uint32_t row = 0; row < tenant.record.devices.size() && row < before.used.size(); ++row) {
    TenantUsage& usage = tenant.usage[row];
    give_turn(tenant, before, row, shown);
    // Nothing held is a figure, too; what is held under a name that cannot be told from here is none.
    const Device* device = devices.find(tenant.record.devices[row].uuid);
    const bool seen = usage.observed_bytes != 0 || (device && device->shared_bytes == 0);
    contract::GrantDevice& grant = tenant.pages.grant().devices[row];
    const std::uint32_t reading = grant.reading_begun.load(std::memory_order_relaxed);
    grant.reading_mark.store(reading, std::memory_order_relaxed);
    grant.observed_bytes.store(seen ? std::max<std::uint64_t>(usage.observed_bytes, 1) : 0, std::memory_order_release);
    grant.turn.store(usage.turn.name, std::memory_order_release);
    grant.reading_list.store(tenant.pages.grant().process_sequence.load(std::memory_order_relaxed),
                             std::memory_order_release);
    grant.reading_done.store(reading, std::memory_order_release);
  }
}

// `settled` counts answers; a waiting process sees it change. Answered is what was asked before the driver was, but not
// while the turn passes on: it is among those who ask now that the next is chosen.
bool answer_requests(Tenant& tenant, const BeforeReading& before) {
  bool passes_on = false;
  for (std::uint32_t row = 0; row < tenant.record.devices.size(); ++row) {
    const bool passing = tenant.usage[row].turn.name == contract::kNobodysTurn;
    bool asked = false;
    for (LiveProcess& process : tenant.processes) {
      const auto seen = before.settle.find({process.slot, row});
      if (seen == before.settle.end() || seen->second == process.settle_seen[row]) continue;
      if (!passing) process.settle_seen[row] = seen->second;
      asked = true;
    }
    passes_on = passes_on || (asked && passing);
    if (!asked || passing) continue;
    auto& settled = tenant.pages.grant().devices[row].settled;
    settled.fetch_add(1, std::memory_order_release);
    system::futex_wake_all(settled);
  }
  return passes_on;
}

void list_processes(Tenant& tenant) {
  contract::GrantPage& grant = tenant.pages.grant();
  std::vector<std::pair<std::uint32_t, std::uint32_t>> list;
  for (const LiveProcess& process : tenant.processes)
    if (!process.dead && process.host_pid != 0) list.emplace_back(process.host_pid, process.tenant_pid);
  std::sort(list.begin(), list.end());
  list.resize(std::min(list.size(), contract::kMaxListedProcesses));
  bool same = grant.process_count.load(std::memory_order_relaxed) == list.size();
  for (std::size_t i = 0; same && i < list.size(); ++i)
    same = grant.processes[i].host_pid.load(std::memory_order_relaxed) == list[i].first &&
           grant.processes[i].tenant_pid.load(std::memory_order_relaxed) == list[i].second;
  if (same) return;
  // An odd number is left when a hypervisor died in here: made even first, so that odd always means "in change".
  const std::uint32_t sequence = (grant.process_sequence.load(std::memory_order_relaxed) + 1) & ~1u;
  grant.process_sequence.exchange(sequence + 1, std::memory_order_acq_rel);  // the stores below stay below
  for (std::size_t i = 0; i < list.size(); ++i) {
    grant.processes[i].host_pid.store(list[i].first, std::memory_order_relaxed);
    grant.processes[i].tenant_pid.store(list[i].second, std::memory_order_relaxed);
  }
  grant.process_count.store(static_cast<std::uint32_t>(list.size()), std::memory_order_relaxed);
  grant.process_sequence.store(sequence + 2, std::memory_order_release);
}

}  // namespace tensor_fusion::node::hypervisor
