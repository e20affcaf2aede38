#include "guest/limiter/core/verdict.h"

#include "guest/limiter/core/family.h"

namespace tensor_fusion::guest::limiter::gate {
namespace {

constexpr auto kRelaxed = std::memory_order_relaxed;
constexpr std::uint64_t kLongestWaitNs = 100'000'000;       // nobody's death may hold a launch for longer at a time
constexpr std::uint64_t kUnknownWaitNs = 20'000'000;        // for the first measurement of a function
constexpr std::uint64_t kUnknownPendingNs = 2'000'000'000;  // ... that a marker in flight will tell
constexpr std::uint32_t kUnknownAtOnce = 4;                 // launches that nobody knows the duration of
constexpr std::uint32_t kVouchedAtOnce = 12;                // ... but that their family vouches for
constexpr std::uint64_t kUnknownShortNs = 100'000;          // ... where all of them together seem to take no longer
constexpr std::uint64_t kMostAheadNs = 100'000'000;         // of a slice's work that is outstanding at once
constexpr std::uint64_t kTurnLookNs = 50'000;               // one of those that wait for a turn looks so often
constexpr std::uint64_t kTurnRestNs = 2'000'000;            // ... and not before the present one's work is to be over
constexpr std::uint64_t kAdmitted = UINT64_MAX;             // Alone::until_ns meanwhile
constexpr std::uint64_t kSettleInNs = 1'000'000;  // after an admission, the tail of the one before may still run

bool away(const Device& device, std::uint64_t now) {
  if ((device.grant->flags.load(kRelaxed) & contract::kComputeLocal) != 0) return true;
  const std::uint64_t heartbeat = device.grant_page->heartbeat_ns.load(kRelaxed);
  return now > heartbeat + contract::kHeartbeatLateNs;
}

// Something whose duration nobody knows may take any time: no more of it than a few short ones is let through until
// that is measured, however long it takes, and nothing at all while known work runs far longer than it should, or while
// as many streams have work as can be followed.
bool in_the_dark(const State& state, const Duration& duration, const Attempt& attempt) {
  if (attempt.quiet) return false;  // markers cannot be read meanwhile
  const std::uint64_t began = attempt.began_ns, now = attempt.now_ns;
  if (state.timeline.overdue(now, State::kOverdueNs)) return true;
  if (state.trust.low() && state.timeline.any_pending()) return true;
  if (!attempt.room && !state.timeline.idle() && now < began + kUnknownPendingNs) return true;
  if (duration.known()) return false;
  const std::uint32_t unknown = state.timeline.unknown();
  if (unknown == 0 || (unknown < kVouchedAtOnce && g_families.vouch_for(duration))) return false;
  if (state.unknown_ns != 0 && unknown < kUnknownAtOnce && (unknown + 1) * state.unknown_ns <= kUnknownShortNs)
    return false;
  return state.timeline.any_pending() || now < began + kUnknownWaitNs;
}

bool held_in_the_dark(State& state, const Duration& duration, const Attempt& attempt) {
  if (in_the_dark(state, duration, attempt)) return state.dark.holds(attempt.now_ns);
  state.dark.lift();
  return false;
}

std::uint64_t look_again_in(std::uint64_t began, std::uint64_t now) {
  const std::uint64_t waited = (now - began) / 8;
  return waited < 20'000 ? 0 : waited < 500'000 ? waited : 500'000;
}

// What runs for long goes one process of the slice at a time, and so does what nobody knows the length of.
Verdict pass_in_turn(State& state, const Device& device, const Duration& duration, const Attempt& attempt,
                     std::uint64_t ahead) {
  if (attempt.quiet) return {true, false, 0};  // nobody could say when it is over
  const std::uint64_t began = attempt.began_ns, now = attempt.now_ns;
  const std::uint32_t sharers = state.sharers.count(device, now);
  const std::uint64_t takes = scaled(device, duration.estimated_ns.load(kRelaxed));
  const bool known = duration.known() || g_families.vouch_for(duration);
  if (known && takes < kMostAheadNs / sharers) return {true, false, 0};
  const std::uint64_t lapses = known ? turn_lapses_ns(now + ahead + takes, takes) : now + kTurnUnknownNs;
  const bool outstanding = state.timeline.in_turn() > 0;
  const bool more = ahead >= device.grant->window_ns.load(kRelaxed) && now < state.turn.since_ns() + kMostAheadNs;
  const std::uint64_t look = kTurnLookNs * sharers;
  if (state.turn.take(device, now, lapses, look, outstanding, more)) return {true, false, 0, true};
  if (state.turn.mine()) return {false, false, look_again_in(began, now)};  // its own work first, which is outstanding
  const std::uint64_t ends = LongTurn::ends_ns(device, now);
  const std::uint64_t left = ends > now ? ends - now : 0;
  const std::uint64_t rest = left < kTurnRestNs ? left : kTurnRestNs;
  return {false, false, rest > look ? rest : look};
}

}  // namespace

Verdict judge(State& state, const Device& device, const StreamRecord* record, const Duration& duration,
              const Attempt& attempt) {
  const std::uint64_t began = attempt.began_ns, now = attempt.now_ns;
  const std::uint64_t ahead = state.progress_ns > now ? state.progress_ns - now : 0;
  if (away(device, now)) {
    state.alone.decided = false;
    if (held_in_the_dark(state, duration, attempt)) return {false, false, look_again_in(began, now)};
    const std::uint64_t wait = state.bucket.wait_ns(device, now, state.sharers.count(device, now));
    if (wait == 0) return pass_in_turn(state, device, duration, attempt, ahead);
    return {false, false, wait < kLongestWaitNs ? wait : kLongestWaitNs};
  }
  state.bucket.rest(now);
  const bool pending = state.timeline.any_pending();
  if ((attempt.gate & contract::kGateAdmitted) == 0) {
    LongTurn::ask_on(device, now);
    // What is outstanding is still alone: the next tenant is let in as it ends.
    if (!state.alone.decided) {
      state.alone = {};
    } else if (state.alone.until_ns == kAdmitted) {
      state.alone.until_ns = now + ahead;
    }
    state.alone.decided = true;
    // Work of several streams may be over as much sooner as there are of them.
    const std::uint32_t streams = pending ? state.timeline.active_streams() : 0;
    const std::uint64_t left = streams > 1 ? ahead / streams : ahead;
    const std::uint64_t look = pending ? (left < 100'000 ? 200'000 : left + 100'000) : kLongestWaitNs;
    return {false, (attempt.gate & contract::kGateKnown) == 0, look < kLongestWaitNs ? look : kLongestWaitNs};
  }
  if (!state.alone.decided || state.alone.until_ns != kAdmitted) state.alone = {now + kSettleInNs, kAdmitted, true};
  if (held_in_the_dark(state, duration, attempt)) return {false, false, look_again_in(began, now)};
  // One at a time until the first has told what it costs; if a marker is to tell, it is waited for.
  const std::uint64_t unknown_wait = pending ? kUnknownPendingNs : kUnknownWaitNs;
  if (!duration.known() && duration.launched.load(kRelaxed) > 0 && now < began + unknown_wait &&
      !g_families.vouch_for(duration))
    return {false, false, 200'000};
  const std::uint64_t window = device.grant->window_ns.load(kRelaxed);
  // A stream with nothing on it may run beside the others, but no process fills one after another with long work.
  const bool idle = record != nullptr && record->count == 0 && record->unmarked_ns == 0;
  if (ahead < window || (idle && ahead < kMostAheadNs / state.sharers.count(device, now)))
    return pass_in_turn(state, device, duration, attempt, ahead);
  const std::uint64_t keep = window / 8 * 5;
  const std::uint64_t wait = ahead > keep ? ahead - keep : 0;
  return {false, false, wait < 50'000 ? 50'000 : wait < 2'000'000 ? wait : 2'000'000};
}

}  // namespace tensor_fusion::guest::limiter::gate
