#include "sim/device/reaper.h"

#include <bit>

#include "sim/device/clock.h"
#include "sim/device/kill_point.h"
#include "sim/device/memory.h"
#include "sim/device/memory_domain.h"
#include "sim/device/transaction.h"

namespace tensor_fusion::sim::device {
namespace {

void retire(EngineRecord& engine, const RetiredContext& gone) {
  const std::uint64_t count = engine.retired_count.load(std::memory_order_acquire);
  for (std::uint64_t back = 1; back <= 8 && back <= count; ++back) {
    RetiredContext& entry = engine.retired[(count - back) % kMaxRetired];
    if (entry.id == gone.id) {  // a predecessor died between this line and the end of its teardown
      entry = gone;
      return;
    }
  }
  engine.retired[count % kMaxRetired] = gone;
  kill_point();
  engine.retired_count.store(count + 1, std::memory_order_release);
}

}  // namespace

void tear_down_context(Machine& machine, std::uint32_t slot) {
  State& state = machine.state();
  ContextRecord& context = state.contexts[slot];
  if (context.state.load(std::memory_order_acquire) == kSlotFree) return;
  context.state.store(kSlotDying, std::memory_order_release);
  kill_point();
  const EngineId id = context.engine.load(std::memory_order_relaxed);
  {
    Transaction change(state, id);
    EngineRecord& engine = change.engine();
    const std::uint32_t m = context.member.load(std::memory_order_relaxed);
    if (m < kMaxMembers && engine.members[m].load(std::memory_order_relaxed) == slot + 1) {
      const ContextCore& core = change.committed(context);
      retire(engine, {make_context_id(slot, context.generation.load(std::memory_order_relaxed)),
                      context.pid.load(std::memory_order_relaxed), context.start_ticks, core.service_ns, core.copy_ns,
                      core.kernels});
      kill_point();
      forget_member(change.core(), m);
      change.commit();
      kill_point();
      engine.members[m].store(0, std::memory_order_release);
      kill_point();
      engine.active[m >> 6].fetch_and(~(std::uint64_t{1} << (m & 63)), std::memory_order_seq_cst);
    }
    context.member.store(kNobody, std::memory_order_release);
  }
  kill_point();
  for (auto& word : context.event_taken) {
    if (word.load(std::memory_order_relaxed) != 0) word.store(0, std::memory_order_relaxed);
  }
  free_context_slot(state, slot);
  stir(state.engines[id]);
}

void free_context_slot(State& state, std::uint32_t slot) {
  state.contexts[slot].state.store(kSlotFree, std::memory_order_release);
  kill_point();
  state.context_taken[slot >> 6].fetch_and(~(std::uint64_t{1} << (slot & 63)), std::memory_order_release);
}

bool reap_process(Machine& machine, std::uint32_t slot, bool leaving) {
  State& state = machine.state();
  RobustLock lock(state.admin, [] {});
  const std::uint64_t bit = std::uint64_t{1} << (slot & 63);
  if ((state.process_live[slot >> 6].load(std::memory_order_acquire) & bit) == 0) return false;
  // Asked again under the lock: another reaper may have freed the slot and a new process taken it.
  if (!leaving && machine.process_alive(slot)) return false;
  for (unsigned word = 0; word < kMaxContexts / 64; ++word) {
    for (std::uint64_t bits = state.context_taken[word].load(std::memory_order_acquire); bits != 0; bits &= bits - 1) {
      const std::uint32_t c = word * 64 + static_cast<std::uint32_t>(std::countr_zero(bits));
      ContextRecord& context = state.contexts[c];
      if (context.process.load(std::memory_order_relaxed) != slot) continue;
      if (context.state.load(std::memory_order_acquire) == kSlotFree) {
        free_context_slot(state, c);  // its owner died between the two stores of claiming or freeing
      } else {
        tear_down_context(machine, c);
      }
    }
  }
  kill_point();
  release_all_memory(state, slot);
  kill_point();
  state.process_live[slot >> 6].fetch_and(~bit, std::memory_order_release);
  return true;
}

void reap_lately(Machine& machine) {
  constexpr std::uint64_t kFreshNs = 200'000;
  const std::uint64_t due = machine.state().next_reap_ns.load(std::memory_order_relaxed);
  if (now_ns() + kReapPeriodNs > due + kFreshNs) reap_dead(machine);
}

unsigned reap_dead(Machine& machine) {
  State& state = machine.state();
  state.next_reap_ns.store(now_ns() + kReapPeriodNs, std::memory_order_relaxed);
  unsigned reaped = 0;
  for (unsigned word = 0; word < kMaxProcesses / 64; ++word) {
    for (std::uint64_t bits = state.process_live[word].load(std::memory_order_acquire); bits != 0; bits &= bits - 1) {
      const std::uint32_t slot = word * 64 + static_cast<std::uint32_t>(std::countr_zero(bits));
      if (machine.process_alive(slot)) continue;
      if (reap_process(machine, slot, false)) ++reaped;
    }
  }
  return reaped;
}

}  // namespace tensor_fusion::sim::device
