#include "guest/limiter/core/gate.h"

#include "guest/limiter/core/attachment.h"
#include "guest/limiter/core/captures.h"
#include "guest/limiter/core/driver.h"
#include "guest/limiter/core/durations.h"
#include "guest/limiter/core/family.h"
#include "guest/limiter/core/lease.h"
#include "guest/limiter/core/mutex.h"
#include "guest/limiter/core/os.h"
#include "guest/limiter/core/state.h"
#include "guest/limiter/core/timeline.h"
#include "guest/limiter/core/verdict.h"

namespace tensor_fusion::guest::limiter::gate {
namespace {

constexpr auto kRelaxed = std::memory_order_relaxed;
constexpr std::uint64_t kLeastLeaseNs = 50'000;
constexpr std::uint64_t kPollEveryNs = 200'000;
constexpr std::uint64_t kMeasured = 1, kUnknown = 2, kInTurn = 4;  // in Token::word[0]
constexpr std::uint64_t kShortNs = 20'000'000, kShortLookNs = 50'000;
constexpr std::uint64_t kGraceNs = 300'000;  // pauses shorter than this are not worth a bell

std::atomic<std::uint64_t> g_looked_for_ended_ns{0};
constexpr std::uint64_t kLookForEndedNs = 100'000'000;

constinit State g_states[contract::kMaxDevices]{};

State& state_of(const Device& device) { return g_states[device.index]; }

void fold_all(State& state, const Device& device) {
  for (Lease& lease : my_leases().of_stream) state.fold(device, lease);
}

void fold_ended(Leases& place) {
  const auto thread = reinterpret_cast<std::uint64_t>(&place);
  for (State& state : g_states) {
    Guard guard(state.mutex);
    if (state.device == nullptr) continue;
    for (Lease& lease : place.of_stream) state.fold(*state.device, lease);
    Settled settled;
    state.timeline.let_thread_go(thread, settled, *state.device->mine);
    state.absorb(*state.device, settled, os::monotonic_ns());
    state.tell(*state.device);
  }
  for (Lease& lease : place.of_stream) lease = Lease{};
  place.thread.store(0, kRelaxed);
}

// Charges what threads launched that have ended since. No lock of a state may be held.
void look_for_ended(std::uint64_t now) {
  std::uint64_t last = g_looked_for_ended_ns.load(kRelaxed);
  if (now < last + kLookForEndedNs || !g_looked_for_ended_ns.compare_exchange_strong(last, now, kRelaxed)) return;
  const std::uint32_t me = os::thread_id();
  Guard guard(g_leases_mutex);
  for (Leases& place : g_leases) {
    const std::uint32_t thread = place.thread.load(kRelaxed);
    if (thread == 0 || &place == &my_leases()) continue;
    if (thread != me && os::thread_lives(thread)) continue;
    if (thread != me && g_captures.any()) g_captures.thread_gone(thread);
    fold_ended(place);
  }
}

// The place of a lease is wanted for another device.
void fold_elsewhere(Lease& lease) {
  Device& device = *lease.device;
  State& state = state_of(device);
  Guard guard(state.mutex);
  state.fold(device, lease);
  state.tell(device);
}

// A stretch of work begins after a pause: the hypervisor learns how long the pauses are, and of the beginning.
void began_stretch(State& state, const Device& device, std::uint64_t now) {
  if (state.waiting > 0 || !state.timeline.idle()) return;
  const std::uint64_t ended = state.progress_ns;
  if (ended > now) return;
  const std::uint64_t gap = now - ended < 5'000'000 ? now - ended : 5'000'000;
  state.gap_ns = ended == 0 ? gap : (state.gap_ns * 4 + gap) / 5;
  device.mine->gap_ns.store(state.gap_ns, kRelaxed);
  device.mine->wanted_since_ns.store(now, kRelaxed);
}

// Called when what is launched stands in the claim: either the hypervisor sees it there, or this sees that it sleeps.
bool must_ring(const Device& device) {
#if defined(__SANITIZE_THREAD__)
  static std::atomic<std::uint32_t> word{0};  // it understands no fence, but an exchange, which orders as well
  word.exchange(0, std::memory_order_seq_cst);
#else
  std::atomic_thread_fence(std::memory_order_seq_cst);
#endif
  return (device.grant->gate.load(kRelaxed) & contract::kGateKnown) == 0;
}

// A capture may have begun on it since it was asked.
bool may_capture(CUstream stream, bool own) { return g_captures.any() && driver_captures(stream, own).value_or(true); }

Token slow(Device& device, CUstream stream, Duration& duration, bool own, bool whole) {
  Token token{&device, stream, {}, own};
  if (capturing(stream, own)) return token;  // charged when the graph is launched
  State& state = state_of(device);
  const auto context = reinterpret_cast<CUcontext>(t_current.context);
  const std::uint64_t began = os::monotonic_ns();
  std::uint64_t now = began;
  bool waited = false, in_turn = false, runs_over = false;
  take_leases();
  look_for_ended(now);
  Lease& lease = lease_of(stream);
  if (lease.granted_ns != 0 && lease.device != &device) fold_elsewhere(lease);
  state.mutex.lock();
  BesideCaptures beside;
  bool quiet = beside.forbid_calls();  // another stream is in capture
  state.device = &device;
  state.fold(device, lease);
  StreamRecord* record = state.timeline.stream_of(context, stream, own, this_thread(), quiet);
  if (now > state.polled_ns + kPollEveryNs) state.poll(device, now);
  began_stretch(state, device, now);
  for (;;) {
    const std::uint32_t gate = device.grant->gate.load(std::memory_order_acquire);
    if (device.grant_page->closed.load(kRelaxed) != 0 || bypassed(device)) break;
    const bool room = state.timeline.has_room(record);
    const Verdict verdict = judge(state, device, record, duration, {began, now, gate, quiet, room});
    in_turn = verdict.in_turn;
    runs_over = state.runs_over(device, (gate & contract::kGateAdmitted) == 0);
    if (verdict.pass) break;
    if (!waited) {
      waited = true;
      ++state.waiting;
      device.mine->held_launches.fetch_add(1, kRelaxed);
      fold_all(state, device);
    }
    if (!g_captures.any())
      state.timeline.mark_all(context, this_thread(), now);
    else if (!quiet && record != nullptr && !may_capture(stream, own))
      state.timeline.mark(*record, now);
    state.tell(device);
    if (Attachment* attached = attachment(); attached != nullptr) attached->ledger.keep_slot();
    state.mutex.unlock();
    if (runs_over || (verdict.ring && must_ring(device))) ring(g_shared.slice);
    if (verdict.wait_ns != 0) os::futex_wait(&device.grant->gate, gate, verdict.wait_ns, true);
    state.mutex.lock();
    quiet = beside.forbid_calls();
    now = os::monotonic_ns();
    state.poll(device, now);
    record = state.timeline.stream_of(context, stream, own, this_thread(), quiet);  // another may have its place
  }
  quiet = quiet || (waited && may_capture(stream, own));
  if (quiet) device.mine->unmeasured.fetch_add(1, kRelaxed);
  if (waited) {
    --state.waiting;
    device.mine->held_ns.fetch_add(now - began, kRelaxed);
  }

  const std::uint64_t estimated = duration.estimated_ns.load(kRelaxed);
  // Measured by itself: the first launches, a sample now and then, and whatever is long anyway.
  const bool alone = record != nullptr && !quiet &&
                     (whole || in_turn || state.trust.low() || !duration.settled() || estimated >= kMarkEveryNs ||
                      now > duration.next_sample_ns.load(kRelaxed));
  if (record != nullptr && !quiet) {
    if (record->unmarked_ns > 0 && (alone || record->unmarked_ns >= kMarkEveryNs)) state.timeline.mark(*record, now);
    Settled settled;
    state.timeline.open(*record, now, state.alone, settled, *device.mine);
    state.absorb(device, settled, now);
  }
  // A quarter of what the window still has: many threads get small leases, one alone looks rarely.
  const std::uint64_t window = device.grant->window_ns.load(kRelaxed);
  const std::uint64_t ahead = state.progress_ns > now ? state.progress_ns - now : 0;
  std::uint64_t granted = window > ahead ? (window - ahead) / 4 : 0;
  if (granted < kLeastLeaseNs) granted = kLeastLeaseNs;
  if (granted > kMostLeaseNs) granted = kMostLeaseNs;
  if (record != nullptr && !alone && granted >= estimated && has_leases()) {
    lease.stream = stream;
    lease.device = &device;
    lease.context = t_current.context;
    lease.epoch = g_epoch.load(kRelaxed);
    lease.granted_ns = granted;
    lease.left_ns = granted - estimated;
    lease.launches = 1;
    lease.own = own;
    lease.only = &duration;
    lease.record = record;
    lease.generation = record->generation;
    ++record->leases;
  } else {
    granted = estimated;
    duration.launched.fetch_add(1, kRelaxed);
    state.bucket.charge(scaled_for_bucket(device, estimated));
    device.mine->launched_ns.fetch_add(estimated, kRelaxed);
    device.mine->launches.fetch_add(1, kRelaxed);
    if (record != nullptr) {
      state.timeline.add(*record, estimated, &duration, 1);
      const bool unknown = alone && !duration.known();
      state.timeline.qualify(*record, unknown, in_turn);
      token.word[0] = alone ? kMeasured | (unknown ? kUnknown : 0) | (in_turn ? kInTurn : 0) : 0;
      token.word[1] = reinterpret_cast<std::uint64_t>(record);
      token.word[2] = record->generation;
    }
  }
  if (state.pending_ns == 0 && state.last_end_ns < now) state.last_end_ns = now;
  if (record != nullptr) state.pending_ns += granted;  // else no marker will ever say that it is over
  state.progress_ns = (state.progress_ns > now ? state.progress_ns : now) + scaled(device, granted);
  if (record != nullptr) record->expected_end_ns = state.progress_ns;
  if (in_turn && record == nullptr) state.untold_until_ns = duration.known() ? state.progress_ns : now + kTurnUnknownNs;
  state.tell(device);
  const bool decided = state.alone.decided;
  state.mutex.unlock();
  if (runs_over || (decided && must_ring(device))) ring(g_shared.slice);
  return token;
}

[[gnu::noinline]] Token slow_launch(Device& device, CUstream stream, LaunchKey key, std::uint64_t mixed, bool own) {
  const std::uint32_t guess = state_of(device).guess.ns();
  return slow(device, stream, g_families.duration_of(key.function, key.shape, mixed, guess), own, false);
}

constexpr std::uint64_t kGraphShape = ~0ull;

std::uint64_t graph_key(CUgraphExec exec) { return Durations::key_of(exec, kGraphShape); }

}  // namespace

Token before_launch(Device& device, CUstream stream, LaunchKey key, bool own) {
  Lease& lease = lease_of(stream);
  const std::uint64_t mixed = Durations::key_of(key.function, key.shape);
  Duration* duration = g_durations.find(mixed);
  if (duration != nullptr && duration->settled() && lease.device == &device && lease.stream == stream &&
      lease.own == own && lease.context == t_current.context && lease.epoch == g_epoch.load(kRelaxed) &&
      !g_captures.any() && (device.grant->gate.load(std::memory_order_acquire) & contract::kGateAdmitted) != 0) {
    const std::uint64_t estimated = duration->estimated_ns.load(kRelaxed);
    if (estimated <= lease.left_ns) {
      lease.left_ns -= estimated;
      ++lease.launches;
      lease.mixed |= lease.only != duration;
      return {&device, stream, {}, own};
    }
  }
  return slow_launch(device, stream, key, mixed, own);
}

namespace {

// Most of what is new takes little, and its program may not call for long: it is waited for, so that no neighbour
// has to.
void await_short(State& state, Device& device) {
  const std::uint64_t began = os::monotonic_ns();
  for (std::uint64_t now = began; state.timeline.in_turn() > 0 && now < began + kShortNs; now = os::monotonic_ns()) {
    if (state.sharers.count(device, now) < 2) return;
    state.mutex.unlock();
    os::futex_wait(&device.grant->gate, device.grant->gate.load(kRelaxed), kShortLookNs, true);
    state.mutex.lock();
    state.poll(device, os::monotonic_ns());
  }
  state.tell(device);
}

}  // namespace

void after_launch(Token& token, CUresult result) {
  Device& device = *token.device;
  State& state = state_of(device);
  auto* record = reinterpret_cast<StreamRecord*>(token.word[1]);
  Guard guard(state.mutex);
  if (result != CUDA_SUCCESS) {
    // Nothing was put on the stream: what was charged is settled by the next marker's clock.
    if (record->generation == token.word[2])
      state.timeline.drop(*record, (token.word[0] & kUnknown) != 0, (token.word[0] & kInTurn) != 0);
    return state.tell(device);
  }
  BesideCaptures beside;
  if (record->generation != token.word[2] || beside.forbid_calls()) return;
  if (may_capture(token.stream, token.per_thread_stream)) return;
  state.timeline.mark(*record, os::monotonic_ns());
  state.tell(device);
  if ((token.word[0] & kUnknown) != 0 && (token.word[0] & kInTurn) != 0) await_short(state, device);
}

void graph_instantiated(Device& device, CUgraphExec exec, CUgraph graph) {
  std::size_t nodes = 0;
  if (driver().cuGraphGetNodes == nullptr || driver().cuGraphGetNodes(graph, nullptr, &nodes) != CUDA_SUCCESS)
    nodes = 1;
  const std::uint64_t least = state_of(device).guess.ns();
  const std::uint64_t guess = nodes * 10'000 < least ? least : nodes * 10'000;
  g_durations.find_or_add(graph_key(exec), static_cast<std::uint32_t>(guess < 1'000'000'000 ? guess : 1'000'000'000));
}

// Its old duration is the best guess for the new parameters; measured again at once.
void graph_updated(CUgraphExec exec) {
  if (Duration* duration = g_durations.find(graph_key(exec))) duration->next_sample_ns.store(0, kRelaxed);
}

void graph_destroyed(CUgraphExec exec) { g_durations.remove(graph_key(exec)); }

Token before_graph_launch(Device& device, CUgraphExec exec, CUstream stream, bool own) {
  return slow(device, stream, g_durations.find_or_add(graph_key(exec), state_of(device).guess.ns()), own, true);
}

void before_sync(Device& device, CUstream, bool, bool) {
  if (bypassed(device) || g_captures.any()) return;
  State& state = state_of(device);
  look_for_ended(os::monotonic_ns());
  bool ring_now = false;
  {
    Guard guard(state.mutex);
    if (g_captures.any()) return;  // begun since
    fold_all(state, device);
    if (state.pending_ns == 0 && state.timeline.idle()) return state.tell(device);  // of what was folded
    const std::uint64_t now = os::monotonic_ns();
    state.timeline.mark_all(reinterpret_cast<CUcontext>(t_current.context), this_thread(), now);
    state.tell(device);
    // A tenant that usually pauses after this lets the next one come in before its own work has ended.
    ring_now = (device.grant->gate.load(kRelaxed) & contract::kGateContended) != 0 && state.gap_ns >= kGraceNs;
  }
  if (ring_now) ring(g_shared.slice);
}

void after_sync(Device& device, CUstream, bool, bool) {
  if (bypassed(device)) return;
  State& state = state_of(device);
  Guard guard(state.mutex);
  if (state.pending_ns == 0 && state.timeline.idle()) return;
  const std::uint64_t now = os::monotonic_ns();
  state.poll(device, now);
  if (state.timeline.idle()) state.over(now);
  state.tell(device);
}

void stream_destroyed(Device& device, CUstream stream) {
  State& state = state_of(device);
  Guard guard(state.mutex);
  fold_all(state, device);
  const std::uint64_t now = os::monotonic_ns();
  Settled settled;
  BesideCaptures beside;
  const bool marks = !beside.forbid_calls() && !may_capture(stream, false);
  state.timeline.let_stream_go(stream, marks, now, settled, *device.mine);
  state.absorb(device, settled, now);
  state.tell(device);
}

// Whoever found none before that has made its calls once it lets go of the lock.
void capture_begins() {
  take_leases();  // the end of a thread is seen by them
  g_captures.count();
  for (State& state : g_states) Guard guard(state.mutex);
  g_captures.await_calls();
}

void context_destroyed(Device& device, CUcontext context) {
  State& state = state_of(device);
  Guard guard(state.mutex);
  fold_all(state, device);
  // Known by its markers as far as it is over, the rest by how long it has run.
  if (!g_captures.any())
    state.timeline.mark_all(reinterpret_cast<CUcontext>(t_current.context), this_thread(), os::monotonic_ns());
  const std::uint64_t now = os::monotonic_ns();
  state.poll(device, now);
  Settled settled;
  state.timeline.cut_context(context, now, settled, *device.mine);
  state.absorb(device, settled, now);
  if (state.timeline.idle()) state.over(now);
  state.tell(device);
}

void forked() {
  g_captures.clear();
  // The locks came along, who held them did not.
  forget_leases();
  for (State& state : g_states) {
    state.mutex.reset();
    state.device = nullptr;
    state.timeline.clear();
    state.bucket = Bucket{};
    state.turn.forget();
    state.sharers = Sharers{};
    state.untold_until_ns = 0;
    state.guess.forget();
    state.trust = Trust{};
    state.pending_ns = state.progress_ns = state.last_end_ns = state.polled_ns = 0;
    state.alone = Alone{};
    state.gap_ns = state.unknown_ns = 0;
    state.waiting = 0;
    state.told = 0;
    state.dark = Darkness{};
  }
  g_durations.clear();
  g_families.clear();
}

}  // namespace tensor_fusion::guest::limiter::gate
