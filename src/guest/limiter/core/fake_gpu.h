#pragma once
// A driver with one device for tests of the gate: streams are queues of durations, events carry end times. The device
// waits for no host: work begins where the event before it passed, so that what markers measure does not depend on how
// busy this host is. Any thread. Tests only.
#include <algorithm>
#include <cstdint>
#include <map>
#include <mutex>
#include <utility>
#include <vector>

#include "contract/cuda.h"
#include "guest/limiter/core/attachment.h"
#include "guest/limiter/core/os.h"

namespace tensor_fusion::guest::limiter {

inline constexpr std::uint64_t kMs = 1'000'000;
inline constexpr std::uint64_t kContext = 0xc0;

inline thread_local std::vector<std::uint64_t> t_pushed;  // contexts, over the one that is current by itself

// One device, one context; kernels of one stream in order, streams beside each other.
struct FakeGpu {
  std::mutex mutex;
  std::map<CUstream, std::uint64_t> end_of;
  std::map<CUstream, std::uint64_t> event_on;  // when the last one passes
  std::map<CUevent, std::uint64_t> time_of;
  std::map<CUevent, std::uint64_t> context_of;       // of an event: what was current when it was made
  std::map<CUstream, std::uint64_t> stream_context;  // of streams that are not of the usual one
  std::uintptr_t next_event = 0x1000;
  unsigned records = 0, queries = 0;
  bool capturing = false;

  static FakeGpu& get() {
    static FakeGpu gpu;
    return gpu;
  }
  std::uint64_t run(CUstream stream, std::uint64_t ns) {
    const std::lock_guard lock(mutex);
    std::uint64_t& end = end_of[stream];
    const auto event = event_on.find(stream);
    end = std::max(end, event != event_on.end() ? event->second : os::monotonic_ns()) + ns;
    return end;
  }
};

inline CUstream plain(CUstream stream) { return stream == nullptr ? reinterpret_cast<CUstream>(1) : stream; }

inline CUresult event_create(CUevent* event, unsigned) {
  FakeGpu& gpu = FakeGpu::get();
  const std::lock_guard lock(gpu.mutex);
  *event = reinterpret_cast<CUevent>(gpu.next_event++);
  gpu.context_of[*event] = t_pushed.empty() ? t_current.context : t_pushed.back();
  return CUDA_SUCCESS;
}
inline std::uint64_t context_of(FakeGpu& gpu, CUstream stream) {
  const auto found = gpu.stream_context.find(stream);
  return found == gpu.stream_context.end() ? kContext : found->second;
}
inline CUresult stream_context(CUstream stream, CUcontext* context) {
  FakeGpu& gpu = FakeGpu::get();
  const std::lock_guard lock(gpu.mutex);
  *context = reinterpret_cast<CUcontext>(context_of(gpu, stream));
  return CUDA_SUCCESS;
}
inline CUresult push_context(CUcontext context) {
  FakeGpu& gpu = FakeGpu::get();
  const std::lock_guard lock(gpu.mutex);
  t_pushed.push_back(reinterpret_cast<std::uint64_t>(context));
  return CUDA_SUCCESS;
}
inline CUresult pop_context(CUcontext*) {
  FakeGpu& gpu = FakeGpu::get();
  const std::lock_guard lock(gpu.mutex);
  t_pushed.pop_back();
  return CUDA_SUCCESS;
}
inline CUresult event_record(CUevent event, CUstream stream) {
  FakeGpu& gpu = FakeGpu::get();
  const std::lock_guard lock(gpu.mutex);
  if (gpu.context_of[event] != context_of(gpu, stream)) return CUDA_ERROR_INVALID_HANDLE;
  ++gpu.records;
  const auto before = gpu.event_on.find(plain(stream));
  const std::uint64_t end = gpu.end_of[plain(stream)];
  // Behind work it passes as that ends, however late it is put down.
  const bool behind_work = before != gpu.event_on.end() && end > before->second;
  gpu.time_of[event] = gpu.event_on[plain(stream)] = behind_work ? end : std::max(end, os::monotonic_ns());
  return CUDA_SUCCESS;
}
inline CUresult event_query(CUevent event) {
  FakeGpu& gpu = FakeGpu::get();
  const std::lock_guard lock(gpu.mutex);
  ++gpu.queries;
  return gpu.time_of[event] <= os::monotonic_ns() ? CUDA_SUCCESS : CUDA_ERROR_NOT_READY;
}
inline CUresult event_elapsed(float* ms, CUevent from, CUevent to) {
  FakeGpu& gpu = FakeGpu::get();
  const std::lock_guard lock(gpu.mutex);
  *ms = static_cast<float>(static_cast<double>(static_cast<std::int64_t>(gpu.time_of[to] - gpu.time_of[from])) / 1e6);
  return CUDA_SUCCESS;
}
inline CUresult stream_query(CUstream stream) {
  FakeGpu& gpu = FakeGpu::get();
  const std::lock_guard lock(gpu.mutex);
  return gpu.end_of[plain(stream)] <= os::monotonic_ns() ? CUDA_SUCCESS : CUDA_ERROR_NOT_READY;
}
inline CUresult is_capturing(CUstream, CUstreamCaptureStatus* status) {
  *status = FakeGpu::get().capturing ? CU_STREAM_CAPTURE_STATUS_ACTIVE : CU_STREAM_CAPTURE_STATUS_NONE;
  return CUDA_SUCCESS;
}
// A driver that refuses what may spoil a capture, unless the thread says that it does not.
inline thread_local CUstreamCaptureMode t_capture_mode = CU_STREAM_CAPTURE_MODE_GLOBAL;
inline CUresult exchange_capture_mode(CUstreamCaptureMode* mode) {
  std::swap(t_capture_mode, *mode);
  return CUDA_SUCCESS;
}
inline CUresult graph_nodes(CUgraph, CUgraphNode*, std::size_t* count) {
  *count = 300;
  return CUDA_SUCCESS;
}

}  // namespace tensor_fusion::guest::limiter
