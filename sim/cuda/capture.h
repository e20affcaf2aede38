#pragma once
// Stream capture: instead of running, work of a stream becomes nodes of a graph. A capture starts in one stream and
// spreads to others by events; it ends where it started, with all others joined. What is not allowed meanwhile spoils
// it. A stream's part (its last nodes) is guarded by the stream's lock, the capture's own state by its mutex.
#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include "sim/cuda/abi.h"
#include "sim/cuda/command.h"
#include "sim/cuda/stream.h"

namespace tensor_fusion::sim::cuda {

class Graph;
struct GraphNode;

// The nodes the next work of one capturing stream comes after.
struct CapturePart {
  std::weak_ptr<Stream> stream;
  std::vector<std::shared_ptr<GraphNode>> after;
  bool joined = true;  // its last node is an ancestor of the origin's
};

struct Capture {
  std::shared_ptr<Graph> graph;
  CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_GLOBAL;
  std::uint64_t id = 0;
  Stream* origin = nullptr;
  std::thread::id thread;
  bool to_graph = false;  // into a graph of the caller's
  std::atomic<bool> invalid{false};
  std::mutex mutex;
  std::vector<CapturePart> parts;
  CapturePart& part(Stream& stream);
};

CUresult begin_capture(Stream& stream, CUstreamCaptureMode mode, std::shared_ptr<Graph> graph,
                       std::vector<std::shared_ptr<GraphNode>> after, bool to_graph);
CUresult end_capture(Stream& stream, std::shared_ptr<Graph>& out);
CUresult capture_command(Stream& stream, Command command);
// An event recorded in a capturing stream; a stream that waits for such an event joins the capture.
CUresult capture_record(Stream& stream, const std::shared_ptr<Event>& event);
CUresult capture_wait(Stream& stream, const std::shared_ptr<Event>& event, bool& captured);

// IMPLICIT when the legacy stream is used while a blocking stream of its context captures.
CUresult check_capture_conflict(Stream& stream);
// Calls that a capture of this thread's kind forbids (allocation, synchronisation): spoils such captures and says so.
CUresult check_capture_unsafe();
// A synchronising call on a stream that captures.
CUresult forbid_capture(Stream& stream);

[[nodiscard]] CUstreamCaptureMode exchange_thread_mode(CUstreamCaptureMode mode);

}  // namespace tensor_fusion::sim::cuda
