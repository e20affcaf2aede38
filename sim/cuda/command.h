#pragma once
// What a program can put into a stream or a graph, as immutable values: the same kernel, copy or callback may be queued
// many times. issue() does what the API does with one: records it while the stream is being captured, else queues it.
// Checks of arguments come before, where commands are made.
#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <utility>
#include <variant>
#include <vector>

#include "sim/cuda/abi.h"
#include "sim/cuda/event.h"
#include "sim/cuda/module.h"
#include "sim/cuda/stream.h"

namespace tensor_fusion::sim::cuda {

class ConditionValues;
class Graph;
class Patience;
class Pool;
struct ConditionalPlan;
struct GraphCondition;
struct GraphMemory;

struct KernelCommand {
  std::shared_ptr<Function> function;
  std::array<unsigned, 3> grid{}, block{};
  unsigned shared_bytes = 0;
  bool cooperative = false;
  std::vector<std::byte> params;
  std::vector<CUlaunchAttribute> attributes;
  std::shared_ptr<ConditionValues> conditions;  // of the graph it runs in
};

// One side of a copy: rows of `pitch` bytes, slices of `slice` bytes, the first byte at `address`.
struct CopyEnd {
  std::uint64_t address = 0;
  std::uint64_t pitch = 0, slice = 0;
  Device* device = nullptr;  // null: host
  bool pageable = false;
  std::shared_ptr<void> keeper;  // an array, or a copy of the source's bytes
};
struct CopyCommand {
  CopyEnd from, to;
  std::uint64_t width = 0, height = 1, depth = 1;
  CUDA_MEMCPY3D asked{};  // what graph nodes answer when asked
  [[nodiscard]] std::uint64_t bytes() const { return width * height * depth; }
};

struct FillCommand {
  CUDA_MEMSET_NODE_PARAMS_v2 what{};
};

struct HostCommand {
  CUhostFn function = nullptr;
  CUstreamCallback callback = nullptr;  // the older form: also told of failure
  CUstream callback_stream = nullptr;
  void* user_data = nullptr;
};

struct RecordCommand {
  std::shared_ptr<Event> event;
};
struct WaitCommand {
  std::shared_ptr<Event> event;
};
struct EmptyCommand {};

struct AllocCommand {
  CUDA_MEM_ALLOC_NODE_PARAMS asked{};
  std::vector<CUmemAccessDesc> access;
  std::shared_ptr<GraphMemory> memory;
};
struct FreeCommand {
  CUdeviceptr address = 0;
};
struct MemoryOpsCommand {
  std::vector<CUstreamBatchMemOpParams> operations;
  CUcontext context = nullptr;
  unsigned flags = 0;
};
// A graph that belongs to a node: its handle names it as long as the node is there.
class NodeGraph {
 public:
  explicit NodeGraph(std::shared_ptr<Graph> graph) : graph_(std::move(graph)) {}
  NodeGraph(NodeGraph&&) = default;
  NodeGraph& operator=(NodeGraph&&) = delete;
  ~NodeGraph();
  [[nodiscard]] Graph& operator*() const { return *graph_; }
  [[nodiscard]] Graph* operator->() const { return graph_.get(); }

 private:
  std::shared_ptr<Graph> graph_;
};
struct ChildCommand {
  NodeGraph graph;
};
struct ConditionalCommand {
  std::shared_ptr<GraphCondition> condition;
  CUgraphConditionalNodeType type{};
  CUcontext context = nullptr;
  std::vector<NodeGraph> bodies;
  std::vector<CUgraph> body_handles;            // what programs are shown
  std::shared_ptr<const ConditionalPlan> plan;  // once it is to run
  void add_body(std::shared_ptr<Graph> body, std::uint64_t parent);
};

using Command = std::variant<std::shared_ptr<const EmptyCommand>, std::shared_ptr<const KernelCommand>,
                             std::shared_ptr<const CopyCommand>, std::shared_ptr<const FillCommand>,
                             std::shared_ptr<const HostCommand>, std::shared_ptr<const RecordCommand>,
                             std::shared_ptr<const WaitCommand>, std::shared_ptr<const AllocCommand>,
                             std::shared_ptr<const FreeCommand>, std::shared_ptr<const MemoryOpsCommand>,
                             std::shared_ptr<const ChildCommand>, std::shared_ptr<const ConditionalCommand>>;

CUresult issue(Stream& stream, Command command);
// Queues now. By the holder of the stream's lock.
CUresult enqueue(Stream& stream, const Command& command);

// --- what single kinds need beside (one file each) ---
// launch.cpp
CUresult make_kernel_command(const std::shared_ptr<Function>& function, const std::array<unsigned, 3>& grid,
                             const std::array<unsigned, 3>& block, unsigned shared_bytes, void** params, void** extra,
                             bool cooperative, std::shared_ptr<const KernelCommand>& out);
CUresult check_launch(const Function& function, const std::array<unsigned, 3>& grid,
                      const std::array<unsigned, 3>& block, unsigned shared_bytes, bool cooperative);
CUresult enqueue_kernel(Stream& stream, std::shared_ptr<const KernelCommand> command);
// copy.cpp
inline constexpr std::uint64_t kQuickBytes = 64 * 1024;  // so few are moved faster than another thread is woken
CUresult make_copy(const CUDA_MEMCPY3D& asked, std::shared_ptr<CopyCommand>& out);
CUresult enqueue_copy(Stream& stream, std::shared_ptr<const CopyCommand> command, bool quick);
// fill.cpp
CUresult make_fill(const CUDA_MEMSET_NODE_PARAMS_v2& asked, std::shared_ptr<const FillCommand>& out);
CUresult enqueue_fill(Stream& stream, std::shared_ptr<const FillCommand> command);
// host_function.cpp
CUresult enqueue_host(Stream& stream, std::shared_ptr<const HostCommand> command);
// memory_operation.cpp
CUresult check_memory_operations(const std::vector<CUstreamBatchMemOpParams>& operations);
CUresult enqueue_memory_operations(Stream& stream, const MemoryOpsCommand& command);
// graph_memory.cpp
CUresult enqueue_alloc(Stream& stream, const AllocCommand& command);
CUresult enqueue_free(Stream& stream, const FreeCommand& command);
// graph_condition.cpp
CUresult enqueue_conditional(Stream& stream, const ConditionalCommand& command);

// What of the device a kernel has.
struct Seat {
  float width;
  unsigned multiprocessors;
};
// Work inside of other work, done at once by the executor's thread; each answers the device time it takes.
std::uint64_t run_kernel_here(Context& context, const KernelCommand& command, const Seat& most, Patience& patience);
std::uint64_t run_copy_here(const Context& context, const CopyCommand& command);
std::uint64_t run_fill_here(const Context& context, const FillCommand& command);

// Queues something with an effect: `run` makes it happen and answers the device time it takes. A quick one happens at
// once on the calling thread when nothing is in front of it.
void enqueue_effect(Stream& stream, device::Work work, bool quick,
                    std::move_only_function<std::uint64_t(bool skip)> run);

}  // namespace tensor_fusion::sim::cuda
