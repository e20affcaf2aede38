#include "sim/device/long_run.h"

#include <algorithm>

#include "sim/device/clock.h"
#include "sim/device/transaction.h"

namespace tensor_fusion::sim::device {

void keep_running(Machine& machine, Context& context, Ticket ticket, std::uint64_t ahead_ns) {
  State& state = machine.state();
  const std::uint64_t now = now_ns();
  machine.advance(context.engine());
  const unsigned lane = ticket_lane(ticket) % kLanes;
  const ContextRecord& record = state.contexts[context_slot(context.id())];
  double given = 0;
  {
    Transaction look(state, context.engine());
    const ContextCore& core = look.committed(record);
    if (core.lanes[lane].completed + 1 != ticket_number(ticket)) return;
    const EngineCore& engine = look.core();
    given = core.lanes[lane].progress_ns;
    if (engine.resident == record.member.load(std::memory_order_relaxed) && ((engine.running >> lane) & 1U) != 0)
      given += static_cast<double>(engine.clock_ns - engine.anchor_ns) / engine.share;
    given += static_cast<double>(now - std::min(now, engine.clock_ns));  // what it catches up with from here
  }
  context.publish_progress(ticket, static_cast<std::uint64_t>(given) + ahead_ns);
}

}  // namespace tensor_fusion::sim::device
