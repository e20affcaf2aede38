#include "pool/share.h"

#include <algorithm>

namespace tensor_fusion::pool {
double Arbiter::Tenant::weight(const ShareRules& rules) const { return std::max(terms.request, rules.least_request); }

double Arbiter::Tenant::virtual_time(const ShareRules& rules) const {
  return virtual_offset + (service() + gaps) / weight(rules);
}

Arbiter::Tenant* Arbiter::find(ShareKey key) {
  for (Tenant& tenant : tenants_) {
    if (tenant.key == key) return &tenant;
  }
  return nullptr;
}

const Arbiter::Tenant* Arbiter::find(ShareKey key) const { return const_cast<Arbiter*>(this)->find(key); }

void Arbiter::add(ShareKey key, ShareTerms terms, std::uint64_t now) {
  if (find(key) != nullptr) return change(key, terms, now);
  Tenant tenant{};
  tenant.key = key;
  tenant.terms = terms;
  tenant.scale = 1;
  tenant.accrued_at = now;
  tenant.busy_end = 0;
  tenant.virtual_offset = system_virtual_;
  tenant.cap_earned = static_cast<double>(rules_.cap_ceiling_ns);
  tenant.priority_earned = static_cast<double>(rules_.priority_ceiling_ns);
  tenants_.push_back(std::move(tenant));
}

void Arbiter::change(ShareKey key, ShareTerms terms, std::uint64_t now) {
  Tenant* tenant = find(key);
  if (tenant == nullptr || tenant->terms == terms) return;
  accrue(*tenant, now);
  const double before = tenant->virtual_time(rules_);
  tenant->terms = terms;
  tenant->virtual_offset += before - tenant->virtual_time(rules_);
  // Debts of the old limit are not owed to the new one.
  tenant->cap_earned = std::max(tenant->cap_earned, tenant->service());
}

void Arbiter::remove(ShareKey key, std::uint64_t) {
  if (has_holder_ && holder_ == key) has_holder_ = false;
  std::erase_if(stays_, [key](const ShareStay& stay) { return stay.key == key; });
  if (has_draining_ && draining_ == key) has_draining_ = false;
  std::erase_if(tenants_, [key](const Tenant& tenant) { return tenant.key == key; });
}

double Arbiter::cap_credit(const Tenant& tenant) const {
  return capped(tenant) ? tenant.cap_earned - tenant.service() : 1e18;
}

double Arbiter::priority_credit(const Tenant& tenant) const { return tenant.priority_earned - tenant.service(); }

std::uint64_t Arbiter::outstanding(const Tenant& tenant, std::uint64_t now) const {
  return tenant.claim.progress_ns > now ? tenant.claim.progress_ns - now : 0;
}

bool Arbiter::unlimited(const Tenant& tenant) const { return tenants_.size() == 1 && !capped(tenant); }

void Arbiter::accrue(Tenant& tenant, std::uint64_t now) const {
  if (now <= tenant.accrued_at) return;
  const double elapsed = static_cast<double>(now - tenant.accrued_at);
  const bool active = tenant.admitted || tenant.claim.blocked > 0 || now < tenant.busy_end + 2 * rules_.idle_ns;
  const double service = tenant.service();
  // Who waits behind long work may save up for as long as that takes: it would lose its share to others' stays.
  const double ceiling = active ? static_cast<double>(rules_.cap_ceiling_waiting_ns) + 2 * longest()
                                : static_cast<double>(rules_.cap_ceiling_ns);
  // Credit above the ceiling is not taken back when a waiting tenant turns idle: it only stops growing.
  tenant.cap_earned =
      std::max(tenant.cap_earned, std::min(tenant.cap_earned + tenant.terms.limit * elapsed, service + ceiling));
  tenant.priority_earned = std::min(tenant.priority_earned + tenant.terms.request * elapsed,
                                    service + static_cast<double>(rules_.priority_ceiling_ns));
  tenant.accrued_at = now;
}

double Arbiter::longest() const {
  double result = 0;
  for (const Tenant& tenant : tenants_)
    if (tenant.conduct.believed()) result = std::max(result, tenant.longest);
  return result;
}

// From now on its stay costs others time.
void Arbiter::contend(Tenant& holder, std::uint64_t now) {
  holder.stay_contended = true;
  holder.stay_start = std::max(holder.stay_start, now);
  holder.stay_service = holder.service() - static_cast<double>(outstanding(holder, now));
  stays_.push_back({holder.key, holder.stay_start, kNever});
}

std::uint64_t Arbiter::quantum(const Tenant& tenant) const {
  const double wanted = 4.0 * static_cast<double>(rules_.quantum_ns) * tenant.weight(rules_);
  return tenant.conduct.shortened(static_cast<std::uint64_t>(
      std::clamp(wanted, static_cast<double>(rules_.quantum_least_ns), static_cast<double>(rules_.quantum_ns))));
}

std::uint64_t Arbiter::window(const Tenant& tenant, bool contended) const {
  const std::uint32_t processes = std::clamp<std::uint32_t>(tenant.claim.processes, 1, 64);
  std::uint64_t window = rules_.window_alone_ns;
  if (contended || capped(tenant)) window = latency_present_ ? rules_.window_latency_ns : rules_.window_ns;
  if (tenant.claim.streams > processes) window = std::max(window, rules_.window_many_ns);
  return std::max(window / processes, std::min(window, rules_.window_least_ns));
}

// How much longer than predicted its work may run before it counts as through. Letting the next in beside a long one
// would cost both more than a moment of an idle device.
std::uint64_t Arbiter::overrun(const Tenant& tenant) const {
  const bool believed = tenant.conduct.believed();
  const double longer = believed && tenant.longest > static_cast<double>(rules_.long_ns) ? tenant.longest / 2 : 0;
  return tenant.conduct.shortened(std::max(rules_.overrun_ns, static_cast<std::uint64_t>(longer)));
}

// How long a pause the device is kept for a holder that usually makes such. Letting another in costs it as long as one
// launch of the other takes, which nobody can interrupt; where that is long, and the holder is not ahead, its share is
// worth a pause of half of that. It pays for the time.
std::uint64_t Arbiter::grace(const Tenant& tenant) const {
  if (!tenant.conduct.believed()) return rules_.gap_grace_ns;
  double longest = 0;
  for (const Tenant& other : tenants_) {
    if (&other == &tenant || other.claim.blocked == 0) continue;
    if (other.virtual_time(rules_) >= tenant.virtual_time(rules_)) longest = std::max(longest, other.longest);
  }
  if (longest < static_cast<double>(rules_.gap_launch_ns)) return rules_.gap_grace_ns;
  return std::min(rules_.gap_grace_most_ns, static_cast<std::uint64_t>(longest / 2));
}

bool Arbiter::holder_wants(const Tenant& tenant, std::uint64_t now) const {
  if (tenant.claim.blocked > 0) return true;
  const std::uint64_t left = outstanding(tenant, now), pause = grace(tenant);
  // One that usually pauses after its work is through: the next may come in while the last bit runs.
  if (left > 0) return left > rules_.handover_ns || tenant.claim.gap_ns < pause;
  if (now < tenant.stay_start + rules_.gap_grace_ns) return true;  // woken, not yet launched
  // Not known to be through: the estimate may be short, or the last holder's tail may be in the way.
  const bool running = tenant.claim.streams > 0 && tenant.claim.gap_ns < pause;
  if (running && now < tenant.busy_end + overrun(tenant) + tenant.beside_ns) return true;
  return tenant.claim.gap_ns < pause && now < tenant.busy_end + pause;
}

bool Arbiter::candidate(const Tenant& tenant, double least_credit) const {
  return !tenant.admitted && tenant.claim.blocked > 0 && cap_credit(tenant) >= least_credit;
}

Arbiter::Tenant* Arbiter::best_candidate(const Tenant* except, double least_credit) {
  Tenant* best = nullptr;
  for (Tenant& tenant : tenants_) {
    if (&tenant == except || !candidate(tenant, least_credit)) continue;
    if (best == nullptr || tenant.virtual_time(rules_) < best->virtual_time(rules_)) best = &tenant;
  }
  return best;
}

bool Arbiter::urgent(const Tenant& waiting, const Tenant& holder) const {
  if (!waiting.conduct.believed()) return false;
  const double lag = holder.virtual_time(rules_) - waiting.virtual_time(rules_);
  const bool priority = waiting.terms.latency && priority_credit(waiting) > 0;
  if (priority && !(holder.terms.latency && priority_credit(holder) > 0)) return true;
  if ((waiting.woke || waiting.early) && lag > 0) return true;
  return false;
}

// Far behind, and not by its own cap: the holder's stay ends early. Its queue is still waited for, since two tenants of
// long kernels would else never be alone and could not be told apart.
bool Arbiter::lags(const Tenant& waiting, const Tenant& holder) const {
  const double lag = holder.virtual_time(rules_) - waiting.virtual_time(rules_);
  return lag * waiting.weight(rules_) > static_cast<double>(rules_.lag_ns) &&
         cap_credit(waiting) >= 0.9 * static_cast<double>(rules_.cap_ceiling_waiting_ns);
}

// The device was kept for one until another may use it: what it is said to have left is its own affair, too.
void Arbiter::end_stay(std::uint64_t now) {
  if (!stays_.empty()) stays_.back().end_ns = std::min(stays_.back().end_ns, now);
}

// Since the last look: a pause that began in between counts from then on.
void Arbiter::follow_stay(std::uint64_t now) {
  const std::uint64_t from = std::exchange(decided_, now);
  if (stays_.empty() || stays_.back().end_ns != kNever) return;
  ShareStay& stay = stays_.back();
  const Tenant* tenant = find(stay.key);
  if (tenant == nullptr || tenant->claim.blocked > 0 || tenant->claim.streams > 0 || outstanding(*tenant, now) > 0)
    return;
  stay.silent_ns += static_cast<double>(now - std::min(now, std::max(from, stay.start_ns)));
}

// How long its queue is waited for at most.
std::uint64_t Arbiter::drain_limit(const Tenant* last) const {
  if (last == nullptr) return rules_.drain_limit_ns;
  return last->conduct.shortened(std::max(rules_.drain_limit_ns, is_predictable(*last) ? 0 : 2 * overrun(*last)));
}

void Arbiter::admit(Tenant& tenant, std::uint64_t now) {
  end_stay(now);
  tenant.stay_contended = false;
  tenant.admitted = true;
  tenant.woke = false;
  tenant.resting = false;
  tenant.early = false;
  tenant.last_used = ++decisions_;
  tenant.stay_start = now;
  tenant.beside_ns = 0;
  if (has_draining_ && draining_ != tenant.key) {
    if (const Tenant* before = find(draining_)) {
      tenant.stay_start = std::max(now, std::min(before->busy_end, now + rules_.drain_limit_ns));
      tenant.beside_ns = std::min(outstanding(*before, now), rules_.gap_grace_most_ns);
    }
  }
  tenant.stay_service = tenant.service();
  holder_ = tenant.key;
  has_holder_ = true;
  has_draining_ = false;
}

void Arbiter::dismiss(Tenant& tenant, std::uint64_t now) {
  tenant.admitted = false;
  // What it may have put on the device before its gate shut.
  if (tenant.witness.suspects()) tenant.witness.keep(static_cast<double>(window(tenant, true)));
  tenant.early = tenant.claim.blocked == 0 && tenant.busy_end > now && outstanding(tenant, now) <= rules_.handover_ns;
  has_holder_ = false;
  has_draining_ = true;
  draining_ = tenant.key;
  closing_since_ = now;
}

ShareGrant Arbiter::grant(ShareKey key) const {
  ShareGrant result;
  const Tenant* tenant = find(key);
  if (tenant == nullptr) return result;
  bool contended = false;
  for (const Tenant& other : tenants_) contended = contended || (other.key != key && other.claim.blocked > 0);
  result.admitted = tenant->admitted;
  result.known = tenant->admitted ? !capped(*tenant) || !tenant->resting : tenant->claim.blocked > 0;
  result.contended = tenant->admitted && tenant->stay_contended;
  result.unlimited = unlimited(*tenant);
  result.window_ns = window(*tenant, contended);
  result.service_ns = static_cast<std::uint64_t>(std::max(0.0, tenant->service()));
  result.scale = tenant->scale;
  return result;
}

ShareAccount Arbiter::account(ShareKey key) const {
  ShareAccount result;
  const Tenant* tenant = find(key);
  if (tenant == nullptr) return result;
  result.service_ns = tenant->service();
  result.placed_ns = tenant->placed();
  const bool under_way = std::ranges::any_of(
      tenants_, [](const Tenant& each) { return each.claim.open_since_ns != kNever || !each.stretches.empty(); });
  if (under_way && swept_ != 0) result.placed_until_ns = swept_;
  result.estimated_ns = tenant->launched * tenant->scale;
  result.gap_ns = tenant->gaps;
  result.virtual_time = tenant->virtual_time(rules_);
  result.cap_credit_ns = cap_credit(*tenant);
  result.scale = tenant->scale;
  result.wanting = tenant->claim.blocked > 0 || tenant->claim.streams > 0;
  result.bypass_suspected = tenant->witness.convicts();
  result.suspected = tenant->witness.suspects();
  result.look_closely = tenant->witness.looks_closely(decided_);
  result.doubt = tenant->conduct.doubt();
  return result;
}

}  // namespace tensor_fusion::pool
