#pragma once
// Who may launch on one device. Exactly one tenant is admitted at a time; the next one is let in when the queue of the
// one before is about to run dry, so the device stays busy while every tenant still has it to itself long enough for
// its use to be measured exactly. Shares are fractions of device time: `request` is the floor, `limit` the cap, and
// what nobody uses is lent until its owner comes back.
//
// Pure: no clock, no I/O. Time is an argument (nanoseconds, never decreasing). One thread. Claims are hostile: every
// number is bounded before it counts, and a tenant that holds the device pays for it whatever it claims.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <span>
#include <utility>
#include <vector>

#include "pool/share_conduct.h"
#include "pool/share_division.h"
#include "pool/share_witness.h"

namespace tensor_fusion::pool {

using ShareKey = std::uint64_t;
inline constexpr std::uint64_t kNever = std::numeric_limits<std::uint64_t>::max();

// The numbers of the scheme, each with its reason. Tests switch single rules off to show what they are for.
struct ShareRules {
  std::uint64_t window_ns = 2'000'000;        // launch-ahead: long enough to hide a host round trip, one hardware slice
  std::uint64_t window_many_ns = 5'000'000;   // several streams drain unevenly
  std::uint64_t window_alone_ns = 4'000'000;  // nobody waits: spare both sides wake-ups
  std::uint64_t window_least_ns = 1'000'000;  // of one process when a tenant has many
  std::uint64_t window_latency_ns = 1'000'000;   // somebody wakes often and waits for what is queued
  std::uint64_t latency_gap_ns = 5'000'000;      // ... which is one that pauses for less than this
  std::uint64_t quantum_ns = 10'000'000;         // one stay, while others wait
  std::uint64_t quantum_least_ns = 4'000'000;    // of a tenant with a small request
  std::uint64_t handover_ns = 500'000;           // let the next in when this much of the last is left
  std::uint64_t drain_limit_ns = 30'000'000;     // ... or after this long: one long kernel must not stop everyone
  std::uint64_t gap_grace_ns = 300'000;          // kept over gaps of this size when the tenant usually has them
  std::uint64_t gap_grace_most_ns = 50'000'000;  // ... or of half of what a launch of who waits takes, up to this
  std::uint64_t gap_launch_ns = 4'000'000;       // ... where that is longer than this: two slices
  std::uint64_t overrun_ns = 2'000'000;          // work may run this much longer than predicted: one slice of another
  std::uint64_t long_ns = 40'000'000;            // work this long is not trusted to end as predicted, but waited for
  std::uint64_t idle_ns = 500'000;               // idle for longer and it "woke"
  std::uint64_t shown_ns = 20'000'000;           // between looks at one that neither a limit nor a neighbour holds
  std::uint64_t cap_ceiling_ns = 10'000'000;     // an idle tenant saves up this much of its limit
  std::uint64_t cap_ceiling_waiting_ns = 40'000'000;  // a waiting one more: others' stays must not cost it its share
  std::uint64_t cap_start_ns = 6'000'000;             // credit worth a hand-over while others could run
  std::uint64_t cap_start_idle_ns = 500'000;          // ... and while the device would idle
  std::uint64_t priority_ceiling_ns = 50'000'000;     // device time a latency class may take at once
  std::uint64_t lag_ns = 20'000'000;                  // behind by this much: at once
  std::uint64_t wake_credit_ns = 100'000'000;         // of lag kept over idle time
  std::uint64_t marker_wait_ns = 100'000'000;  // for a marker that should have come, before others' count as alone
  std::uint64_t marker_wait_most_ns = 2'000'000'000;  // ... whatever its author says of when it should
  std::uint64_t sweep_most_ns = 25'000'000;           // longest wait for a moment that cuts no stretch in two
  double scale_least = 0.3, scale_most = 3.0;         // k
  double least_request = 0.01;                        // weight of a tenant without a request
  bool exact = true;                                  // settle from markers; off: estimates only
  bool subtract_progress = true;                      // (told to the model's gate) queue shrinks as time passes
};

struct ShareTerms {
  double request = 0;
  double limit = 1;
  bool latency = false;
  bool operator==(const ShareTerms&) const = default;
};

// One marker: a stretch of device time of one stream, and what its launches were estimated at.
struct ShareStretch {
  std::uint64_t start_ns = 0;
  std::uint64_t end_ns = 0;
  std::uint64_t estimated_ns = 0;
  std::uint32_t process = 0;  // of the tenant, by any numbering
  bool guessed = false;       // nobody had measured what was launched: the estimate says nothing
  bool untold = false;        // its process has ended with work outstanding: this is all that it may have had
};

// What a tenant says, summed over its processes.
struct ShareClaim {
  std::uint64_t launched_ns = 0;         // estimated time let through, ever; never decreases
  std::uint64_t progress_ns = 0;         // when all that is outstanding will have ended, one process after another
  std::uint64_t wanted_since_ns = 0;     // when the present stretch of work began
  std::uint64_t gap_ns = 0;              // usual pause between two stretches
  std::uint64_t open_since_ns = kNever;  // no stretch still to come starts before this
  std::uint32_t blocked = 0;             // threads at the gate
  std::uint32_t streams = 0;             // with work outstanding
  std::uint32_t processes = 1;           // with work outstanding or blocked
};

struct ShareGrant {
  bool admitted = false;
  bool known = false;      // it need not ring when it launches: it is counted as wanting, or will be looked at
  bool contended = false;  // holds the device while others wait: it should ring before it pauses
  bool unlimited = false;  // alone on the device and without a limit: the gate stands open
  std::uint64_t window_ns = 0;
  std::uint64_t until_ns = 0;
  std::uint64_t service_ns = 0;
  double scale = 1;
};

struct ShareAccount {
  double service_ns = 0;  // device time charged so far
  double placed_ns = 0;   // of it, what the device's timeline has told: all but what is charged in advance
  std::uint64_t placed_until_ns = kNever;  // ... up to when on that line; kNever: until now, for nothing is under way
  double estimated_ns = 0;                 // what it launched, by its estimates and the scale alone
  double gap_ns = 0;                       // time the device was kept for it while others waited
  double virtual_time = 0;
  double cap_credit_ns = 0;
  double scale = 1;
  bool wanting = false;
  bool bypass_suspected = false;
  bool suspected = false;     // ... of late, at least once: what it was kept the device for counts
  bool look_closely = false;  // NVML should be asked again soon
  unsigned doubt = 0;         // of what it says, by what it made of its stays
};

class Arbiter {
 public:
  explicit Arbiter(ShareRules rules = {}) : rules_(rules) {}

