// Checkpoints of a process's device state: locked (calls wait), checkpointed (its device memory is given back),
// restored (taken again), unlocked. Of this process only: another process's pid is answered NOT_SUPPORTED.
#include <unistd.h>

#include <mutex>
#include <vector>

#include "sim/cuda/device.h"
#include "sim/cuda/driver.h"
#include "sim/device/memory.h"

namespace tensor_fusion::sim::cuda {
namespace {

struct Held {
  std::uint32_t domain;
  std::uint64_t bytes;
};
std::mutex mutex;
std::vector<Held>& held() {
  static auto* all = new std::vector<Held>;
  return *all;
}

CUresult own(int pid) {
  if (!Driver::get().ready()) return CUDA_ERROR_NOT_INITIALIZED;
  if (pid <= 0) return CUDA_ERROR_INVALID_VALUE;
  return pid == static_cast<int>(::getpid()) ? CUDA_SUCCESS : CUDA_ERROR_NOT_SUPPORTED;
}

CUresult move(CUprocessState from, CUprocessState to) {
  auto& state = Driver::get().checkpoint_state();
  int expected = from;
  if (!state.compare_exchange_strong(expected, to)) return CUDA_ERROR_ILLEGAL_STATE;
  state.notify_all();
  return CUDA_SUCCESS;
}

}  // namespace

TF_API(cuCheckpointProcessGetState, (int pid, CUprocessState* out)) {
  TF_TRY(own(pid));
  if (out == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *out = static_cast<CUprocessState>(Driver::get().checkpoint_state().load());
  return CUDA_SUCCESS;
}

TF_API(cuCheckpointProcessGetRestoreThreadId, (int pid, int* out)) {
  TF_TRY(own(pid));
  if (out == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *out = pid;  // any thread may restore
  return CUDA_SUCCESS;
}

TF_API(cuCheckpointProcessLock, (int pid, CUcheckpointLockArgs*)) {
  TF_TRY(own(pid));
  const std::lock_guard lock(mutex);
  TF_TRY(move(CU_PROCESS_STATE_RUNNING, CU_PROCESS_STATE_LOCKED));
  for (const auto& context : all_contexts()) (void)context->synchronize();  // nothing runs behind the lock
  return CUDA_SUCCESS;
}

TF_API(cuCheckpointProcessCheckpoint, (int pid, CUcheckpointCheckpointArgs*)) {
  TF_TRY(own(pid));
  const std::lock_guard lock(mutex);
  TF_TRY(move(CU_PROCESS_STATE_LOCKED, CU_PROCESS_STATE_CHECKPOINTED));
  auto& machine = Driver::get().machine();
  held().clear();
  std::vector<std::uint32_t> domains;
  for (const auto& device : Driver::get().devices()) {
    const std::uint32_t domain = device->engine.memory_domain;
    if (std::find(domains.begin(), domains.end(), domain) != domains.end()) continue;
    domains.push_back(domain);
    for (const auto& process : device::memory_by_process(machine, domain)) {
      if (process.pid != static_cast<std::uint32_t>(::getpid())) continue;
      if (device::release_memory(machine, domain, process.used_bytes)) held().push_back({domain, process.used_bytes});
    }
  }
  return CUDA_SUCCESS;
}

TF_API(cuCheckpointProcessRestore, (int pid, CUcheckpointRestoreArgs*)) {
  TF_TRY(own(pid));
  const std::lock_guard lock(mutex);
  if (Driver::get().checkpoint_state() != CU_PROCESS_STATE_CHECKPOINTED) return CUDA_ERROR_ILLEGAL_STATE;
  auto& machine = Driver::get().machine();
  for (std::size_t i = 0; i < held().size(); ++i) {
    if (device::reserve_memory(machine, held()[i].domain, held()[i].bytes)) continue;
    while (i-- > 0) (void)device::release_memory(machine, held()[i].domain, held()[i].bytes);
    return CUDA_ERROR_OUT_OF_MEMORY;  // and stays checkpointed
  }
  held().clear();
  return move(CU_PROCESS_STATE_CHECKPOINTED, CU_PROCESS_STATE_LOCKED);
}

TF_API(cuCheckpointProcessUnlock, (int pid, CUcheckpointUnlockArgs*)) {
  TF_TRY(own(pid));
  const std::lock_guard lock(mutex);
  return move(CU_PROCESS_STATE_LOCKED, CU_PROCESS_STATE_RUNNING);
}

}  // namespace tensor_fusion::sim::cuda
