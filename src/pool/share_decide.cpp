// When the device passes from one tenant to the next.
#include <algorithm>

#include "pool/share.h"

namespace tensor_fusion::pool {
namespace {

constexpr std::uint64_t kLeastPollNs = 250'000;          // a prediction is not worth a look more often than this
constexpr std::uint64_t kLatencyMemoryNs = 500'000'000;  // a tenant that woke so recently will again

std::uint64_t plus(std::uint64_t time, double delta_ns) {
  return delta_ns <= 0 ? time : time + static_cast<std::uint64_t>(std::min(delta_ns, 1e15)) + 1;
}

}  // namespace

// Nobody may save up more lag than the wake credit, however long it slept or was held by its cap.
void Arbiter::clamp_virtual_times(const Tenant* holder) {
  constexpr double kNobody = 1e300;
  double least = kNobody, least_doubted = kNobody;
  for (const Tenant& tenant : tenants_) {
    const bool active = &tenant == holder ? true : tenant.claim.blocked > 0 && cap_credit(tenant) > 0;
    double& of_these = tenant.conduct.believed() ? least : least_doubted;
    if (active) of_these = std::min(of_these, tenant.virtual_time(rules_));
  }
  if (least == kNobody) least = least_doubted;  // one that wastes its turns holds nobody back
  if (least < kNobody) system_virtual_ = std::max(system_virtual_, least);
  for (Tenant& tenant : tenants_) {
    const std::uint64_t credit = tenant.conduct.shortened(tenant.conduct.shortened(rules_.wake_credit_ns));
    const double floor = system_virtual_ - static_cast<double>(credit) / tenant.weight(rules_);
    const double behind = floor - tenant.virtual_time(rules_);
    if (behind > 0) tenant.virtual_offset += behind;
  }
}

std::uint64_t Arbiter::decide(std::uint64_t now) {
  latency_present_ = false;
  for (Tenant& tenant : tenants_) {
    accrue(tenant, now);
    tenant.conduct.forgive(now);
    if (tenant.admitted && tenant.witness.suspects() && decided_ != 0)
      tenant.witness.keep(static_cast<double>(now - std::min(now, decided_)));
    if (tenant.woke) tenant.woke_at = now;
    // Held by its own cap, it does not wake when that has grown.
    if (cap_credit(tenant) <= 0) tenant.woke = false;
    const bool wakes = tenant.conduct.believed() && tenant.woke_at != 0 && now < tenant.woke_at + kLatencyMemoryNs;
    latency_present_ =
        latency_present_ || (wakes && (tenant.terms.latency || tenant.claim.gap_ns < rules_.latency_gap_ns));
  }
  follow_stay(now);
  settle(now);
  std::uint64_t deadline = kNever;
  for (int turn = 0; turn < 4; ++turn) {
    deadline = kNever;
    if (!step(now, deadline)) return deadline;
  }
  return std::min(deadline, now + kLeastPollNs);
}

// One admission or dismissal, or none: then `deadline` says when to look again.
bool Arbiter::step(std::uint64_t now, std::uint64_t& deadline) {
  Tenant* holder = has_holder_ ? find(holder_) : nullptr;
  clamp_virtual_times(holder);
  const double start = static_cast<double>(rules_.cap_start_ns);
  const double start_idle = static_cast<double>(rules_.cap_start_idle_ns);
  const auto look = [&](double in_ns) {
    deadline = std::min(deadline, plus(now, std::max(in_ns, static_cast<double>(kLeastPollNs))));
  };

  if (holder != nullptr) {
    Tenant& mine = *holder;
    Tenant* waiting = best_candidate(holder, start);
    const bool wants = holder_wants(mine, now);
    if (waiting == nullptr && !wants) waiting = best_candidate(holder, start_idle);
    Tenant* pressing = nullptr;
    for (Tenant& tenant : tenants_) {
      if (&tenant == holder || !candidate(tenant, start_idle) || !urgent(tenant, mine)) continue;
      if (pressing == nullptr || tenant.virtual_time(rules_) < pressing->virtual_time(rules_)) pressing = &tenant;
    }
    if (waiting != nullptr && !mine.stay_contended) contend(mine, now);
    const double ahead = static_cast<double>(outstanding(mine, now));
    const double headroom = std::max(0.0, static_cast<double>(window(mine, waiting != nullptr)) - ahead);
    const double held = now > mine.stay_start ? static_cast<double>(now - mine.stay_start) : 0;
    const double used = std::max(mine.service() - mine.stay_service, held);
    const double left = static_cast<double>(quantum(mine)) - used;
    // Of one that was caught every moment counts, so it is kept the device no longer than it says that it wants it.
    if (cap_credit(mine) <= 0 || (mine.witness.suspects() && capped(mine) && !wants)) {
      dismiss(mine, now);
      return true;
    } else if (pressing != nullptr) {
      dismiss(mine, now);
      admit(*pressing, now);
      return true;
    } else if (waiting != nullptr && (!wants || ((left <= 0 || lags(*waiting, mine)) &&
                                                 waiting->virtual_time(rules_) < mine.virtual_time(rules_)))) {
      dismiss(mine, now);
      return true;
    } else {
      // Work may turn out longer than told: looked after until it is known to be through, and until the next one rings.
      const bool working = mine.claim.streams > 0 || now < mine.busy_end + 2 * rules_.idle_ns;
      if (capped(mine) && (wants || ahead > 0)) look(cap_credit(mine) - headroom);
      if (capped(mine) && working) look(std::max(cap_credit(mine) - headroom, static_cast<double>(rules_.idle_ns)));
      // Nothing hangs on what it has, but that it is shown, and held against the driver's word. It rings for nothing.
      if (!capped(mine) && !unlimited(mine))
        look(static_cast<double>(working ? rules_.shown_ns : 25 * rules_.shown_ns));
      // It is told to ring one look before the last, so that no launch falls between that look and the telling.
      if (capped(mine) && !working && !mine.resting) look(static_cast<double>(2 * rules_.idle_ns));
      mine.resting = !working;
      if (waiting != nullptr) {
        if (left > 0) {
          look(left - headroom);
        } else {
          const double behind = (waiting->virtual_time(rules_) - mine.virtual_time(rules_)) * mine.weight(rules_);
          look(std::max(behind - headroom, static_cast<double>(rules_.idle_ns)));
        }
        if (mine.claim.blocked > 0) {
          // Launching as fast as it may: it rings before it pauses, and if it does not, this is not too late.
          look(static_cast<double>(std::max(mine.busy_end, now) - now) + static_cast<double>(rules_.window_ns));
        } else {
          const std::uint64_t end = std::max({mine.busy_end, mine.stay_start, now});
          const std::uint64_t pause = grace(mine);
          const bool gaps = mine.claim.gap_ns < pause || end == mine.stay_start;
          const double until = static_cast<double>(end - now);
          const bool running = gaps && mine.claim.streams > 0;
          look(until + static_cast<double>(running ? overrun(mine) + mine.beside_ns : pause) * (gaps ? 1.0 : 0.0) -
               static_cast<double>(rules_.handover_ns) * (gaps ? 0.0 : 1.0));
        }
      }
      // A tenant that waits for credit only: look when it has enough to be let in.
      for (const Tenant& tenant : tenants_) {
        if (&tenant == holder || tenant.claim.blocked == 0 || !capped(tenant)) continue;
        const double lacking = start - cap_credit(tenant);
        if (lacking > 0 && tenant.terms.limit > 0) look(lacking / tenant.terms.limit);
      }
    }
  }

  if (!has_holder_) {
    Tenant* last = has_draining_ ? find(draining_) : nullptr;
    const std::uint64_t remaining = last != nullptr ? outstanding(*last, now) : 0;
    const bool trusted = last == nullptr || last->claim.streams == 0 || is_predictable(*last);
    const std::uint64_t through = trusted ? 0 : last->busy_end + overrun(*last);
    const std::uint64_t longest_drain = closing_since_ + drain_limit(last);
    const bool ready = (remaining <= rules_.handover_ns && now >= through) || now >= longest_drain;
    // Credit below cap_start is not worth a hand-over: with caps that sum to the whole device the stays would shrink
    // to nothing. A device left idle for a moment gives everybody the credit for longer ones.
    Tenant* next = best_candidate(nullptr, start);
    unsigned blocked = 0;
    for (const Tenant& tenant : tenants_) blocked += tenant.claim.blocked > 0 ? 1 : 0;
    const double enough = blocked > 1 ? start : start_idle;
    if (next == nullptr) next = best_candidate(nullptr, enough);
    if (next != nullptr) {
      if (ready || next == last || (last != nullptr && urgent(*next, *last))) {
        admit(*next, now);
        return true;
      } else {
        // One that is waited for does not ring when it is through. Where streams of a process run beside each other,
        // that may be as much sooner as there are of them.
        double drained = remaining > rules_.handover_ns ? static_cast<double>(remaining - rules_.handover_ns) : 0;
        if (last != nullptr && last->claim.streams > last->claim.processes) {
          const double beside = static_cast<double>(last->claim.streams) / std::max(last->claim.processes, 1u);
          drained = std::min(drained, std::max(drained / beside, static_cast<double>(rules_.idle_ns)));
        }
        const double longest = static_cast<double>(longest_drain - now);
        deadline = std::min(
            deadline, plus(now, std::min(std::max(drained, static_cast<double>(trusted ? 0 : kLeastPollNs)), longest)));
      }
    } else {
      end_stay(now);
      // Nobody may start: leave the last one admitted, so that its next launch costs no round trip; and look again when
      // credit has grown.
      Tenant* idle = nullptr;
      for (Tenant& tenant : tenants_) {
        const double credit = cap_credit(tenant);
        const bool waits = tenant.claim.blocked > 0;
        if (tenant.witness.suspects() && capped(tenant) && !waits) continue;
        if (waits || (capped(tenant) && credit < start)) {
          const double lacking = (waits ? enough : start) - credit;
          if (tenant.terms.limit > 0 && (waits || tenant.last_used > 0)) look(lacking / tenant.terms.limit);
          continue;
        }
        if (idle == nullptr || tenant.last_used > idle->last_used) idle = &tenant;
      }
      if (idle != nullptr && ready) {
        admit(*idle, now);
        return true;
      }
    }
  }
  return false;
}

}  // namespace tensor_fusion::pool