  void add(ShareKey key, ShareTerms terms, std::uint64_t now);
  void change(ShareKey key, ShareTerms terms, std::uint64_t now);
  void remove(ShareKey key, std::uint64_t now);
  bool empty() const { return tenants_.empty(); }
  std::size_t size() const { return tenants_.size(); }

  void observe(ShareKey key, const ShareClaim& claim, std::span<const ShareStretch> stretches, std::uint64_t now);
  // NVML's slow word on one tenant over the window that ends now.
  void observe_utilisation(ShareKey key, double percent, std::uint64_t window_ns, std::uint64_t now);
  // Its counters went back, which only a forger's do.
  void accuse(ShareKey key);

  // Settles, charges and decides. Returns when to decide again at the latest, kNever when only a bell can matter.
  std::uint64_t decide(std::uint64_t now);

  ShareGrant grant(ShareKey key) const;
  ShareAccount account(ShareKey key) const;
  const ShareRules& rules() const { return rules_; }

 private:
  struct Stretch {
    std::uint32_t context;
    std::uint64_t start;
    std::uint64_t end;
    double estimated;
    double had;            // wall time given to it so far
    bool alone;            // no other tenant's stretch touches it
    bool guessed, untold;  // as in ShareStretch
    double target(double scale) const { return untold ? static_cast<double>(end - start) : estimated * scale; }
  };
  struct Tenant {
    ShareKey key;
    ShareTerms terms;
    ShareClaim claim;
    // claimed = measured + scale * (launched - settled)
    double launched = 0, settled = 0, measured = 0, extra = 0;
    double scale = 1;
    double gaps = 0;      // time the device was kept for it, and idle, while others waited
    double unplaced = 0;  // charged, but no marker says when: may explain idle time
    double virtual_offset = 0;
    double cap_earned = 0, priority_earned = 0;
    std::uint64_t accrued_at = 0;
    std::uint64_t last_used = 0;  // decision at which it last held the device
    std::uint64_t stay_start = 0;
    std::uint64_t beside_ns = 0;  // what the one before had queued when this was let in: its work takes as much longer
    double stay_service = 0;      // service when the stay began
    bool stay_contended = false;
    bool admitted = false;
    bool woke = false;
    std::uint64_t busy_end = 0;  // latest end of its work that we know or expect
    std::uint64_t seen_wanted_since = 0;
    double longest = 0;    // what one of its stretches takes, if it has long ones
    bool resting = false;  // told to ring: nobody will look by himself whether it works again
    bool early = false;    // dismissed while its last work ran, because it usually pauses then
    std::uint64_t woke_at = 0;
    std::vector<Stretch> stretches;  // not yet settled
    std::uint64_t late_until = 0;    // stretches that came too late were charged up to here
    ShareWitness witness;
    ShareConduct conduct;
    double judged = 0;             // `measured` when its claims were last held against the clock
    double seen_before = 0;        // by the driver's word, when its oldest open work began
    std::uint64_t ungated_ns = 0;  // when it was last known to launch what it likes, uncounted
    double uncharged = 0;          // told, but too late to be sure that it was its own

