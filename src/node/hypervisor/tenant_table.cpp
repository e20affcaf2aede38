#include "node/hypervisor/tenant_table.h"

#include <poll.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <utility>

#include "base/id.h"
#include "node/hypervisor/membership.h"
#include "node/hypervisor/view_mount.h"
#include "system/clock.h"
#include "system/process.h"

namespace tensor_fusion::node::hypervisor {
namespace {

constexpr std::uint64_t kUnstartedForNs = 30'000'000'000;
constexpr std::uint64_t kMayMoveForNs = 10'000'000'000;
constexpr std::uint64_t kHidesNs = 1'000'000'000;  // who cannot be told from nobody for so long goes on like that
constexpr std::size_t kTamperingsKept = 8;

// Of the program that was run, which need not be the last.
std::string how_it_ended(const Tenant& tenant) {
  if (!tenant.root_ended) return "";
  const int status = *tenant.root_ended;
  if (WIFEXITED(status)) return "; the program's exit code was " + std::to_string(WEXITSTATUS(status));
  const char* name = ::sigabbrev_np(WTERMSIG(status));
  return "; the program was ended by " + (name ? "SIG" + std::string(name) : std::to_string(WTERMSIG(status)));
}

}  // namespace

TenantTable::TenantTable(system::Loop& loop, const StateDirectory& state, EventRing& events, ShareLoop& share,
                         DeviceTable& devices)
    : loop_(loop),
      state_(state),
      events_(events),
      share_(share),
      devices_(devices),
      watch_(loop, {.find = [this](const std::string& id) { return find_by_id(id); },
                    .member_elsewhere =
                        [this](const Tenant& tenant, pid_t pid) {
                          const Tenant* other = belongs_to(pid);
                          return other && other != &tenant ? other->record.name : std::string();
                        },
                    .changed =
                        [this](Tenant& tenant) {
                          if (hooks_.changed) hooks_.changed(tenant);
                        },
                    .died =
                        [this](Tenant& tenant) {
                          share_.look(tenant.share_id);
                          end_if_over(tenant);
                        },
                    .tampered = [this](Tenant& tenant, const std::string& what) { note_tampering(tenant, what); }}),
      ends_(loop, {.all = [this] { return all(); },
                   .find = [this](const std::string& id) { return find_by_id(id); },
                   .over = [this](Tenant& tenant) { end_in_turn(tenant); }}),
      kills_(loop, {.all = [this] { return all(); },
                    .find = [this](const std::string& id) { return find_by_id(id); },
                    .emptied = [this](Tenant& tenant) { end_in_turn(tenant); }}),
      notify_(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)),
      next_number_(system::wall_ms() ^ static_cast<std::uint64_t>(::getpid()) << 12) {
  static_cast<void>(loop_.watch(notify_.get(), EPOLLIN, [this](std::uint32_t) {
    std::uint64_t count = 0;
    [[maybe_unused]] const ssize_t got = ::read(notify_.get(), &count, sizeof count);
    scan_all();
    if (hooks_.rang) hooks_.rang();
  }));
}

TenantTable::~TenantTable() {
  share_.stop();
  loop_.forget(notify_.get());
  for (const auto& [id, tenant] : tenants_) {
    share_.remove_tenant(tenant->share_id);
    if (tenant->root) loop_.forget(tenant->root.get());
    watch_.forget(*tenant);
  }
}

// Nobody else's name, either: the next id can be told from one's own, and a name like it would be meant by neither.
std::string TenantTable::free_id() {
  std::string id;
  do id = base::short_id(next_number_++);
  while (find(id) != nullptr || system::exists(state_.tenant(id)));
  return id;
}

Tenant* TenantTable::find_by_id(const std::string& id) {
  const auto found = tenants_.find(id);
  return found == tenants_.end() ? nullptr : found->second.get();
}

Tenant* TenantTable::find(const std::string& id_or_name) {
  if (Tenant* tenant = find_by_id(id_or_name)) return tenant;
  for (const auto& [id, tenant] : tenants_)
    if (tenant->record.name == id_or_name) return tenant.get();
  return nullptr;
}

std::vector<Tenant*> TenantTable::all() {
  std::vector<Tenant*> list;
  for (const auto& [id, tenant] : tenants_) list.push_back(tenant.get());
  return list;
}

bool TenantTable::busy() const {
  return std::any_of(tenants_.begin(), tenants_.end(),
                     [](const auto& entry) { return entry.second->has_live_process(); });
}

std::vector<pool::PlaceAllocation> TenantTable::allocations(const std::string& except_id) const {
  std::vector<pool::PlaceAllocation> list;
  for (const auto& [id, tenant] : tenants_) {
    if (id == except_id) continue;
    for (const TenantDeviceRecord& device : tenant->record.devices)
      list.push_back(
          {tenant->record.name, device.uuid, device.memory_limit_bytes, device.request_share, device.limit_share});
  }
  return list;
}

