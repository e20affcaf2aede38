#include "node/hypervisor/share_table.h"

#include <unistd.h>

#include <algorithm>

#include "system/futex.h"

namespace tensor_fusion::node::hypervisor {
namespace {

constexpr auto kRelaxed = std::memory_order_relaxed;
constexpr std::uint64_t kQuietNs = 20'000'000;  // what cannot change without a ring is read again after this
constexpr std::uint64_t kTogetherNs = 50'000;   // devices due so soon are decided in one wake
// On a node with many contended devices a wake-up costs far more than a decision, so it may come a little late and find
// more of them due. An opening gate by no more than is left of the last tenant's queue when the next is let in
// (pool::ShareRules::handover_ns), so no device idles for it; a shutting one by what a stay may well be longer.
constexpr std::uint64_t kForged = 3;  // a program that is replaced by another in its place counts from 0, too
constexpr std::size_t kManyDevices = 4;
constexpr std::uint64_t kOpenLateNs = 500'000;
constexpr std::uint64_t kShutLateNs = 1'500'000;

pool::ShareTerms terms_of(const ShareDevice& device) {
  const double whole = contract::kWholeShare;
  return {std::min(1.0, device.request / whole), std::min(1.0, device.limit / whole), device.latency};
}

// What a tenant refills at while nobody decides: its floor, and never nothing.
std::uint32_t fallback_of(const ShareDevice& device) {
  const std::uint32_t least = std::min<std::uint32_t>(device.limit, contract::kWholeShare / 20);
  return std::clamp(device.request, least, std::max(least, device.limit));
}

}  // namespace

void ShareTable::place_on_device(ShareTenantId id, Tenant& tenant, const ShareDevice& terms, std::uint64_t now) {
  if (terms.slot >= contract::kMaxDevices) return;
  auto place = std::make_unique<Place>();
  place->tenant = id;
  place->terms = terms;
  place->grant = &tenant.pages.grant->devices[terms.slot];
  place->claim = tenant.pages.claim;
  Device& device = devices_[terms.device];
  device.arbiter.add(id, terms_of(terms), now);
  device.places.push_back(place.get());
  device.due = 0;
  place->grant->fallback_share.store(fallback_of(terms), kRelaxed);
  tenant.places.push_back(std::move(place));
}

void ShareTable::add(ShareTenantId id, ShareTenant pages, std::uint64_t now) {
  Tenant& tenant = tenants_[id];
  tenant.pages = std::move(pages);
  for (const ShareDevice& device : tenant.pages.devices) place_on_device(id, tenant, device, now);
  tenant.pages.grant->heartbeat_ns.store(now, std::memory_order_release);
}

void ShareTable::update(ShareTenantId id, const std::vector<ShareDevice>& devices, std::uint64_t now) {
  const auto found = tenants_.find(id);
  if (found == tenants_.end()) return;
  Tenant& tenant = found->second;
  for (const ShareDevice& terms : devices) {
    const auto known = std::find_if(tenant.places.begin(), tenant.places.end(),
                                    [&](const auto& place) { return place->terms.slot == terms.slot; });
    if (known != tenant.places.end() && (*known)->terms.device == terms.device) {
      (*known)->terms = terms;
      (*known)->grant->fallback_share.store(fallback_of(terms), kRelaxed);
      Device& device = devices_[terms.device];
      device.arbiter.change(id, terms_of(terms), now);
      device.due = 0;
    } else if (known == tenant.places.end()) {
      place_on_device(id, tenant, terms, now);
    }
  }
}

void ShareTable::remove(ShareTenantId id, std::uint64_t now) {
  const auto known = tenants_.find(id);
  if (known == tenants_.end()) return;
  for (const auto& place : known->second.places) {
    const auto found = devices_.find(place->terms.device);
    if (found == devices_.end()) continue;
    Device& device = found->second;
    std::erase(device.places, place.get());
    device.arbiter.remove(place->tenant, now);
    device.due = 0;
    if (device.places.empty()) devices_.erase(found);
  }
  tenants_.erase(known);
}

void ShareTable::write(Place& place, const pool::ShareGrant& grant) {
  contract::GrantDevice& page = *place.grant;
  const auto store = [](auto& word, auto value) {
    if (word.load(kRelaxed) != value) word.store(value, kRelaxed);
  };
  store(page.window_ns, grant.window_ns);
  store(page.granted_ns, grant.service_ns);
  store(page.estimate_scale, static_cast<std::uint32_t>(grant.scale * 65536));
  const std::uint32_t flags = page.flags.load(kRelaxed);
  const bool was_open = (flags & contract::kComputeUnlimited) != 0;
  if (grant.unlimited && !was_open) page.flags.fetch_or(contract::kComputeUnlimited, kRelaxed);
  if (!grant.unlimited && was_open) page.flags.fetch_and(~std::uint32_t{contract::kComputeUnlimited}, kRelaxed);
  const std::uint32_t before = page.gate.load(kRelaxed);
  std::uint32_t bits = 0;
  if (grant.admitted) bits |= contract::kGateAdmitted;
  if (grant.known) bits |= contract::kGateKnown;
  if (grant.contended) bits |= contract::kGateContended;
  constexpr std::uint32_t kBits = contract::kGateStep - 1;
  if ((before & kBits) != bits) {
    page.gate.store(((before & ~kBits) + contract::kGateStep) | bits, std::memory_order_release);
    const bool opened = grant.admitted && (before & contract::kGateAdmitted) == 0;
    if (opened || (grant.unlimited && !was_open)) system::futex_wake_all(page.gate);
  }
  place.admitted = grant.admitted;
}

void ShareTable::read(Place& place, Device& device, std::uint64_t now) {
  const pool::ShareClaim& last = place.last;
  // A tenant that waits with nothing on the device, or has nothing to do, rings before that changes.
  const bool quiet = !place.rung && !place.admitted && last.open_since_ns == pool::kNever && last.progress_ns <= now &&
                     now < place.read_ns + kQuietNs;
  if (quiet) return;
  place.rung = false;
  place.read_ns = now;
  read_since_beat_ = true;
  place.last = place.claims.read(*place.claim, place.terms.slot, now, stretches_);
  device.arbiter.observe(place.tenant, place.last, stretches_, now);
  if (const std::uint64_t shrunk = place.claims.shrunk(); shrunk >= kForged && shrunk != place.shrunk) {
    place.shrunk = shrunk;
    device.arbiter.accuse(place.tenant);
  }
}

void ShareTable::pass(Device& device, std::uint64_t now) {
  ++passes_;
  for (Place* place : device.places) read(*place, device, now);
  device.due = device.arbiter.decide(now);
  for (Place* place : device.places) write(*place, device.arbiter.grant(place->tenant));
}

void ShareTable::ring(ShareTenantId id, std::uint64_t now) {
  const auto found = tenants_.find(id);
  if (found == tenants_.end()) return;
  Tenant& tenant = found->second;
  for (const auto& place : tenant.places) {
    place->rung = true;
    Device& device = devices_[place->terms.device];
    device.due = 0;
    if (tenant.pages.notify >= 0) read(*place, device, now);
  }
  announce(tenant);
}

std::uint64_t ShareTable::run(std::uint64_t now) {
  std::uint64_t next = pool::kNever;
  const bool many = devices_.size() >= kManyDevices;
  for (auto& [ordinal, device] : devices_) {
    if (device.due <= now + kTogetherNs) pass(device, now);
    if (device.due == pool::kNever) continue;
    const bool held =
        std::any_of(device.places.begin(), device.places.end(), [](const Place* p) { return p->admitted; });
    next = std::min(next, device.due + (!many ? 0 : held ? kShutLateNs : kOpenLateNs));
  }
  return next;
}

void ShareTable::beat(std::uint64_t now) {
  for (auto& [id, tenant] : tenants_) {
    tenant.pages.grant->heartbeat_ns.store(now, std::memory_order_release);
    if (read_since_beat_) announce(tenant);  // processes come and go without a ring, too
  }
  read_since_beat_ = false;
}

bool ShareTable::anyone() const {
  return std::any_of(devices_.begin(), devices_.end(), [](const auto& entry) {
    const auto& places = entry.second.places;
    return std::any_of(places.begin(), places.end(), [](const Place* place) { return place->claims.anyone(); });
  });
}

void ShareTable::announce(Tenant& tenant) {
  if (tenant.pages.notify < 0) return;
  std::uint64_t outline = 0;
  for (const auto& place : tenant.places) outline = outline * 31 + place->claims.outline();
  if (outline == tenant.outline) return;
  tenant.outline = outline;
  const std::uint64_t one = 1;
  static_cast<void>(!::write(tenant.pages.notify, &one, sizeof one));
}

void ShareTable::observe_utilisation(ShareTenantId id, std::uint32_t device, double percent, std::uint64_t window_ns,
                                     std::uint64_t now) {
  const auto found = devices_.find(device);
  if (found != devices_.end()) found->second.arbiter.observe_utilisation(id, percent, window_ns, now);
}

ShareUsage ShareTable::usage(ShareTenantId id, std::uint32_t device) const {
  ShareUsage usage;
  const auto found = devices_.find(device);
  if (found == devices_.end()) return usage;
  for (const Place* place : found->second.places) {
    if (place->tenant != id) continue;
    const pool::ShareAccount account = found->second.arbiter.account(id);
    usage.service_ns = static_cast<std::uint64_t>(std::max(0.0, account.service_ns));
    usage.placed_ns = static_cast<std::uint64_t>(std::max(0.0, account.placed_ns));
    usage.placed_until_ns = account.placed_until_ns;
    usage.estimated_ns = static_cast<std::uint64_t>(std::max(0.0, account.estimated_ns));
    usage.held_ns = place->claims.held_ns();
    usage.launches = place->claims.launches();
    usage.scale = account.scale;
    usage.admitted = place->admitted;
    usage.wanting = account.wanting;
    usage.doubt = account.doubt;
    usage.look_closely = account.look_closely;
    usage.bypass_suspected = account.bypass_suspected || place->claims.shrunk() >= kForged;
  }
  return usage;
}

}  // namespace tensor_fusion::node::hypervisor