    double claimed() const { return measured + scale * (launched - settled); }
    // Of one that was caught the device's time counts, where it is more than it says.
    double own() const { return witness.suspects() ? std::max(claimed(), witness.kept_until_ns()) : claimed(); }
    double service() const { return own() + extra; }
    double placed() const {
      return (witness.suspects() ? std::max(measured, witness.kept_until_ns()) : measured) + extra;
    }
    double weight(const ShareRules& rules) const;
    double virtual_time(const ShareRules& rules) const;
  };

  bool step(std::uint64_t now, std::uint64_t& deadline);
  Tenant* find(ShareKey key);
  const Tenant* find(ShareKey key) const;
  void accrue(Tenant& tenant, std::uint64_t now) const;
  double longest() const;
  std::uint64_t horizon(std::uint64_t now) const;
  std::uint64_t sweep_end(std::uint64_t now);
  void settle(std::uint64_t now);
  void charge_idle(std::uint64_t until, std::uint64_t now);
  static void join(std::vector<Stretch>& stretches);
  void close(Tenant& tenant, const Stretch& stretch) const;
  void settle_at_estimate(Tenant& tenant, double estimated, double most_ns) const;
  static ShareTold told(const Tenant& tenant, std::uint64_t now);
  static void bound_untold(const Tenant& tenant, ShareStretch& said, std::uint64_t now);
  void settle_late(Tenant& tenant, const ShareStretch& said, std::uint64_t end, double estimated,
                   std::uint64_t now) const;
  void contend(Tenant& holder, std::uint64_t now);
  double cap_credit(const Tenant& tenant) const;
  double priority_credit(const Tenant& tenant) const;
  std::uint64_t outstanding(const Tenant& tenant, std::uint64_t now) const;
  bool capped(const Tenant& tenant) const { return tenant.terms.limit < 1.0; }
  bool unlimited(const Tenant& tenant) const;
  std::uint64_t overrun(const Tenant& tenant) const;
  bool is_predictable(const Tenant& tenant) const { return overrun(tenant) <= rules_.overrun_ns; }
  std::uint64_t grace(const Tenant& tenant) const;
  bool holder_wants(const Tenant& tenant, std::uint64_t now) const;
  bool candidate(const Tenant& tenant, double least_credit) const;
  Tenant* best_candidate(const Tenant* except, double least_credit);
  bool urgent(const Tenant& waiting, const Tenant& holder) const;
  bool lags(const Tenant& waiting, const Tenant& holder) const;
  std::uint64_t quantum(const Tenant& tenant) const;
  std::uint64_t window(const Tenant& tenant, bool contended) const;
  void admit(Tenant& tenant, std::uint64_t now);
  void dismiss(Tenant& tenant, std::uint64_t now);
  void end_stay(std::uint64_t now);
  void follow_stay(std::uint64_t now);
  std::uint64_t drain_limit(const Tenant* last) const;
  void clamp_virtual_times(const Tenant* holder);

  ShareRules rules_;
  std::vector<Tenant> tenants_;
  ShareKey holder_ = 0;
  bool has_holder_ = false;
  ShareKey draining_ = 0;  // the last holder, while its queue runs dry
  bool has_draining_ = false;
  std::uint64_t closing_since_ = 0;
  std::uint64_t decided_ = 0;  // when that was done last
  std::uint64_t decisions_ = 0;
  double system_virtual_ = 0;
  bool latency_present_ = false;
  std::uint64_t swept_ = 0;       // the timeline is settled up to here
  std::vector<ShareStay> stays_;  // not yet settled
  // Scratch of settle().
  struct Row {
    Tenant* tenant;
    Stretch* stretch;
    std::size_t row;
  };
  ShareDivision division_;
  std::vector<Row> rows_;
  std::vector<std::pair<std::uint64_t, std::uint64_t>> ends_;  // and starts, of stretches not yet settled
};

}  // namespace tensor_fusion::pool
