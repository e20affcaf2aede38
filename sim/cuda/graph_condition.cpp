#include "sim/cuda/graph_condition.h"

#include <algorithm>
#include <utility>

#include "sim/cuda/device.h"
#include "sim/cuda/driver.h"
#include "sim/cuda/patience.h"

namespace tensor_fusion::sim::cuda {
namespace {

constexpr std::uint64_t kAllBlocks = std::uint64_t{1} << 40;

void collect(const std::vector<GraphEntry>& entries, ConditionValues& values) {
  for (const GraphEntry& entry : entries) {
    if (const auto* child = std::get_if<std::shared_ptr<const ChildCommand>>(&entry.command))
      collect((*child)->graph->entries(), values);
    const auto* node = std::get_if<std::shared_ptr<const ConditionalCommand>>(&entry.command);
    if (node == nullptr) continue;
    values.add(*(*node)->condition);
    for (const auto& body : (*node)->bodies) collect(body->entries(), values);
  }
}

// All work of the graph in a row.
void take_apart(const Graph& graph, const std::shared_ptr<ConditionValues>& values, std::vector<Command>& out) {
  for (const GraphEntry& entry : graph.entries()) {
    if (const auto* child = std::get_if<std::shared_ptr<const ChildCommand>>(&entry.command))
      take_apart(*(*child)->graph, values, out);
    else
      out.push_back(with_conditions(entry.command, values));
  }
}

std::uint64_t largest(const std::vector<Command>& commands) {
  std::uint64_t blocks = 1;
  for (const Command& command : commands) {
    if (const auto* kernel = std::get_if<std::shared_ptr<const KernelCommand>>(&command))
      blocks = std::max(blocks, std::uint64_t{(*kernel)->grid[0]} * (*kernel)->grid[1] * (*kernel)->grid[2]);
    if (const auto* node = std::get_if<std::shared_ptr<const ConditionalCommand>>(&command))
      blocks = std::max(blocks, (*node)->plan->blocks);
  }
  return blocks;
}

// One run of a conditional node, and of those inside its bodies. Answers device time.
class ConditionalRun {
 public:
  ConditionalRun(Context& context, const Seat& seat, const std::shared_ptr<Place>& place)
      : context_(context), seat_(seat), patience_(context, place) {}

  std::uint64_t node(const ConditionalPlan& plan) {
    const auto choice = [&] { return plan.values->get(plan.condition); };
    // Looking at the value takes what the shortest kernel does.
    const std::uint64_t look =
        Driver::get().machine().kernel_duration_ns(context_.device().engine.id, 0, static_cast<double>(seat_.width));
    std::uint64_t duration = look;
    switch (plan.type) {
      case CU_GRAPH_COND_TYPE_IF:
        if (choice() != 0)
          duration += body(plan.bodies[0]);
        else if (plan.bodies.size() > 1)
          duration += body(plan.bodies[1]);
        break;
      case CU_GRAPH_COND_TYPE_WHILE:
        for (; choice() != 0 && !over(); duration += look) duration += body(plan.bodies[0]);
        break;
      case CU_GRAPH_COND_TYPE_SWITCH:
        if (const unsigned which = choice(); which < plan.bodies.size()) duration += body(plan.bodies[which]);
        break;
    }
    return duration;
  }

 private:
  // Whether nobody waits for the rest: the context is gone, or a kernel has failed.
  bool over() {
    patience_.look();
    return context_.cancel().load(std::memory_order_relaxed) || context_.sticky() != CUDA_SUCCESS;
  }

  std::uint64_t body(const std::vector<Command>& commands) {
    std::uint64_t duration = 0;
    for (const Command& command : commands) {
      if (over()) break;
      if (const auto* kernel = std::get_if<std::shared_ptr<const KernelCommand>>(&command))
        duration += run_kernel_here(context_, **kernel, seat_, patience_);
      else if (const auto* copy = std::get_if<std::shared_ptr<const CopyCommand>>(&command))
        duration += run_copy_here(context_, **copy);
      else if (const auto* fill = std::get_if<std::shared_ptr<const FillCommand>>(&command))
        duration += run_fill_here(context_, **fill);
      else if (const auto* inner = std::get_if<std::shared_ptr<const ConditionalCommand>>(&command))
        duration += node(*(*inner)->plan);
    }
    return duration;
  }

