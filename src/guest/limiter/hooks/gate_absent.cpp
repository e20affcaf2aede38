// Stands in where no gate is linked: launches pass and nothing is measured.
#include "guest/limiter/core/gate.h"

namespace tensor_fusion::guest::limiter::gate {

[[gnu::weak]] Token before_launch(Device& device, CUstream stream, LaunchKey, bool own) { return {&device, stream, {}, own}; }
[[gnu::weak]] void after_launch(Token&, CUresult) {}
[[gnu::weak]] void graph_instantiated(Device&, CUgraphExec, CUgraph) {}
[[gnu::weak]] void graph_updated(CUgraphExec) {}
[[gnu::weak]] void graph_destroyed(CUgraphExec) {}
[[gnu::weak]] Token before_graph_launch(Device& device, CUgraphExec, CUstream stream, bool own) {
  return {&device, stream, {}, own};
}
[[gnu::weak]] void before_sync(Device&, CUstream, bool, bool) {}
[[gnu::weak]] void after_sync(Device&, CUstream, bool, bool) {}
[[gnu::weak]] void stream_created(Device&, CUstream) {}
[[gnu::weak]] void stream_destroyed(Device&, CUstream) {}
[[gnu::weak]] void capture_began(CUstream, bool) {}
[[gnu::weak]] void capture_ended(CUstream, bool) {}
[[gnu::weak]] void context_created(Device&, CUcontext) {}
[[gnu::weak]] void context_destroyed(Device&, CUcontext) {}
[[gnu::weak]] void forked() {}

}  // namespace tensor_fusion::guest::limiter::gate
