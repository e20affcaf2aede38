#include "sim/cuda/capture.h"

#include <algorithm>
#include <set>
#include <utility>

#include "sim/cuda/graph.h"

namespace tensor_fusion::sim::cuda {
namespace {

std::mutex list_mutex;
std::atomic<unsigned> active{0};
std::atomic<std::uint64_t> next_capture_id{1};
thread_local CUstreamCaptureMode thread_mode = CU_STREAM_CAPTURE_MODE_GLOBAL;

std::vector<std::weak_ptr<Capture>>& list() {
  static auto* all = new std::vector<std::weak_ptr<Capture>>;
  return *all;
}

std::vector<std::shared_ptr<Capture>> captures() {
  const std::lock_guard lock(list_mutex);
  std::vector<std::shared_ptr<Capture>> alive;
  for (const auto& each : list())
    if (auto capture = each.lock()) alive.push_back(std::move(capture));
  return alive;
}

CUgraphNodeType type_of(const Command& command) {
  return std::visit(
      []<typename T>(const std::shared_ptr<const T>&) {
        if constexpr (std::is_same_v<T, KernelCommand>)
          return CU_GRAPH_NODE_TYPE_KERNEL;
        else if constexpr (std::is_same_v<T, CopyCommand>)
          return CU_GRAPH_NODE_TYPE_MEMCPY;
        else if constexpr (std::is_same_v<T, FillCommand>)
          return CU_GRAPH_NODE_TYPE_MEMSET;
        else if constexpr (std::is_same_v<T, HostCommand>)
          return CU_GRAPH_NODE_TYPE_HOST;
        else if constexpr (std::is_same_v<T, RecordCommand>)
          return CU_GRAPH_NODE_TYPE_EVENT_RECORD;
        else if constexpr (std::is_same_v<T, WaitCommand>)
          return CU_GRAPH_NODE_TYPE_WAIT_EVENT;
        else if constexpr (std::is_same_v<T, AllocCommand>)
          return CU_GRAPH_NODE_TYPE_MEM_ALLOC;
        else if constexpr (std::is_same_v<T, FreeCommand>)
          return CU_GRAPH_NODE_TYPE_MEM_FREE;
        else if constexpr (std::is_same_v<T, MemoryOpsCommand>)
          return CU_GRAPH_NODE_TYPE_BATCH_MEM_OP;
        else if constexpr (std::is_same_v<T, ChildCommand>)
          return CU_GRAPH_NODE_TYPE_GRAPH;
        else if constexpr (std::is_same_v<T, ConditionalCommand>)
          return CU_GRAPH_NODE_TYPE_CONDITIONAL;
        else
          return CU_GRAPH_NODE_TYPE_EMPTY;
      },
      command);
}

// How a captured launch follows the kernels in front of it.
CUgraphEdgeData edge_of(const Command& command) {
  CUgraphEdgeData edge{};
  const auto* kernel = std::get_if<std::shared_ptr<const KernelCommand>>(&command);
  if (kernel == nullptr) return edge;
  for (const auto& attribute : (*kernel)->attributes) {
    if (attribute.id != CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION ||
        attribute.value.programmaticStreamSerializationAllowed == 0)
      continue;
    edge.from_port = CU_GRAPH_KERNEL_NODE_PORT_PROGRAMMATIC;
    edge.type = CU_GRAPH_DEPENDENCY_TYPE_PROGRAMMATIC;
  }
  return edge;
}

void join(Capture& capture, const std::shared_ptr<Capture>& owner, Stream& stream,
          std::vector<std::shared_ptr<GraphNode>> after) {
  capture.parts.push_back({stream.weak_from_this(), std::move(after), true});
  stream.capture = owner;
  stream.capturing = true;
}

}  // namespace

CapturePart& Capture::part(Stream& stream) {
  for (auto& each : parts)
    if (each.stream.lock().get() == &stream) return each;
  parts.push_back({stream.weak_from_this(), {}, true});
  return parts.back();
}

CUresult begin_capture(Stream& stream, CUstreamCaptureMode mode, std::shared_ptr<Graph> graph,
                       std::vector<std::shared_ptr<GraphNode>> after, bool to_graph) {
  if (mode < CU_STREAM_CAPTURE_MODE_GLOBAL || mode > CU_STREAM_CAPTURE_MODE_RELAXED) return CUDA_ERROR_INVALID_VALUE;
  if (stream.role == Stream::Role::legacy) return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
  const std::lock_guard lock(stream.mutex());
  if (stream.capturing) return CUDA_ERROR_ILLEGAL_STATE;
  auto capture = std::make_shared<Capture>();
  capture->graph = std::move(graph);
  capture->mode = mode;
  capture->id = next_capture_id.fetch_add(1);
  capture->origin = &stream;
  capture->thread = std::this_thread::get_id();
  capture->to_graph = to_graph;
  join(*capture, capture, stream, std::move(after));
  const std::lock_guard list_lock(list_mutex);
  std::erase_if(list(), [](const auto& each) { return each.expired(); });
  list().push_back(capture);
  ++active;
  return CUDA_SUCCESS;
}

CUresult end_capture(Stream& stream, std::shared_ptr<Graph>& out) {
  std::shared_ptr<Capture> capture;
  {
    const std::lock_guard lock(stream.mutex());
    capture = stream.capture;
    if (!stream.capturing || !capture) return CUDA_ERROR_ILLEGAL_STATE;
    if (capture->origin != &stream) return CUDA_ERROR_STREAM_CAPTURE_UNMATCHED;
    if (capture->mode != CU_STREAM_CAPTURE_MODE_RELAXED && capture->thread != std::this_thread::get_id())
      return CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD;
  }
  CUresult result = capture->invalid ? CUDA_ERROR_STREAM_CAPTURE_INVALIDATED : CUDA_SUCCESS;
  std::vector<CapturePart> parts;
  {
    const std::lock_guard lock(capture->mutex);
    std::set<const GraphNode*> reached;
    std::vector<const GraphNode*> todo;
    for (const auto& node : capture->part(stream).after) todo.push_back(node.get());
    while (!todo.empty()) {
      const GraphNode* node = todo.back();
      todo.pop_back();
      if (!reached.insert(node).second) continue;
      todo.insert(todo.end(), node->after.begin(), node->after.end());
    }
    for (const auto& part : capture->parts)
      for (const auto& node : part.after)
        if (result == CUDA_SUCCESS && !reached.contains(node.get())) result = CUDA_ERROR_STREAM_CAPTURE_UNJOINED;
    parts.swap(capture->parts);
  }
  for (const auto& part : parts) {
    const auto member = part.stream.lock();
    if (!member) continue;
    const std::lock_guard lock(member->mutex());
    member->capturing = false;
    member->capture.reset();
  }
  --active;
  {
    const std::lock_guard lock(list_mutex);
    std::erase_if(list(), [&](const auto& each) { return each.lock() == capture; });
  }
  if (result == CUDA_SUCCESS) {
    out = capture->graph;
  } else if (!capture->to_graph) {
    graphs().remove(capture->graph->handle_value);
  }
  return result;
}

CUresult capture_command(Stream& stream, Command command) {
  const auto capture = stream.capture;
  if (capture->invalid) return CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
  const std::lock_guard lock(capture->mutex);
  CapturePart& part = capture->part(stream);
  std::vector<GraphNode*> after;
  for (const auto& node : part.after) after.push_back(node.get());
  const CUgraphNodeType type = type_of(command);
  const CUgraphEdgeData edge = edge_of(command);
  const auto node = capture->graph->add(type, std::move(command), {});
  for (GraphNode* earlier : after)
    (void)capture->graph->connect(*earlier, *node, can_connect(earlier->type, type, edge) ? edge : CUgraphEdgeData{});
  part.after = {node};
  return CUDA_SUCCESS;
}

CUresult capture_record(Stream& stream, const std::shared_ptr<Event>& event) {
  const auto capture = stream.capture;
  if (capture->invalid) return CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
  const std::lock_guard lock(capture->mutex);
  const std::lock_guard event_lock(event->capture_mutex);
  event->captured_in = capture;
  event->captured_after = capture->part(stream).after;
  return CUDA_SUCCESS;
}

CUresult capture_wait(Stream& stream, const std::shared_ptr<Event>& event, bool& captured) {
  std::shared_ptr<Capture> from;
  std::vector<std::shared_ptr<GraphNode>> after;
  {
    const std::lock_guard lock(event->capture_mutex);
    from = event->captured_in.lock();
    after = event->captured_after;
  }
  captured = stream.capturing || from != nullptr;
  if (!captured) return CUDA_SUCCESS;
  if (!from) {  // work outside the capture cannot be waited for inside it
    stream.capture->invalid = true;
    return CUDA_ERROR_STREAM_CAPTURE_ISOLATION;
  }
  if (from->invalid) return CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
  if (stream.capturing && stream.capture != from) {
    from->invalid = true;
    stream.capture->invalid = true;
    return CUDA_ERROR_STREAM_CAPTURE_MERGE;
  }
  const std::lock_guard lock(from->mutex);
  if (!stream.capturing) {
    if (stream.role == Stream::Role::legacy) {
      from->invalid = true;
      return CUDA_ERROR_STREAM_CAPTURE_IMPLICIT;
    }
    join(*from, from, stream, std::move(after));
    return CUDA_SUCCESS;
  }
  auto& mine = from->part(stream).after;
  for (auto& node : after)
    if (std::find(mine.begin(), mine.end(), node) == mine.end()) mine.push_back(std::move(node));
  return CUDA_SUCCESS;
}

CUresult check_capture_conflict(Stream& stream) {
  if (active.load(std::memory_order_relaxed) == 0 || stream.role != Stream::Role::legacy) [[likely]]
    return CUDA_SUCCESS;
  for (const auto& capture : captures()) {
    const std::lock_guard lock(capture->mutex);
    for (const auto& part : capture->parts) {
      const auto member = part.stream.lock();
      if (!member || !member->blocking() || &member->context() != &stream.context()) continue;
      capture->invalid = true;
      return CUDA_ERROR_STREAM_CAPTURE_IMPLICIT;
    }
  }
  return CUDA_SUCCESS;
}

CUresult check_capture_unsafe() {
  if (active.load(std::memory_order_relaxed) == 0 || thread_mode == CU_STREAM_CAPTURE_MODE_RELAXED) [[likely]]
    return CUDA_SUCCESS;
  CUresult result = CUDA_SUCCESS;
  for (const auto& capture : captures()) {
    if (capture->invalid) continue;
    const bool own = capture->thread == std::this_thread::get_id();
    if ((capture->mode == CU_STREAM_CAPTURE_MODE_GLOBAL && (own || thread_mode == CU_STREAM_CAPTURE_MODE_GLOBAL)) ||
        (capture->mode == CU_STREAM_CAPTURE_MODE_THREAD_LOCAL && own)) {
      capture->invalid = true;
      result = CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
    }
  }
  return result;
}

CUresult forbid_capture(Stream& stream) {
  if (!stream.capturing.load(std::memory_order_relaxed)) [[likely]]
    return CUDA_SUCCESS;
  const std::lock_guard lock(stream.mutex());
  if (stream.capture) stream.capture->invalid = true;
  return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
}

CUstreamCaptureMode exchange_thread_mode(CUstreamCaptureMode mode) { return std::exchange(thread_mode, mode); }

}  // namespace tensor_fusion::sim::cuda
