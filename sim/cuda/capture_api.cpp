// Stream capture's entry points.
#include "sim/cuda/capture.h"
#include "sim/cuda/driver.h"
#include "sim/cuda/graph.h"
#include "sim/cuda/graph_lookup.h"

namespace tensor_fusion::sim::cuda {
namespace {

CUresult begin(Flavour flavour, CUstream handle, CUstreamCaptureMode mode) {
  TF_TRY(enter("cuStreamBeginCapture"));
  Stream* stream = nullptr;
  TF_TRY(find_stream(handle, flavour, stream));
  if (stream->capturing) return CUDA_ERROR_ILLEGAL_STATE;
  auto graph = Graph::create();
  const std::uint64_t made = graph->handle_value;
  const CUresult result = begin_capture(*stream, mode, std::move(graph), {}, false);
  if (result != CUDA_SUCCESS) graphs().remove(made);
  return result;
}

// What is known of the stream's capture; absent outputs are not wanted.
struct Info {
  CUstreamCaptureStatus* status = nullptr;
  std::uint64_t* id = nullptr;
  CUgraph* graph = nullptr;
  const CUgraphNode** after = nullptr;
  const CUgraphEdgeData** edges = nullptr;
  std::size_t* count = nullptr;
};

CUresult info(Flavour flavour, CUstream handle, const Info& out) {
  TF_TRY(enter("cuStreamGetCaptureInfo"));
  Stream* stream = nullptr;
  TF_TRY(find_stream(handle, flavour, stream));
  if (out.status == nullptr) return CUDA_ERROR_INVALID_VALUE;
  TF_TRY(check_capture_conflict(*stream));
  *out.status = CU_STREAM_CAPTURE_STATUS_NONE;
  if (!stream->capturing.load(std::memory_order_relaxed)) return CUDA_SUCCESS;
  const std::lock_guard lock(stream->mutex());
  const auto capture = stream->capture;
  if (!capture) return CUDA_SUCCESS;
  *out.status = capture->invalid ? CU_STREAM_CAPTURE_STATUS_INVALIDATED : CU_STREAM_CAPTURE_STATUS_ACTIVE;
  if (capture->invalid) return CUDA_SUCCESS;
  if (out.id != nullptr) *out.id = capture->id;
  if (out.graph != nullptr) *out.graph = capture->graph->handle();
  if (out.after == nullptr && out.count == nullptr) return CUDA_SUCCESS;
  // The list stays valid until the thread's next question, longer than the API promises.
  thread_local std::vector<CUgraphNode> nodes;
  thread_local std::vector<CUgraphEdgeData> edges;
  const std::lock_guard capture_lock(capture->mutex);
  nodes.clear();
  for (const auto& node : capture->part(*stream).after) nodes.push_back(node->handle());
  edges.assign(nodes.size(), CUgraphEdgeData{});
  if (out.after != nullptr) *out.after = nodes.data();
  if (out.edges != nullptr) *out.edges = edges.data();
  if (out.count != nullptr) *out.count = nodes.size();
  return CUDA_SUCCESS;
}

CUresult update(Flavour flavour, CUstream handle, CUgraphNode* nodes, std::size_t count, unsigned flags) {
  TF_TRY(enter("cuStreamUpdateCaptureDependencies"));
  Stream* stream = nullptr;
  TF_TRY(find_stream(handle, flavour, stream));
  if (flags > CU_STREAM_SET_CAPTURE_DEPENDENCIES) return CUDA_ERROR_INVALID_VALUE;
  const std::lock_guard lock(stream->mutex());
  const auto capture = stream->capture;
  if (!stream->capturing || !capture) return CUDA_ERROR_ILLEGAL_STATE;
  if (capture->invalid) return CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
  std::vector<GraphNode*> found;
  TF_TRY(find_nodes(*capture->graph, nodes, count, found));
  const std::lock_guard capture_lock(capture->mutex);
  auto& after = capture->part(*stream).after;
  if (flags == CU_STREAM_SET_CAPTURE_DEPENDENCIES) after.clear();
  for (const GraphNode* node : found) after.push_back(graph_nodes().share(node->handle_value));
  return CUDA_SUCCESS;
}

}  // namespace

TF_STREAM_API(cuStreamBeginCapture, (CUstream stream),
              { return begin(kFlavour, stream, CU_STREAM_CAPTURE_MODE_GLOBAL); })
TF_STREAM_API(cuStreamBeginCapture_v2, (CUstream stream, CUstreamCaptureMode mode),
              { return begin(kFlavour, stream, mode); })
TF_STREAM_API(cuStreamBeginCaptureToGraph,
              (CUstream handle, CUgraph graph_handle, const CUgraphNode* after, const CUgraphEdgeData*,
               std::size_t count, CUstreamCaptureMode mode),
              {
                Stream* stream = nullptr;
                std::shared_ptr<Graph> graph;
                TF_TRY(find_graph("cuStreamBeginCaptureToGraph", graph_handle, graph));
                TF_TRY(find_stream(handle, kFlavour, stream));
                std::vector<GraphNode*> found;
                TF_TRY(find_nodes(*graph, after, count, found));
                std::vector<std::shared_ptr<GraphNode>> nodes;
                for (const GraphNode* node : found) nodes.push_back(graph_nodes().share(node->handle_value));
                return begin_capture(*stream, mode, std::move(graph), std::move(nodes), true);
              })
TF_STREAM_API(cuStreamEndCapture, (CUstream handle, CUgraph* out), {
  TF_TRY(enter("cuStreamEndCapture"));
  Stream* stream = nullptr;
  TF_TRY(find_stream(handle, kFlavour, stream));
  if (out == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *out = nullptr;
  std::shared_ptr<Graph> graph;
  TF_TRY(end_capture(*stream, graph));
  *out = graph->handle();
  return CUDA_SUCCESS;
})
TF_STREAM_API(cuStreamIsCapturing, (CUstream stream, CUstreamCaptureStatus* status),
              { return info(kFlavour, stream, {.status = status}); })
TF_STREAM_API(cuStreamGetCaptureInfo, (CUstream stream, CUstreamCaptureStatus* status, std::uint64_t* id),
              { return info(kFlavour, stream, {.status = status, .id = id}); })
TF_STREAM_API(cuStreamGetCaptureInfo_v2,
              (CUstream stream, CUstreamCaptureStatus* status, std::uint64_t* id, CUgraph* graph,
               const CUgraphNode** after, std::size_t* count),
              {
                return info(kFlavour, stream,
                            {.status = status, .id = id, .graph = graph, .after = after, .count = count});
              })
TF_STREAM_API(cuStreamGetCaptureInfo_v3,
              (CUstream stream, CUstreamCaptureStatus* status, std::uint64_t* id, CUgraph* graph,
               const CUgraphNode** after, const CUgraphEdgeData** edges, std::size_t* count),
              {
                return info(
                    kFlavour, stream,
                    {.status = status, .id = id, .graph = graph, .after = after, .edges = edges, .count = count});
              })
TF_STREAM_API(cuStreamUpdateCaptureDependencies,
              (CUstream stream, CUgraphNode* nodes, std::size_t count, unsigned flags),
              { return update(kFlavour, stream, nodes, count, flags); })
TF_STREAM_API(cuStreamUpdateCaptureDependencies_v2,
              (CUstream stream, CUgraphNode* nodes, const CUgraphEdgeData*, std::size_t count, unsigned flags),
              { return update(kFlavour, stream, nodes, count, flags); })
TF_API(cuThreadExchangeStreamCaptureMode, (CUstreamCaptureMode * mode)) {
  if (mode == nullptr || *mode < CU_STREAM_CAPTURE_MODE_GLOBAL || *mode > CU_STREAM_CAPTURE_MODE_RELAXED)
    return CUDA_ERROR_INVALID_VALUE;
  *mode = exchange_thread_mode(*mode);
  return CUDA_SUCCESS;
}

}  // namespace tensor_fusion::sim::cuda
