#include "sim/device/transaction.h"

#include <cstring>

#include "sim/device/kill_point.h"

namespace tensor_fusion::sim::device {
namespace {

[[nodiscard]] std::uint64_t tag_of(const ContextCore& core) {
  return std::atomic_ref(const_cast<ContextCore&>(core).tag).load(std::memory_order_relaxed);
}
void set_tag(ContextCore& core, std::uint64_t tag) { std::atomic_ref(core.tag).store(tag, std::memory_order_release); }

// The newest copy that the epoch covers; tag 0 is an unfinished one.
[[nodiscard]] unsigned committed_index(const ContextRecord& context) {
  return tag_of(context.cores[1]) > tag_of(context.cores[0]) ? 1 : 0;
}

void publish(ContextRecord& context, const ContextCore& core) {
  for (unsigned l = 0; l < kLanes; ++l) {
    const std::uint64_t completed = core.lanes[l].completed;
    if (context.completed[l].load(std::memory_order_relaxed) != completed) {
      context.completed[l].store(completed, std::memory_order_release);
    }
  }
}

}  // namespace

// The holder died. What it had not committed is void, what it had committed may not have been told to readers yet.
void repair_engine(State& state, EngineRecord& engine) {
  const std::uint64_t epoch = engine.epoch.load(std::memory_order_acquire);
  for (unsigned m = 0; m < kMaxMembers; ++m) {
    const std::uint32_t entry = engine.members[m].load(std::memory_order_acquire);
    if (entry == 0) continue;
    ContextRecord& context = state.contexts[entry - 1];
    for (ContextCore& core : context.cores) {
      if (tag_of(core) > epoch) set_tag(core, 0);
    }
    publish(context, context.cores[committed_index(context)]);
    engine.active[m >> 6].fetch_or(std::uint64_t{1} << (m & 63));
  }
  engine.clock_ns.store(engine.cores[epoch & 1].clock_ns, std::memory_order_release);
  engine.repairs.fetch_add(1, std::memory_order_relaxed);
}

Transaction::Transaction(State& state, EngineId engine)
    : state_(state),
      engine_(state.engines[engine]),
      lock_(engine_.lock, [&] { repair_engine(state, state.engines[engine]); }),
      epoch_(engine_.epoch.load(std::memory_order_relaxed)),
      core_(engine_.cores[(epoch_ + 1) & 1]) {
  core_ = engine_.cores[epoch_ & 1];
  kill_point();
}

const ContextCore& Transaction::committed(const ContextRecord& context) const {
  return context.cores[committed_index(context)];
}

ContextCore& Transaction::touch(std::uint32_t context_slot) {
  ContextRecord& context = state_.contexts[context_slot];
  const unsigned from = committed_index(context);
  ContextCore& work = context.cores[1 - from];
  set_tag(work, 0);
  kill_point();
  constexpr std::size_t skip = sizeof(work.tag);
  std::memcpy(reinterpret_cast<std::byte*>(&work) + skip,
              reinterpret_cast<const std::byte*>(&context.cores[from]) + skip, sizeof(ContextCore) - skip);
  touched_[touched_count_++] = static_cast<std::uint16_t>(context_slot);
  return work;
}

void Transaction::commit() {
  kill_point();
  for (unsigned i = 0; i < touched_count_; ++i) {
    ContextRecord& context = state_.contexts[touched_[i]];
    set_tag(context.cores[tag_of(context.cores[0]) == 0 ? 0 : 1], epoch_ + 1);
    kill_point();
  }
  engine_.epoch.store(epoch_ + 1, std::memory_order_release);
  kill_point();
  for (unsigned i = 0; i < touched_count_; ++i) {
    ContextRecord& context = state_.contexts[touched_[i]];
    publish(context, context.cores[committed_index(context)]);
    kill_point();
  }
  engine_.clock_ns.store(core_.clock_ns, std::memory_order_release);
  touched_count_ = 0;
}

}  // namespace tensor_fusion::sim::device