std::vector<ShareDevice> TenantTable::share_devices(const Tenant& tenant) const {
  std::vector<ShareDevice> list;
  const bool latency = tenant.record.request.qos == "high" || tenant.record.request.qos == "critical";
  for (std::size_t i = 0; i < tenant.record.devices.size(); ++i) {
    const TenantDeviceRecord& record = tenant.record.devices[i];
    // Before the provider has answered the index serves: after a restart the shares must go on at once.
    const Device* device = devices_.find(record.uuid);
    const std::uint32_t ordinal = device ? device->ordinal : 1000u + static_cast<std::uint32_t>(record.index);
    list.push_back({.slot = static_cast<std::uint32_t>(i),
                    .device = ordinal,
                    .request = record.request_share,
                    .limit = record.limit_share,
                    .latency = latency});
  }
  return list;
}

ShareTenant TenantTable::share_tenant(const Tenant& tenant) const {
  ShareTenant pages;
  pages.grant = &tenant.pages.grant();
  pages.claim = &tenant.pages.claim();
  pages.bell = tenant.pages.bell();
  pages.notify = notify_.get();
  pages.devices = share_devices(tenant);
  return pages;
}

void TenantTable::settle_shares() {
  for (const auto& [id, tenant] : tenants_) {
    share_.remove_tenant(tenant->share_id);
    share_.add_tenant(tenant->share_id, share_tenant(*tenant));
  }
}

void TenantTable::adopt(std::unique_ptr<Tenant> owned) {
  Tenant& tenant = *owned;
  tenant.share_id = next_share_id_++;
  tenant.record.grant_mount = mount_name(state_.tenant(tenant.record.id) + "/" + contract::kGrantFile);
  if (tenant.record.grant_mount.empty())
    events_.add({.kind = "hypervisor",
                 .tenant = tenant.record.name,
                 .device = "",
                 .message = "the kernel does not say on which mount its pages "
                            "are: it has no view of its own, and only "
                            "descent tells its processes"});
  tenant.usage.resize(tenant.record.devices.size());
  tenants_[tenant.record.id] = std::move(owned);
  owners_.ask_anew();
  for (std::size_t i = 0; i < tenant.record.devices.size(); ++i) {
    Device* device = devices_.find(tenant.record.devices[i].uuid);
    auto& overhead = tenant.pages.grant().devices[i].context_overhead_bytes;
    if (device && device->context_overhead_bytes != 0)
      overhead.store(device->context_overhead_bytes, std::memory_order_relaxed);
  }
  share_.add_tenant(tenant.share_id, share_tenant(tenant));
  share_.start();
  if (!tenant.record.started()) return;
  if (tenant.record.mount_namespace != 0) find_view(tenant);
  watch_root(tenant);
}

base::Result<Tenant*> TenantTable::create(TenantRecord record, ConnectionId lease) {
  auto tenant = std::make_unique<Tenant>();
  tenant->record = std::move(record);
  tenant->lease = lease;
  const std::string id = tenant->record.id;
  auto pages = TenantPages::create(state_.tenant(id), hidden(id), tenant->record);
  base::Result<void> saved;
  if (pages) saved = save_record(state_.record(id), tenant->record);
  if (!pages || !saved) {
    TenantPages::remove(state_.tenant(id), hidden(id));
    return std::unexpected(pages ? saved.error() : pages.error());
  }
  tenant->pages = *std::move(pages);
  Tenant* result = tenant.get();
  adopt(std::move(tenant));
  return result;
}

base::Result<void> TenantTable::change(Tenant& tenant, TenantRecord changed) {
  if (auto saved = save_record(state_.record(tenant.record.id), changed); !saved) return saved;
  tenant.record = std::move(changed);
  tenant.pages.write_limits(tenant.record);
  share_.update_tenant(tenant.share_id, share_devices(tenant));
  if (hooks_.capacity) hooks_.capacity();
  return {};
}

void TenantTable::remove(Tenant& tenant, const std::string& why) {
  if (tenant.removed) return;
  tenant.removed = true;
  const std::string id = tenant.record.id;
  tenant.pages.close();
  share_.remove_tenant(tenant.share_id);
  if (tenant.root) loop_.forget(tenant.root.get());
  watch_.forget(tenant);
  // The record goes first: a crash between the two leaves pages that nobody claims, which the next start removes.
  ::unlink(state_.record(id).c_str());
  TenantPages::remove(state_.tenant(id), hidden(id));
  events_.add({.kind = "ended", .tenant = tenant.record.name, .device = "", .message = why});
  owners_.forget(tenant);
  tenants_.erase(id);
  if (tenants_.empty()) share_.stop();  // nobody needs a heartbeat
  if (hooks_.capacity) hooks_.capacity();
}

