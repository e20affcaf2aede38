// Streams, stream capture, and the calls in which a thread waits for the device.
#include "guest/limiter/core/captures.h"
#include "guest/limiter/hooks/charge.h"

namespace tensor_fusion::guest::limiter {
namespace {

using gate::g_captures;

template <class Call>
CUresult destroy(CUstream stream, Call call) {
  if (Device* device = current_device(); device != nullptr) gate::stream_destroyed(*device, stream);
  const CUresult result = call();
  if (result == CUDA_SUCCESS && g_captures.any()) g_captures.stream_gone(stream);
  return result;
}

// In a child of fork nothing is registered before the driver works there, and the locks are its parent's until then.
template <class Call>
CUresult begin(CUstream stream, bool own_stream, Call call) {
  if (registered() == nullptr) return call();
  const std::uint64_t context = current_device() != nullptr ? t_current.context : 0;
  gate::capture_begins();
  const CUresult result = call();
  if (result == CUDA_SUCCESS) {
    g_captures.began(stream, own_stream, context);
  } else {
    g_captures.drop();
  }
  return result;
}

// One that fails leaves the capture as it was, or ends it all the same: the driver knows.
bool goes_on(CUresult result, CUstream stream, bool own_stream) {
  if (result == CUDA_SUCCESS || result == CUDA_ERROR_STREAM_CAPTURE_INVALIDATED ||
      result == CUDA_ERROR_STREAM_CAPTURE_UNJOINED)
    return false;
  return gate::driver_captures(stream, own_stream).value_or(true);
}

template <class Call>
CUresult end(CUstream stream, bool own_stream, Call call) {
  const CUresult result = call();
  if (attachment() == nullptr || !g_captures.any() || !g_captures.began_on(stream, own_stream)) return result;
  if (!goes_on(result, stream, own_stream)) g_captures.ended(stream, own_stream);
  return result;
}

template <class Call>
CUresult wait(CUstream stream, bool all, bool own_stream, Call call) {
  Device* device = current_device();
  if (device == nullptr) return must_refuse() ? refusal() : call();
  gate::before_sync(*device, stream, all, own_stream);
  const CUresult result = call();
  gate::after_sync(*device, stream, all, own_stream);
  // Pools give memory back when a thread has waited.
  Attachment& attached = *attachment();
  if (attached.pool_high.load(std::memory_order_relaxed) != 0) settle_pools(attached, device);
  return result;
}

}  // namespace

TF_ENTRY(cuStreamCreate, (CUstream * stream, unsigned flags)) { return TF_FORWARD(cuStreamCreate, stream, flags); }
TF_ENTRY(cuStreamCreateWithPriority, (CUstream * stream, unsigned flags, int priority)) {
  return TF_FORWARD(cuStreamCreateWithPriority, stream, flags, priority);
}
TF_ENTRY(cuGreenCtxStreamCreate, (CUstream * stream, CUgreenCtx context, unsigned flags, int priority)) {
  return TF_FORWARD(cuGreenCtxStreamCreate, stream, context, flags, priority);
}
TF_ENTRY(cuStreamDestroy, (CUstream stream)) {
  return destroy(stream, [&] { return TF_REAL(cuStreamDestroy)(stream); });
}
TF_ENTRY(cuStreamDestroy_v2, (CUstream stream)) {
  return destroy(stream, [&] { return TF_REAL(cuStreamDestroy_v2)(stream); });
}

#define TF_CAPTURE(symbol, own_stream)                                            \
  TF_ENTRY(symbol, (CUstream stream)) {                                           \
    return begin(stream, own_stream, [&] { return TF_FORWARD(symbol, stream); }); \
  }
TF_CAPTURE(cuStreamBeginCapture, false)
TF_CAPTURE(cuStreamBeginCapture_ptsz, true)
#undef TF_CAPTURE

#define TF_CAPTURE(symbol, own_stream)                                                  \
  TF_ENTRY(symbol, (CUstream stream, CUstreamCaptureMode mode)) {                       \
    return begin(stream, own_stream, [&] { return TF_FORWARD(symbol, stream, mode); }); \
  }
TF_CAPTURE(cuStreamBeginCapture_v2, false)
TF_CAPTURE(cuStreamBeginCapture_v2_ptsz, true)
#undef TF_CAPTURE

#define TF_CAPTURE(symbol, own_stream)                                                                              \
  TF_ENTRY(symbol, (CUstream stream, CUgraph graph, const CUgraphNode* nodes, const CUgraphEdgeData* edges,         \
                    std::size_t count, CUstreamCaptureMode mode)) {                                                 \
    return begin(stream, own_stream, [&] { return TF_FORWARD(symbol, stream, graph, nodes, edges, count, mode); }); \
  }
TF_CAPTURE(cuStreamBeginCaptureToGraph, false)
TF_CAPTURE(cuStreamBeginCaptureToGraph_ptsz, true)
#undef TF_CAPTURE

#define TF_CAPTURE(symbol, own_stream)                                                 \
  TF_ENTRY(symbol, (CUstream stream, CUgraph * graph)) {                               \
    return end(stream, own_stream, [&] { return TF_FORWARD(symbol, stream, graph); }); \
  }
TF_CAPTURE(cuStreamEndCapture, false)
TF_CAPTURE(cuStreamEndCapture_ptsz, true)
#undef TF_CAPTURE

TF_ENTRY(cuStreamSynchronize, (CUstream stream)) {
  return wait(stream, false, false, [&] { return TF_REAL(cuStreamSynchronize)(stream); });
}
TF_ENTRY(cuStreamSynchronize_ptsz, (CUstream stream)) {
  return wait(stream, false, true, [&] { return TF_REAL(cuStreamSynchronize_ptsz)(stream); });
}
TF_ENTRY(cuEventSynchronize, (CUevent event)) {
  return wait(nullptr, true, false, [&] { return TF_REAL(cuEventSynchronize)(event); });
}
TF_ENTRY(cuCtxSynchronize, ()) {
  return wait(nullptr, true, false, [&] { return TF_REAL(cuCtxSynchronize)(); });
}
TF_ENTRY(cuCtxSynchronize_v2, (CUcontext context)) {
  return wait(nullptr, true, false, [&] { return TF_REAL(cuCtxSynchronize_v2)(context); });
}
// A blocking copy to the host is how most programs wait for a result.
TF_ENTRY(cuMemcpyDtoH_v2, (void* target, CUdeviceptr source, std::size_t bytes)) {
  return wait(nullptr, false, false, [&] { return TF_REAL(cuMemcpyDtoH_v2)(target, source, bytes); });
}
TF_ENTRY(cuMemcpyDtoH_v2_ptds, (void* target, CUdeviceptr source, std::size_t bytes)) {
  return wait(nullptr, false, true, [&] { return TF_REAL(cuMemcpyDtoH_v2_ptds)(target, source, bytes); });
}

}  // namespace tensor_fusion::guest::limiter
