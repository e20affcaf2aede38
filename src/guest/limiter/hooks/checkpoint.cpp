// Checkpoints act on any process of the same user: in a slice, on those of the slice only. What they give back stays
// charged, since restoring takes it again.
#include "guest/limiter/core/os.h"
#include "guest/limiter/hooks/entry.h"

namespace tensor_fusion::guest::limiter {
namespace {

bool of_this_slice(int pid) {
  if (attachment() == nullptr) return !must_refuse();
  const contract::ClaimPage& claim = *g_shared.slice.claim;
  std::uint32_t high = claim.process_high.load(std::memory_order_relaxed);
  if (high > contract::kMaxProcesses) high = contract::kMaxProcesses;
  const std::uint64_t space = attachment()->process->pid_namespace.load(std::memory_order_relaxed);
  for (std::uint32_t slot = 0; slot < high; ++slot) {
    const contract::ClaimProcess& process = claim.processes[slot];
    if (process.state.load(std::memory_order_relaxed) == contract::kSlotLive &&
        process.pid.load(std::memory_order_relaxed) == static_cast<std::uint32_t>(pid) &&
        process.pid_namespace.load(std::memory_order_relaxed) == space)
      return true;
  }
  return static_cast<std::uint32_t>(pid) == os::process_id() || pid <= 0;  // no process: the driver's own answer
}

}  // namespace

#define TF_CHECKPOINT(symbol, Argument)                                                    \
  TF_ENTRY(symbol, (int pid, Argument argument)) {                                         \
    return of_this_slice(pid) ? TF_REAL(symbol)(pid, argument) : CUDA_ERROR_NOT_PERMITTED; \
  }
TF_CHECKPOINT(cuCheckpointProcessLock, CUcheckpointLockArgs*)
TF_CHECKPOINT(cuCheckpointProcessCheckpoint, CUcheckpointCheckpointArgs*)
TF_CHECKPOINT(cuCheckpointProcessRestore, CUcheckpointRestoreArgs*)
TF_CHECKPOINT(cuCheckpointProcessUnlock, CUcheckpointUnlockArgs*)
TF_CHECKPOINT(cuCheckpointProcessGetState, CUprocessState*)
TF_CHECKPOINT(cuCheckpointProcessGetRestoreThreadId, int*)
#undef TF_CHECKPOINT

}  // namespace tensor_fusion::guest::limiter
