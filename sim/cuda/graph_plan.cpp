#include "sim/cuda/graph_plan.h"

#include <algorithm>
#include <utility>

#include "sim/cuda/graph.h"
#include "sim/cuda/graph_condition.h"
#include "sim/cuda/graph_memory.h"

namespace tensor_fusion::sim::cuda {
namespace {

constexpr std::size_t kNone = ~std::size_t{0};

// The locks of several streams, in an order that all threads keep; streams that share a lane share one.
class StreamLocks {
 public:
  explicit StreamLocks(const std::vector<Stream*>& streams) {
    for (const Stream* stream : streams) mutexes_.push_back(&stream->mutex());
    std::sort(mutexes_.begin(), mutexes_.end(), std::less<>{});
    mutexes_.erase(std::unique(mutexes_.begin(), mutexes_.end()), mutexes_.end());
    for (auto* mutex : mutexes_) mutex->lock();
  }
  ~StreamLocks() {
    for (auto* mutex : mutexes_) mutex->unlock();
  }
  StreamLocks(const StreamLocks&) = delete;
  StreamLocks& operator=(const StreamLocks&) = delete;

 private:
  std::vector<std::recursive_mutex*> mutexes_;
};

bool of_destroyed_context(const Command& command) {
  if (const auto* kernel = std::get_if<std::shared_ptr<const KernelCommand>>(&command))
    return (*kernel)->function->module->context().destroyed();
  const auto* node = std::get_if<std::shared_ptr<const ConditionalCommand>>(&command);
  return node != nullptr && std::ranges::any_of((*node)->plan->bodies, [](const auto& body) {
           return std::ranges::any_of(body, of_destroyed_context);
         });
}

}  // namespace

GraphPlan::GraphPlan(const std::vector<GraphEntry>& entries) : conditions_(condition_values(entries)) {
  (void)append(entries, {});
  rails_ = static_cast<unsigned>(tails_.size());
}

// Answers the steps after which all of the entries have run.
std::vector<std::size_t> GraphPlan::append(const std::vector<GraphEntry>& entries,
                                           const std::vector<std::size_t>& before) {
  std::vector<std::vector<std::size_t>> done(entries.size());
  std::vector<bool> waited_for(entries.size());
  for (std::size_t i = 0; i < entries.size(); ++i) {
    std::vector<std::size_t> after = entries[i].after.empty() ? before : std::vector<std::size_t>{};
    for (const std::size_t earlier : entries[i].after) {
      waited_for[earlier] = true;
      after.insert(after.end(), done[earlier].begin(), done[earlier].end());
    }
    if (const auto* child = std::get_if<std::shared_ptr<const ChildCommand>>(&entries[i].command)) {
      done[i] = append((*child)->graph->entries(), after);
    } else {
      place(entries[i].command, std::move(after));
      done[i] = {steps_.size() - 1};
    }
  }
  std::vector<std::size_t> ends;
  for (std::size_t i = 0; i < entries.size(); ++i)
    if (!waited_for[i]) ends.insert(ends.end(), done[i].begin(), done[i].end());
  return entries.empty() ? before : ends;
}

void GraphPlan::place(const Command& command, std::vector<std::size_t> after) {
  std::sort(after.begin(), after.end());
  after.erase(std::unique(after.begin(), after.end()), after.end());
  Step step;
  step.command = with_conditions(command, conditions_);
  const auto rail_of = [&](std::size_t each) { return steps_[each].rail; };
  std::size_t rail = kNone;
  for (const std::size_t earlier : after)  // go on where one of them ended,
    if (tails_[rail_of(earlier)] == earlier) rail = rail_of(earlier);
  for (std::size_t r = 0; r < tails_.size() && rail == kNone; ++r)  // or on a rail that they have waited for,
    if (joined_by_[r] != kNone)
      for (const std::size_t earlier : after)
        if (rail_of(earlier) == rail_of(joined_by_[r]) && joined_by_[r] <= earlier) rail = r;
  if (rail == kNone && tails_.size() < kMaxRails) {  // or on a new one,
    rail = tails_.size();
    tails_.push_back(kNone);
    joined_by_.push_back(kNone);
    step.first = true;
  }
  if (rail == kNone)  // or behind what has been there longest
    rail = static_cast<std::size_t>(std::min_element(tails_.begin(), tails_.end()) - tails_.begin());
  step.rail = static_cast<unsigned>(rail);
  const std::size_t self = steps_.size();
  for (const std::size_t earlier : after) {
    if (rail_of(earlier) == step.rail) continue;
    step.joins.push_back(earlier);
    if (tails_[rail_of(earlier)] == earlier) joined_by_[rail_of(earlier)] = self;
  }
  tails_[rail] = self;
  joined_by_[rail] = kNone;
  steps_.push_back(std::move(step));
}

CUresult GraphPlan::check() const {
  for (const Step& step : steps_)
    if (of_destroyed_context(step.command)) return CUDA_ERROR_CONTEXT_IS_DESTROYED;
  return CUDA_SUCCESS;
}

void GraphPlan::free_leftovers() const {
  for (const Step& step : steps_)
    if (const auto* alloc = std::get_if<std::shared_ptr<const AllocCommand>>(&step.command))
      (void)free_graph_memory((*alloc)->memory->address);
}

// In front of all of a launch's work.
void GraphPlan::start(Stream& stream) const {
  if (!conditions_) return;
  Operation operation;
  operation.run = [values = conditions_](bool) -> std::uint64_t {
    values->start();
    return 0;
  };
  stream.push(std::move(operation));
}

CUresult GraphPlan::launch(Stream& stream) const {
  if (rails_ <= 1) {
    const std::lock_guard lock(stream.mutex());
    start(stream);
    for (const Step& step : steps_) TF_TRY(enqueue(stream, step.command));
    return CUDA_SUCCESS;
  }
  const auto branches = stream.context().branches(rails_ - 1);
  std::vector<Stream*> rails{&stream};
  for (const auto& branch : branches) rails.push_back(branch.get());
  const StreamLocks locks(rails);
  for (const auto& branch : branches) branch->lent = stream.green.get();
  Operation join;
  stream.order(join.needs);
  if (!join.needs.empty()) stream.push(std::move(join));
  start(stream);
  const StreamPoint begin = stream.here();
  std::vector<StreamPoint> done(steps_.size());
  CUresult result = CUDA_SUCCESS;
  for (std::size_t i = 0; i < steps_.size() && result == CUDA_SUCCESS; ++i) {
    const Step& step = steps_[i];
    Stream& rail = *rails[step.rail];
    std::vector<StreamPoint> points;
    if (step.first && step.rail != 0) points.push_back(begin);
    for (const std::size_t earlier : step.joins) points.push_back(done[earlier]);
    rail.wait_for(points);
    result = enqueue(rail, step.command);
    done[i] = rail.here();
  }
  std::vector<StreamPoint> ends;
  for (const auto& branch : branches) ends.push_back(branch->here());
  stream.wait_for(ends);
  return result;
}

}  // namespace tensor_fusion::sim::cuda