void TenantTable::lease_lost(ConnectionId connection) {
  for (Tenant* tenant : all())
    if (tenant->lease == connection && !tenant->record.started()) remove(*tenant, "its run ended before it started");
}

void TenantTable::remove_unheard_of(const std::string& token, uid_t user) {
  for (Tenant* tenant : all())
    if (!token.empty() && tenant->record.request.token == token && tenant->record.user == user && tenant->lease == 0 &&
        !tenant->record.started())
      remove(*tenant, "its run never heard of it, and asks anew");
}

Tenant* TenantTable::owner_of(pid_t host_pid) {
  for (const auto& [id, tenant] : tenants_)
    if (tenant->live_process(host_pid)) return tenant.get();
  return belongs_to(host_pid);
}

bool TenantTable::is_limited(Tenant& tenant, pid_t host_pid) {
  for (LiveProcess& process : tenant.processes)
    if (process.host_pid == host_pid && host_pid != 0 && !process.dead)
      return process.proof.holds(host_pid, process.start_ticks, tenant.maps, tenant.slice_files(),
                                 system::monotonic_ns());
  return false;
}

void TenantTable::end_if_over(Tenant& tenant) {
  if (!tenant.may_be_over()) return;
  // Children that left the first process behind keep the slice as long as they live in its view.
  tenant.record.mount_namespace != 0 ? ends_.ask(tenant) : end(tenant);
}

// Also where the loop has not been told yet: who has seen a program end may ask for what it had at once.
bool TenantTable::is_ending(Tenant& tenant) {
  const auto has_ended = [](const system::Fd& process) {
    pollfd end{process.get(), POLLIN, 0};
    return process && ::poll(&end, 1, 0) == 1;
  };
  if (!tenant.record.started() || (!tenant.root_dead && !has_ended(tenant.root))) return false;
  for (const LiveProcess& process : tenant.processes)
    if (!process.dead && process.host_pid != 0 && !has_ended(process.pidfd)) return false;
  if (EndWatch::lives(tenant.member)) return false;
  if (tenant.may_be_over() && tenant.record.mount_namespace != 0) ends_.ask(tenant);
  return tenant.hidden_since_ns == 0 || system::monotonic_ns() - tenant.hidden_since_ns < kHidesNs;
}

bool TenantTable::is_any_ending() {
  bool any = false;
  for (Tenant* tenant : all()) any = is_ending(*tenant) || any;
  return any;
}

void TenantTable::end(Tenant& tenant) { remove(tenant, "its last process has ended" + how_it_ended(tenant)); }

// One at a time, and who asks something is heard in between: the kernel takes some 10 ms to take a view apart.
void TenantTable::end_in_turn(Tenant& tenant) {
  if (!tenant.may_be_over()) return;
  ending_.push_back(tenant.record.id);
  if (ending_.size() == 1) loop_.after(0, [this] { end_next(); });
}

void TenantTable::end_next() {
  Tenant* tenant = find_by_id(ending_.front());
  ending_.pop_front();
  if (!ending_.empty()) loop_.after(0, [this] { end_next(); });
  if (tenant && tenant->may_be_over()) end(*tenant);
}

void TenantTable::note_tampering(Tenant& tenant, const std::string& what) {
  events_.add({.kind = "tampered", .tenant = tenant.record.name, .device = "", .message = what});
  if (std::find(tenant.tampered.begin(), tenant.tampered.end(), what) != tenant.tampered.end()) return;
  if (tenant.tampered.size() < kTamperingsKept) tenant.tampered.push_back(what);
}

void TenantTable::verify(Tenant& tenant) {
  for (const std::string& wrong : tenant.pages.verify(tenant.record)) note_tampering(tenant, wrong);
  watch_.verify(tenant);
}

void TenantTable::scan_all() {
  for (Tenant* tenant : all()) {
    scan(*tenant);
    if (!tenant->pages.grant_is_sound(tenant->record)) verify(*tenant);
  }
}

void TenantTable::look_after_all() {
  owners_.ask_anew();
  kills_.forget_look();
  const std::uint64_t now_ms = system::wall_ms();
  for (Tenant* tenant : all()) {
    verify(*tenant);
    if (tenant->record.started()) {
      if (system::monotonic_ns() - tenant->watched_ns < kMayMoveForNs) look_where_it_is(*tenant);
      end_if_over(*tenant);
    } else if (tenant->lease == 0 && !tenant->has_live_process() &&
               now_ms - tenant->record.created_ms > kUnstartedForNs / 1'000'000) {
      remove(*tenant, "it was never started");
    }
  }
}

}  // namespace tensor_fusion::node::hypervisor