  Context& context_;
  const Seat seat_;
  Patience patience_;
};

bool may_be_in_a_body(CUgraphNodeType type) {
  return type == CU_GRAPH_NODE_TYPE_KERNEL || type == CU_GRAPH_NODE_TYPE_EMPTY || type == CU_GRAPH_NODE_TYPE_MEMCPY ||
         type == CU_GRAPH_NODE_TYPE_MEMSET || type == CU_GRAPH_NODE_TYPE_GRAPH ||
         type == CU_GRAPH_NODE_TYPE_CONDITIONAL;
}

CUresult check_body(const Graph& graph) {
  for (const auto& node : graph.nodes()) {
    if (!may_be_in_a_body(node->type)) return CUDA_ERROR_NOT_SUPPORTED;
    if (const auto* child = std::get_if<std::shared_ptr<const ChildCommand>>(&node->command))
      TF_TRY(check_body(*(*child)->graph));
    if (const auto* inner = std::get_if<std::shared_ptr<const ConditionalCommand>>(&node->command))
      TF_TRY(check_bodies(**inner));
  }
  return graph.in_order().size() == graph.nodes().size() ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

bool fits(CUgraphConditionalNodeType type, unsigned size) {
  switch (type) {
    case CU_GRAPH_COND_TYPE_IF:
      return size == 1 || size == 2;
    case CU_GRAPH_COND_TYPE_WHILE:
      return size == 1;
    case CU_GRAPH_COND_TYPE_SWITCH:
      return size >= 1;
  }
  return false;
}

}  // namespace

HandleTable<GraphCondition>& graph_conditions() {
  static auto* table = new HandleTable<GraphCondition>;
  return *table;
}

void ConditionValues::add(const GraphCondition& condition) {
  Value& value = values_[condition.handle_value];
  value.initial = condition.initial;
  value.assigned = condition.assigned;
}

void ConditionValues::start() {
  for (auto& [handle, value] : values_)
    if (value.assigned) value.now = value.initial;
}

void ConditionValues::set(std::uint64_t handle, unsigned value) {
  if (const auto found = values_.find(handle); found != values_.end()) found->second.now = value;
}

unsigned ConditionValues::get(std::uint64_t handle) const {
  const auto found = values_.find(handle);
  return found != values_.end() ? found->second.now.load() : 0;
}

std::shared_ptr<ConditionValues> condition_values(const std::vector<GraphEntry>& entries) {
  auto values = std::make_shared<ConditionValues>();
  collect(entries, *values);
  return values->empty() ? nullptr : values;
}

Command with_conditions(const Command& command, const std::shared_ptr<ConditionValues>& values) {
  if (!values) return command;
  if (const auto* kernel = std::get_if<std::shared_ptr<const KernelCommand>>(&command)) {
    auto mine = std::make_shared<KernelCommand>(**kernel);
    mine->conditions = values;
    return std::shared_ptr<const KernelCommand>(std::move(mine));
  }
  if (const auto* node = std::get_if<std::shared_ptr<const ConditionalCommand>>(&command)) {
    auto plan = std::make_shared<ConditionalPlan>();
    plan->type = (*node)->type;
    plan->condition = (*node)->condition->handle_value;
    plan->values = values;
    for (const auto& body : (*node)->bodies) {
      take_apart(*body, values, plan->bodies.emplace_back());
      plan->blocks = std::max(plan->blocks, largest(plan->bodies.back()));
    }
    auto mine = std::make_shared<ConditionalCommand>();
    mine->condition = (*node)->condition;
    mine->type = (*node)->type;
    mine->plan = std::move(plan);
    return std::shared_ptr<const ConditionalCommand>(std::move(mine));
  }
  return command;
}

CUresult check_bodies(const ConditionalCommand& command) {
  for (const auto& body : command.bodies) TF_TRY(check_body(*body));
  return CUDA_SUCCESS;
}

CUresult enqueue_conditional(Stream& stream, const ConditionalCommand& command) {
  Context& context = stream.context();
  device::Work work;
  work.kind = device::WorkKind::compute;
  work.width = stream.width_of(command.plan->blocks);
  const Seat seat{stream.width_of(kAllBlocks), stream.multiprocessors()};
  auto place = std::make_shared<Place>(0);
  enqueue_effect(stream, work, false,
                 [plan = command.plan, owner = context.shared_from_this(), seat, place](bool skip) -> std::uint64_t {
                   return skip ? 0 : ConditionalRun(*owner, seat, place).node(*plan);
                 });
  *place = stream.last();
  return CUDA_SUCCESS;
}

CUresult conditional_command(Graph& graph, CUDA_CONDITIONAL_NODE_PARAMS& params, Command& out) {
  const auto condition = graph_conditions().share(params.handle);
  if (!condition || !fits(params.type, params.size)) return CUDA_ERROR_INVALID_VALUE;
  const Graph* owner = &graph;
  while (owner != nullptr && owner->handle_value != condition->graph) owner = graphs().find(owner->parent);
  if (owner == nullptr || condition->used.exchange(true)) return CUDA_ERROR_INVALID_VALUE;
  auto command = std::make_shared<ConditionalCommand>();
  command->condition = condition;
  command->type = params.type;
  command->context = params.ctx;
  for (unsigned i = 0; i < params.size; ++i) command->add_body(Graph::create(), graph.handle_value);
  params.phGraph_out = command->body_handles.data();
  out = std::shared_ptr<const ConditionalCommand>(std::move(command));
  return CUDA_SUCCESS;
}

TF_API(cuGraphConditionalHandleCreate,
       (CUgraphConditionalHandle * out, CUgraph handle, CUcontext context_handle, unsigned initial, unsigned flags)) {
  TF_TRY(enter("cuGraphConditionalHandleCreate"));
  const auto graph = graphs().share(handle);
  if (out == nullptr || !graph || (flags & ~CU_GRAPH_COND_ASSIGN_DEFAULT) != 0) return CUDA_ERROR_INVALID_VALUE;
  const Context* context = context_handle != nullptr ? contexts().find(context_handle) : current_context();
  if (context == nullptr) return CUDA_ERROR_INVALID_CONTEXT;
  auto condition = std::make_shared<GraphCondition>();
  condition->graph = graph->handle_value;
  condition->initial = initial;
  condition->assigned = (flags & CU_GRAPH_COND_ASSIGN_DEFAULT) != 0;
  condition->handle_value = graph_conditions().insert(condition);
  *out = condition->handle_value;
  graph->keep(std::move(condition));
  return CUDA_SUCCESS;
}

}  // namespace tensor_fusion::sim::cuda
