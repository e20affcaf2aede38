#pragma once
// The compute gate: holds launches so that the tenant stays within its share of device time, and measures them.
// Border between the hooks (which call it) and the gate (which decides). The gate reaches the driver only through
// `driver()` of core/driver.h, the table of real entry points, never through a hook. It may be called from any thread;
// no call may fail, and only `before_launch` and `before_graph_launch` may wait (never in stream capture).
// No C++ runtime library: no exceptions, no operator new, no thread-safe statics, no std:: containers that allocate.
#include <cstdint>

#include "contract/cuda.h"
#include "guest/limiter/core/device.h"

namespace tensor_fusion::guest::limiter::gate {

// What a duration is learned for. `function` is the CUfunction/CUkernel; `shape` mixes the 64-bit grid and block
// product.
struct LaunchKey {
  const void* function;
  std::uint64_t shape;
};

// Carries one launch from before to after; plain bytes, owned by the hook's stack frame. The gate defines what `word`
// means; zero means "nothing to do afterwards", and the hook skips the after call.
struct Token {
  Device* device;
  CUstream stream;
  std::uint64_t word[3];
  bool per_thread_stream;
};

// True when nothing needs holding or measuring on this device: one load, inlined into the launch hooks.
[[gnu::always_inline]] inline bool bypassed(const Device& device) {
  return (device.grant->flags.load(std::memory_order_relaxed) & contract::kComputeUnlimited) != 0;
}

// `stream` is the caller's handle (null, CU_STREAM_LEGACY and CU_STREAM_PER_THREAD included); `per_thread_stream` is
// true when the caller came by a _ptsz entry point, where a null stream means the thread's own.
Token before_launch(Device& device, CUstream stream, LaunchKey key, bool per_thread_stream);
void after_launch(Token& token, CUresult result);

// A graph's cost belongs to the executable graph. `exec` is the handle after a successful instantiate or update.
void graph_instantiated(Device& device, CUgraphExec exec, CUgraph graph);
void graph_updated(CUgraphExec exec);  // parameters of nodes changed
void graph_destroyed(CUgraphExec exec);
Token before_graph_launch(Device& device, CUgraphExec exec, CUstream stream, bool per_thread_stream);
// ... followed by after_launch.

// A thread is about to wait for the device, and has returned. `all` = the whole context.
void before_sync(Device& device, CUstream stream, bool all, bool per_thread_stream);
void after_sync(Device& device, CUstream stream, bool all, bool per_thread_stream);

void stream_destroyed(Device& device, CUstream stream);  // called before the real destroy
// Called before the driver is asked to begin a capture: returns when no call of the gate's own can fall into it. The
// rest of its life is told to g_captures (core/captures.h).
void capture_begins();

void context_destroyed(Device& device, CUcontext context);  // called before the real destroy or reset

void forked();  // first call in a child of fork: forget every stream, event and context

}  // namespace tensor_fusion::guest::limiter::gate
