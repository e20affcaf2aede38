// Checkpoints of a process's device state: locked (its calls wait, its work is over), checkpointed (its device memory
// is given back), restored (taken again), unlocked. Of this process or of any other of the machine; the state lies in
// the machine, where the other process's driver looks before each call.
#include <unistd.h>

#include <chrono>
#include <mutex>
#include <thread>
#include <vector>

#include "sim/cuda/driver.h"
#include "sim/device/process_state.h"

namespace tensor_fusion::sim::cuda {
namespace {

std::mutex mutex;  // for a step from one state to another, never while waiting

CUresult find(int pid, std::vector<std::uint32_t>& places) {
  if (!Driver::get().ready()) return CUDA_ERROR_NOT_INITIALIZED;
  if (pid <= 0) return CUDA_ERROR_INVALID_VALUE;
  places = device::places_of(Driver::get().machine(), static_cast<std::uint32_t>(pid));
  return places.empty() ? CUDA_ERROR_INVALID_VALUE : CUDA_SUCCESS;
}

// All libraries of the process together; the first one says whether it may be.
CUresult move(const std::vector<std::uint32_t>& places, std::uint32_t from, std::uint32_t to) {
  auto& machine = Driver::get().machine();
  if (!device::change_held_state(machine, places.front(), from, to)) return CUDA_ERROR_ILLEGAL_STATE;
  for (std::size_t i = 1; i < places.size(); ++i) (void)device::change_held_state(machine, places[i], from, to);
  return CUDA_SUCCESS;
}

bool over(const std::vector<std::uint32_t>& places) {
  for (const std::uint32_t place : places)
    if (!device::work_is_over(Driver::get().machine(), place)) return false;
  return true;
}

}  // namespace

TF_API(cuCheckpointProcessGetState, (int pid, CUprocessState* out)) {
  std::vector<std::uint32_t> places;
  TF_TRY(find(pid, places));
  if (out == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *out = static_cast<CUprocessState>(device::held_state(Driver::get().machine(), places.front()));
  return CUDA_SUCCESS;
}

TF_API(cuCheckpointProcessGetRestoreThreadId, (int pid, int* out)) {
  std::vector<std::uint32_t> places;
  TF_TRY(find(pid, places));
  if (out == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *out = pid;  // any thread may restore
  return CUDA_SUCCESS;
}

TF_API(cuCheckpointProcessLock, (int pid, CUcheckpointLockArgs* args)) {
  std::vector<std::uint32_t> places;
  TF_TRY(find(pid, places));
  {
    const std::lock_guard lock(mutex);
    TF_TRY(move(places, CU_PROCESS_STATE_RUNNING, CU_PROCESS_STATE_LOCKED));
  }
  const std::uint64_t begin = device::now_ns();
  const std::uint64_t patience = args != nullptr ? std::uint64_t{args->timeoutMs} * 1'000'000 : 0;  // 0: for ever
  while (!over(places)) {  // nothing runs behind the lock
    // Another thread or process may end the wait, as that of work that never ends must be.
    if (device::held_state(Driver::get().machine(), places.front()) == CU_PROCESS_STATE_RUNNING)
      return CUDA_ERROR_ILLEGAL_STATE;
    if (patience != 0 && device::now_ns() - begin > patience) {
      const std::lock_guard lock(mutex);
      (void)move(places, CU_PROCESS_STATE_LOCKED, CU_PROCESS_STATE_RUNNING);
      return CUDA_ERROR_NOT_READY;
    }
    std::this_thread::sleep_for(std::chrono::microseconds(200));
    std::vector<std::uint32_t> still;
    TF_TRY(find(pid, still));  // it may have died
  }
  return CUDA_SUCCESS;
}

TF_API(cuCheckpointProcessCheckpoint, (int pid, CUcheckpointCheckpointArgs*)) {
  std::vector<std::uint32_t> places;
  TF_TRY(find(pid, places));
  const std::lock_guard lock(mutex);
  if (!over(places)) return CUDA_ERROR_ILLEGAL_STATE;  // it runs, or whoever locks it waits still
  TF_TRY(move(places, CU_PROCESS_STATE_LOCKED, CU_PROCESS_STATE_CHECKPOINTED));
  for (const std::uint32_t place : places) device::park_memory(Driver::get().machine(), place);
  return CUDA_SUCCESS;
}

TF_API(cuCheckpointProcessRestore, (int pid, CUcheckpointRestoreArgs*)) {
  std::vector<std::uint32_t> places;
  TF_TRY(find(pid, places));
  const std::lock_guard lock(mutex);
  auto& machine = Driver::get().machine();
  if (device::held_state(machine, places.front()) != CU_PROCESS_STATE_CHECKPOINTED) return CUDA_ERROR_ILLEGAL_STATE;
  for (std::size_t i = 0; i < places.size(); ++i) {
    if (device::unpark_memory(machine, places[i])) continue;
    while (i-- > 0) device::park_memory(machine, places[i]);
    return CUDA_ERROR_OUT_OF_MEMORY;  // and stays checkpointed
  }
  return move(places, CU_PROCESS_STATE_CHECKPOINTED, CU_PROCESS_STATE_LOCKED);
}

TF_API(cuCheckpointProcessUnlock, (int pid, CUcheckpointUnlockArgs*)) {
  std::vector<std::uint32_t> places;
  TF_TRY(find(pid, places));
  const std::lock_guard lock(mutex);
  return move(places, CU_PROCESS_STATE_LOCKED, CU_PROCESS_STATE_RUNNING);
}

}  // namespace tensor_fusion::sim::cuda
