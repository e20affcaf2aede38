#include "sim/device/context.h"

#include <time.h>

#include <algorithm>
#include <bit>
#include <utility>

#include "sim/device/clock.h"
#include "sim/device/kill_point.h"
#include "sim/device/memory.h"
#include "sim/device/reaper.h"
#include "sim/device/transaction.h"
#include "sim/device/wait.h"

namespace tensor_fusion::sim::device {
namespace {

// A free slot in the machine's table of contexts, claimed for this process. The caller holds State::admin.
[[nodiscard]] ContextRecord* claim_slot(Machine& machine, std::uint32_t* slot) {
  State& state = machine.state();
  for (std::uint32_t i = 0; i < kMaxContexts; ++i) {
    auto& taken = state.context_taken[i >> 6];
    const std::uint64_t bit = std::uint64_t{1} << (i & 63);
    if ((taken.load(std::memory_order_relaxed) & bit) != 0) continue;
    ContextRecord& record = state.contexts[i];
    record.process.store(machine.process_slot(), std::memory_order_relaxed);
    record.member.store(kNobody, std::memory_order_relaxed);
    const std::uint32_t generation =
        (record.generation.load(std::memory_order_relaxed) + 1) & ((1u << (32 - kContextSlotBits)) - 1);
    record.generation.store(generation == 0 ? 1 : generation, std::memory_order_release);
    kill_point();
    taken.fetch_or(bit, std::memory_order_release);
    kill_point();
    record.state.store(kSlotClaimed, std::memory_order_release);
    *slot = i;
    return &record;
  }
  return nullptr;
}

[[nodiscard]] bool enter_engine(Machine& machine, ContextRecord& record, std::uint32_t slot, EngineId id) {
  Transaction change(machine.state(), id);
  EngineRecord& engine = change.engine();
  for (std::uint32_t m = 0; m < kMaxMembers; ++m) {
    if (engine.members[m].load(std::memory_order_relaxed) != 0) continue;
    for (unsigned l = 0; l < kLanes; ++l) {
      record.tails[l].store(0, std::memory_order_relaxed);
      record.completed[l].store(0, std::memory_order_relaxed);
    }
    record.cores[0] = ContextCore{};
    record.cores[1] = ContextCore{};
    record.cores[0].tag = change.epoch();
    record.member.store(m, std::memory_order_release);
    kill_point();
    engine.members[m].store(slot + 1, std::memory_order_release);
    return true;
  }
  return false;
}

}  // namespace

std::uint64_t now_ns() {
  timespec t{};
  clock_gettime(CLOCK_MONOTONIC, &t);
  return static_cast<std::uint64_t>(t.tv_sec) * 1'000'000'000 + static_cast<std::uint64_t>(t.tv_nsec);
}

std::expected<Context, Error> Context::create(Machine& machine, EngineId engine, std::uint64_t overhead_bytes) {
  auto info = machine.engine(engine);
  if (!info) return std::unexpected(info.error());
  if (machine.lost(info->device)) return std::unexpected(Error{Errc::lost, "the device is lost"});
  if (!machine.may_open(info->file)) {
    return std::unexpected(Error{Errc::no_permission, "device file " + machine.directory() + "/" + info->file +
                                                          " cannot be opened for reading and writing"});
  }
  State& state = machine.state();
  const Profile& profile = state.devices[info->device].info.profile;
  if (overhead_bytes == kUnknownNs) overhead_bytes = profile.context_overhead_bytes;
  machine.reap();

  RobustLock lock(state.admin, [] {});
  std::uint32_t slot = 0;
  ContextRecord* record = claim_slot(machine, &slot);
  if (record == nullptr) return std::unexpected(Error{Errc::exhausted, "the machine's table of contexts is full"});
  record->pid.store(state.processes[machine.process_slot()].pid.load(), std::memory_order_relaxed);
  record->start_ticks = state.processes[machine.process_slot()].start_ticks.load();
  record->engine.store(engine, std::memory_order_relaxed);
  record->domain = info->memory_domain;
  record->overhead_bytes = overhead_bytes;
  kill_point();
  if (auto reserved = reserve_memory(machine, info->memory_domain, overhead_bytes); !reserved) {
    free_context_slot(state, slot);
    return std::unexpected(reserved.error());
  }
  kill_point();
  if (!enter_engine(machine, *record, slot, engine)) {
    free_context_slot(state, slot);
    (void)release_memory(machine, info->memory_domain, overhead_bytes);
    return std::unexpected(Error{Errc::exhausted, "the device has its full number of contexts"});
  }
  kill_point();
  record->state.store(kSlotLive, std::memory_order_release);

  Context context;
  context.machine_ = &machine;
  context.record_ = record;
  context.engine_record_ = &state.engines[engine];
  context.id_ = make_context_id(slot, record->generation.load());
  context.engine_ = engine;
  context.launch_overhead_ns_ = static_cast<std::uint64_t>(profile.launch_overhead_us * 1e3);
  return context;
}

Context::Context(Context&& other) noexcept { *this = std::move(other); }

Context& Context::operator=(Context&& other) noexcept {
  if (this == &other) return *this;
  reset();
  machine_ = std::exchange(other.machine_, nullptr);
  record_ = other.record_;
  engine_record_ = other.engine_record_;
  id_ = std::exchange(other.id_, 0);
  engine_ = other.engine_;
  launch_overhead_ns_ = other.launch_overhead_ns_;
  return *this;
}

Context::~Context() { reset(); }

void Context::reset() noexcept {
  if (machine_ == nullptr) return;
  Machine& machine = *std::exchange(machine_, nullptr);
  if (!machine.same_process() || !same_generation(*record_, id_)) return;  // a forked child owns none of its parent's
  advance_and_reap(machine, engine_, now_ns());
  RobustLock lock(machine.state().admin, [] {});
  const std::uint32_t domain = record_->domain;
  const std::uint64_t overhead = record_->overhead_bytes;
  tear_down_context(machine, context_slot(id_));
  (void)release_memory(machine, domain, overhead);
}

Ticket Context::try_submit(unsigned lane, const Work& work) {
  ContextRecord& record = *record_;
  const std::uint64_t tail = record.tails[lane].load(std::memory_order_relaxed);
  if (tail - record.completed[lane].load(std::memory_order_acquire) >= kLaneDepth) {
    machine_->advance(engine_);
    if (tail - record.completed[lane].load(std::memory_order_acquire) >= kLaneDepth) return 0;
  }
  LaneItem& item = record.items[lane * kLaneDepth + tail % kLaneDepth];
  std::uint64_t arrival = work.arrival_ns != 0 ? work.arrival_ns : now_ns();
  std::uint64_t duration = work.duration_ns;
  if (work.kind <= WorkKind::d2d) {
    if (work.arrival_ns == 0) arrival += launch_overhead_ns_;
    if (duration == kUnknownNs) duration = kAtLeast;
  } else {
    duration = 0;
  }
  item.arrival_ns = arrival;
  item.duration.store(duration, std::memory_order_relaxed);
  item.after_ticket = work.after.context == 0 ? 0 : work.after.ticket;
  item.after_context = work.after.context;
  item.width = work.width;
  item.event = work.event;
  item.kind = work.kind;
  kill_point();
  // Sequentially consistent against the clock's clearing of the active bit: one of us sees the other.
  record.tails[lane].store(tail + 1, std::memory_order_seq_cst);
  kill_point();
  const std::uint32_t m = record.member.load(std::memory_order_relaxed);
  const std::uint64_t bit = std::uint64_t{1} << (m & 63);
  auto& active = engine_record_->active[(m >> 6) & 1];
  if ((active.load(std::memory_order_seq_cst) & bit) == 0) active.fetch_or(bit, std::memory_order_seq_cst);
  return make_ticket(lane, tail + 1);
}

Ticket Context::submit(unsigned lane, const Work& work) {
  for (;;) {
    if (const Ticket ticket = try_submit(lane, work); ticket != 0) return ticket;
    // Full: wait until an eighth of the lane is free, so that a saturated submitter does not wake for every item.
    const std::uint64_t oldest = record_->completed[lane].load(std::memory_order_acquire) + 1;
    if (!wait(make_ticket(lane, oldest + kLaneDepth / 8)) && machine_->lost(engine_ / kEnginesPerDevice)) {
      return make_ticket(lane, record_->tails[lane].load(std::memory_order_relaxed));
    }
  }
}

Ticket Context::last(unsigned lane) const {
  const std::uint64_t tail = record_->tails[lane].load(std::memory_order_acquire);
  return tail == 0 ? 0 : make_ticket(lane, tail);
}

void Context::publish_duration(Ticket ticket, std::uint64_t duration_ns) {
  item_at(*record_, ticket_lane(ticket), ticket_number(ticket))
      .duration.store(duration_ns & ~kAtLeast, std::memory_order_release);
  stir(*engine_record_);
}

void Context::publish_progress(Ticket ticket, std::uint64_t at_least_ns) {
  item_at(*record_, ticket_lane(ticket), ticket_number(ticket))
      .duration.store(at_least_ns | kAtLeast, std::memory_order_release);
  stir(*engine_record_);
}

void Context::open_gate(Ticket ticket, std::uint64_t opened_ns) {
  item_at(*record_, ticket_lane(ticket), ticket_number(ticket))
      .duration.store(std::max<std::uint64_t>(opened_ns, 1), std::memory_order_release);
  stir(*engine_record_);
}

bool Context::done(Ticket ticket) const { return is_done(*record_, ticket); }

bool Context::poll(Ticket ticket) {
  if (done(ticket)) return true;
  machine_->advance(engine_);
  return done(ticket);
}

std::optional<Span> Context::span(Ticket ticket) const {
  const unsigned lane = ticket_lane(ticket) % kLanes;
  const std::uint64_t number = ticket_number(ticket);
  if (number == 0 || !done(ticket)) return std::nullopt;
  const LaneItem& item = item_at(*record_, lane, number);
  const Span span{item.start_ns.load(std::memory_order_acquire), item.end_ns.load(std::memory_order_acquire)};
  if (record_->tails[lane].load(std::memory_order_acquire) >= number + kLaneDepth) return std::nullopt;
  return span;
}

std::uint64_t Context::completion_bound(Ticket ticket) { return bound_of(*machine_, *record_, ticket); }

bool Context::wait(Ticket ticket, std::uint64_t deadline_ns) {
  return wait_for(*machine_, *record_, ticket, deadline_ns);
}

std::expected<std::uint32_t, Error> Context::allocate_event() {
  for (unsigned word = 0; word < kEventSlots / 64; ++word) {
    auto& bits = record_->event_taken[word];
    std::uint64_t taken = bits.load(std::memory_order_relaxed);
    while (taken != ~std::uint64_t{0}) {
      const unsigned bit = static_cast<unsigned>(std::countr_one(taken));
      if (!bits.compare_exchange_weak(taken, taken | (std::uint64_t{1} << bit), std::memory_order_acq_rel)) continue;
      const std::uint32_t event = word * 64 + bit;
      record_->events[event].store(0, std::memory_order_release);
      return event;
    }
  }
  return std::unexpected(Error{Errc::exhausted, "the context has its full number of events"});
}

void Context::free_event(std::uint32_t event) {
  record_->event_taken[event / 64].fetch_and(~(std::uint64_t{1} << (event % 64)), std::memory_order_acq_rel);
}

std::uint64_t Context::event_time_ns(std::uint32_t event) const {
  return record_->events[event].load(std::memory_order_acquire);
}

bool remote_done(Machine& machine, Dependency what) {
  ContextRecord& record = machine.state().contexts[context_slot(what.context)];
  if (!same_generation(record, what.context) || is_done(record, what.ticket)) return true;
  machine.advance(record.engine.load(std::memory_order_relaxed));
  return !same_generation(record, what.context) || is_done(record, what.ticket);
}

std::uint64_t remote_event_time_ns(Machine& machine, ContextId context, std::uint32_t event) {
  ContextRecord& record = machine.state().contexts[context_slot(context)];
  return same_generation(record, context) ? record.events[event % kEventSlots].load(std::memory_order_acquire) : 0;
}

bool remote_wait(Machine& machine, Dependency what, std::uint64_t deadline_ns) {
  ContextRecord& record = machine.state().contexts[context_slot(what.context)];
  if (!same_generation(record, what.context)) return true;
  return wait_for(machine, record, what.ticket, deadline_ns, what.context);
}

}  // namespace tensor_fusion::sim::device
