#include "node/hypervisor/meter.h"

#include <algorithm>
#include <charconv>
#include <cstring>
#include <utility>

#include "base/id.h"
#include "node/hypervisor/claim_view.h"
#include "node/hypervisor/possible_shares.h"
#include "node/hypervisor/reconcile.h"
#include "node/hypervisor/shared_server.h"
#include "system/clock.h"
#include "system/process.h"

namespace tensor_fusion::node::hypervisor {
namespace {

constexpr std::uint64_t kBetweenSettlesNs = 2'000'000;
constexpr std::uint64_t kTenantSettleNs = 20'000'000;  // of one tenant, after the first
constexpr std::uint64_t kSettlesAheadNs = 16 * kTenantSettleNs;
constexpr std::uint64_t kUseWindowNs = 1'000'000'000;  // the driver's word on use stands for at most so much time
constexpr std::uint64_t kBetweenSharesNs = 250'000'000;
constexpr std::uint64_t kCloselyNs = 200'000'000;  // its samples are a sixth of a second

// By the driver, in basis points.
double seen_share(const TenantUsage& usage) { return std::min(usage.utilisation_percent, 100.0) * 100; }

pid_t pid_of(const ProcessInformation& process) {
  pid_t pid = 0;
  std::from_chars(process.processId, process.processId + ::strnlen(process.processId, sizeof process.processId), pid);
  return pid;
}

std::string uuid_of(const ProcessInformation& process) {
  return base::canonical_uuid(
      std::string_view(process.deviceUUID, ::strnlen(process.deviceUUID, sizeof process.deviceUUID)));
}

}  // namespace

Meter::Meter(system::Loop& loop, device::ProviderProcess& provider, DeviceTable& devices, TenantTable& tenants,
             ShareLoop& share, EventRing& events)
    : loop_(loop),
      provider_(provider),
      devices_(devices),
      tenants_(tenants),
      share_(share),
      events_(events),
      random_(static_cast<std::minstd_rand::result_type>(system::monotonic_ns())),
      unlimited_(loop, tenants, events, [this] { read_now(); }),
      overheads_(devices, tenants) {}

void Meter::read_now(std::function<void()> done) {
  if (done) waiting_.push_back(std::move(done));
  if (reading_) {
    again_ = true;
  } else {
    begin();
  }
}

void Meter::begin() {
  reading_ = true;
  again_ = false;
  begun_ns_ = system::monotonic_ns();
  served_.swap(waiting_);
  before_.clear();
  for (Tenant* tenant : tenants_.all()) before_[tenant->record.id] = begin_with(*tenant);
  provider_.call(device::ProviderCall::kProcesses, {}, [this](base::Result<device::ProviderProcess::Body> reply) {
    // Without an answer everything stays as it was: limits hold, settle requests wait for the provider to come back.
    if (reply) finish(device::ProviderProcess::items<ProcessInformation>(*reply));
    reading_ = false;
    if (std::exchange(periodic_, false)) used_at_ns_ = begun_ns_;
    if (std::exchange(closely_, false)) look_at_use_in(kCloselyNs);
    std::vector<std::function<void()>> served;
    served.swap(served_);
    for (const auto& done : served) done();
    if (again_ && !reading_) begin();
  });
}

BeforeReading Meter::begin_with(const Tenant& tenant) const {
  BeforeReading before;
  const contract::ClaimPage& page = tenant.pages.claim();
  for (std::uint32_t row = 0; row < tenant.record.devices.size(); ++row)
    tenant.pages.grant().devices[row].reading_begun.fetch_add(1, std::memory_order_acq_rel);
  for (std::uint32_t row = 0; row < tenant.record.devices.size(); ++row) {
    const std::uint64_t memory = tenant.record.devices[row].device_memory_bytes;
    before.changes.push_back(page.devices[row].changes.load(std::memory_order_acquire));
    before.used.push_back(std::min(page.devices[row].used_bytes.load(std::memory_order_acquire), memory));
    for (const LiveProcess& process : tenant.processes) {
      if (process.dead) continue;
      const auto& claim = page.processes[process.slot].devices[row];
      before.settle[{process.slot, row}] = claim.settle_request.load(std::memory_order_acquire);
      before.ledger[{process.slot, row}] = ledger_of(page, process.slot, row, memory);
      before.guessed[{process.slot, row}] = claim.guessed_bytes.load(std::memory_order_acquire);
    }
  }
  return before;
}

bool Meter::asks(const Tenant& tenant) {
  const contract::ClaimPage& page = tenant.pages.claim();
  for (const LiveProcess& process : tenant.processes)
    for (std::uint32_t row = 0; !process.dead && row < tenant.record.devices.size(); ++row)
      if (page.processes[process.slot].devices[row].settle_request.load(std::memory_order_acquire) !=
          process.settle_seen[row])
        return true;
  return false;
}

// However fast a tenant asks: its readings are everybody's time. The first few come at once.
void Meter::settle(Tenant& tenant) {
  if (again_ || !asks(tenant)) return;
  const std::uint64_t now = system::monotonic_ns();
  const std::uint64_t due =
      std::max(begun_ns_ + kBetweenSettlesNs,
               tenant.settles_paid_ns > kSettlesAheadNs ? tenant.settles_paid_ns - kSettlesAheadNs : 0);
  if (due <= now) {
    tenant.settles_paid_ns = std::max(tenant.settles_paid_ns, now) + kTenantSettleNs;
    return read_now();
  }
  if (settle_at_ns_ > now && settle_at_ns_ <= due) return;
  settle_at_ns_ = due;
  loop_.after(due - now, [this] {
    settle_at_ns_ = 0;
    for (Tenant* each : tenants_.all()) settle(*each);
  });
}

// Of the last second and not of the one before the last reading, however often somebody looks.
void Meter::look_at_shares(std::uint64_t now_ns) {
  if (now_ns >= shares_at_ns_ + kBetweenSharesNs) measure_shares(now_ns);
}

void Meter::read_periodically(std::uint64_t now_ns) {
  measure_shares(now_ns);
  read_use();
  // And once in between: who knew when could be at rest whenever it is looked at.
  if (tenants_.busy()) look_at_use_in(kCloselyNs + random_() % (3 * kCloselyNs));
}

void Meter::read_use() {
  periodic_ = true;
  read_now();
}

void Meter::look_at_use_in(std::uint64_t ns) {
  if (std::exchange(looks_at_use_, true)) return;
  loop_.after(ns, [this] {
    looks_at_use_ = false;
    if (provider_.ready()) read_use();
  });
}

void Meter::finish(const std::vector<ProcessInformation>& processes) {
  ++readings_;
  account(processes);
  for (Tenant* tenant : tenants_.all()) {
    const auto before = before_.find(tenant->record.id);
    if (before == before_.end()) continue;  // made after the question
    overheads_.learn(*tenant, before->second, observed_);
    apply(*tenant, before->second);
    list_processes(*tenant);
    publish_reading(*tenant, before->second, observed_, devices_);
    again_ = answer_requests(*tenant, before->second) || again_;
  }
}

// Every process of the driver's list gets an owner: a tenant, nobody, or all together.
void Meter::account(const std::vector<ProcessInformation>& processes) {
  observed_.clear();
  std::map<std::string, std::uint64_t> outside, shared;
  std::vector<UnlimitedProcess> unlimited;
  for (Tenant* tenant : tenants_.all())
    for (TenantUsage& usage : tenant->usage) {
      usage.observed_bytes = 0;
      if (periodic_) usage.utilisation_percent = 0;
    }
  for (const ProcessInformation& process : processes) {
    const pid_t pid = pid_of(process);
    const std::string uuid = uuid_of(process);
    observed_[pid][uuid] += process.memoryUsedBytes;
    const auto stat = system::process_stat(pid);
    Tenant* owner = stat ? tenants_.owner_of(pid) : nullptr;
    // A server in a tenant is the tenant's.
    if (!stat || (!owner && is_shared_server(*stat))) {
      shared[uuid] += process.memoryUsedBytes;
      continue;
    }
    const bool limited = owner && tenants_.is_limited(*owner, pid);
    if (!limited && !stat->dead())
      unlimited.push_back({.pid = pid,
                           .start_ticks = stat->start_ticks,
                           .uuid = uuid,
                           .command = system::shown_name(*stat),
                           .tenant = owner ? owner->record.name : "",
                           .tenant_id = owner ? owner->record.id : "",
                           .memory_bytes = process.memoryUsedBytes});
    if (!owner) outside[uuid] += process.memoryUsedBytes;
    if (!owner) continue;
    for (std::size_t row = 0; row < owner->record.devices.size(); ++row) {
      if (owner->record.devices[row].uuid != uuid) continue;
      TenantUsage& usage = owner->usage[row];
      usage.observed_bytes += process.memoryUsedBytes;
      if (periodic_) usage.utilisation_percent += process.computeUtilizationPercent;
    }
  }
  for (Device& device : devices_.all()) {
    // What a shared account shows beyond the limits of those who may be behind it is a stranger's; up to these it is
    // kept free for them already.
    std::uint64_t granted = 0;
    for (Tenant* tenant : tenants_.all())
      for (std::size_t row = 0; row < tenant->record.devices.size(); ++row)
        if (tenant->record.devices[row].uuid == device.uuid && tenant->usage[row].observed_bytes == 0 &&
            device_view(tenant->pages.claim(), tenant->pages.slots(), static_cast<std::uint32_t>(row),
                        device.memory_bytes)
                    .ledger_bytes > 0)
          granted += tenant->record.devices[row].memory_limit_bytes;
    const std::uint64_t pool = shared[device.uuid];
    device.shared_bytes = pool;
    device.outside_bytes = outside[device.uuid] + (pool > granted ? pool - granted : 0);
  }
  unlimited_.saw(std::move(unlimited));
}

void Meter::apply(Tenant& tenant, const BeforeReading& before) {
  contract::GrantPage& grant = tenant.pages.grant();
  const contract::ClaimPage& page = tenant.pages.claim();
  for (std::uint32_t row = 0; row < tenant.record.devices.size() && row < before.used.size(); ++row) {
    TenantUsage& usage = tenant.usage[row];
    const std::uint64_t memory = tenant.record.devices[row].device_memory_bytes;
    const std::uint64_t after = std::min(page.devices[row].used_bytes.load(std::memory_order_acquire), memory);
    const bool at_rest = page.devices[row].changes.load(std::memory_order_acquire) == before.changes[row];
    const Unledgered found = unledgered({before.used[row], after, usage.observed_bytes, at_rest}, usage.estimate_bytes);
    usage.estimate_bytes = found.estimate;
    usage.unledgered_bytes = found.bytes;
    auto& word = grant.devices[row].unledgered_bytes;
    if (word.load(std::memory_order_relaxed) != found.bytes) word.store(found.bytes, std::memory_order_release);
    const Device* device = devices_.find(tenant.record.devices[row].uuid);
    if (!periodic_ || !device) continue;
    const std::uint64_t window = std::clamp(begun_ns_ - used_at_ns_, kCloselyNs, kUseWindowNs);
    share_.observe_utilisation(tenant.share_id, device->ordinal, usage.utilisation_percent, window);
    const ShareUsage account = share_.usage(tenant.share_id, device->ordinal);
    closely_ = closely_ || account.look_closely;
    const bool suspected = account.bypass_suspected;
    if (suspected && !usage.bypass_reported)
      events_.add({.kind = "bypass suspected",
                   .tenant = tenant.record.name,
                   .device = device->uuid,
                   .message = "its account of the GPU's time does not agree with the driver's; the driver's counts",
                   .user = static_cast<std::int64_t>(tenant.record.user)});
    usage.bypass_reported = suspected;
  }
}

std::uint64_t Meter::unmeasured_launches(const Tenant& tenant, std::uint32_t row) const {
  std::uint64_t launches = 0;
  for (const LiveProcess& process : tenant.processes)
    if (!process.dead && process.host_pid != 0)
      launches += tenant.pages.claim().processes[process.slot].devices[row].unmeasured.load(std::memory_order_relaxed);
  return launches;
}

void Meter::measure_shares(std::uint64_t now_ns) {
  shares_at_ns_ = now_ns;
  std::map<std::pair<std::string, std::uint32_t>, std::uint64_t> unmeasured;
  for (Tenant* tenant : tenants_.all()) {
    for (std::size_t row = 0; row < tenant->record.devices.size(); ++row) {
      const Device* device = devices_.find(tenant->record.devices[row].uuid);
      if (!device) continue;
      TenantUsage& usage = tenant->usage[row];
      usage.lately.add(now_ns, share_.usage(tenant->share_id, device->ordinal));
      usage.used_share = usage.lately.share() * 10000;
      // The driver's word is the least where there is no other: one that has the card to itself without a limit is not
      // gated, and counts nothing; a process with a stream in capture measures nothing of what it launches on others.
      const bool gated =
          (tenant->pages.grant().devices[row].flags.load(std::memory_order_relaxed) & contract::kComputeUnlimited) == 0;
      const std::pair key(tenant->record.id, static_cast<std::uint32_t>(row));
      const std::uint64_t launches = unmeasured[key] = unmeasured_launches(*tenant, key.second);
      const auto before = unmeasured_.find(key);
      if (!gated || (before != unmeasured_.end() && launches > before->second))
        usage.used_share = std::max(usage.used_share, seen_share(usage));
    }
  }
  unmeasured_ = std::move(unmeasured);
  show_possible_shares();
}

void Meter::show_possible_shares() {
  std::map<std::string, std::vector<TenantUsage*>> on_card;
  for (Tenant* tenant : tenants_.all())
    for (std::size_t row = 0; row < tenant->record.devices.size(); ++row)
      on_card[tenant->record.devices[row].uuid].push_back(&tenant->usage[row]);
  for (const auto& [uuid, usages] : on_card) {
    std::vector<ClaimedUse> claimed;
    for (const TenantUsage* usage : usages) claimed.push_back({usage->used_share, seen_share(*usage)});
    const std::vector<double> shown = possible_shares(claimed);
    for (std::size_t i = 0; i < usages.size(); ++i) usages[i]->used_share = shown[i];
  }
}

void Meter::read_metrics(std::function<void()> done) {
  device::ProviderProcess::Body body;
  for (const Device& device : devices_.all()) {
    char field[64] = {};
    device.native_uuid.copy(field, sizeof field - 1);
    body.insert(body.end(), field, field + sizeof field);
  }
  provider_.call(device::ProviderCall::kMetrics, std::move(body),
                 [this, done = std::move(done)](base::Result<device::ProviderProcess::Body> reply) {
                   if (reply) {
                     for (const DeviceMetrics& metrics : device::ProviderProcess::items<DeviceMetrics>(*reply)) {
                       Device* device = devices_.find(
                           std::string(metrics.deviceUUID, ::strnlen(metrics.deviceUUID, sizeof metrics.deviceUUID)));
                       if (!device) continue;
                       device->memory_used_bytes = metrics.memoryUsedBytes;
                       device->utilisation_percent = std::min(100u, metrics.utilizationPercent);
                       device->temperature_celsius = metrics.temperatureCelsius;
                       device->power_watts = metrics.powerUsageWatts;
                     }
                   }
                   done();
                 });
}

}  // namespace tensor_fusion::node::hypervisor
