// Memory and events between processes. A memory handle names the exporter's arena and place in it; opening maps the
// same bytes here, uncharged. An event handle names a small shared file.
#include <unistd.h>

#include <atomic>
#include <cstdio>
#include <cstring>
#include <mutex>

#include "sim/cuda/device.h"
#include "sim/cuda/driver.h"
#include "sim/cuda/event.h"
#include "sim/cuda/foreign_memory.h"
#include "sim/cuda/ipc.h"
#include "sim/cuda/narrow_memory.h"

namespace tensor_fusion::sim::cuda {
namespace {

constexpr std::uint32_t kMemoryMagic = 0x4d504954, kEventMagic = 0x45504954;

struct MemoryHandle {
  std::uint32_t magic, unused;
  ForeignMemory memory;
};
static_assert(sizeof(MemoryHandle) <= sizeof(CUipcMemHandle));

struct EventHandle {
  std::uint32_t magic, pid, number, engine;
};

std::mutex mutex;
std::atomic<std::uint32_t> next_event{1};

std::string event_path(std::uint32_t pid, std::uint32_t number) {
  return Driver::get().machine().directory() + "/event-" + std::to_string(pid) + "-" + std::to_string(number);
}

CUresult open_memory(CUdeviceptr* out, const CUipcMemHandle& raw, unsigned flags) {
  Context* context = nullptr;
  TF_TRY(enter("cuIpcOpenMemHandle", {}, context));
  MemoryHandle handle;
  std::memcpy(&handle, &raw, sizeof handle);
  if (out == nullptr || flags > 1 || handle.magic != kMemoryMagic) return CUDA_ERROR_INVALID_VALUE;
  if (handle.memory.pid == static_cast<std::uint32_t>(::getpid()))
    return CUDA_ERROR_INVALID_CONTEXT;  // not for one's own memory
  return open_foreign_memory(handle.memory, context, nullptr, *out);
}

}  // namespace

TF_API(cuIpcGetMemHandle, (CUipcMemHandle * out, CUdeviceptr address)) {
  Context* context = nullptr;
  TF_TRY(enter("cuIpcGetMemHandle", {}, context));
  const auto allocation = Driver::get().addresses().find(address);
  if (out == nullptr || !allocation || allocation->kind != Allocation::Kind::device || is_narrow(allocation->base))
    return CUDA_ERROR_INVALID_VALUE;
  const MemoryHandle handle{kMemoryMagic, 0, describe_for_others(*allocation)};
  *out = {};
  std::memcpy(out, &handle, sizeof handle);
  return CUDA_SUCCESS;
}

TF_API(cuIpcOpenMemHandle_v2, (CUdeviceptr * out, CUipcMemHandle handle, unsigned flags)) {
  return open_memory(out, handle, flags);
}
TF_API(cuIpcOpenMemHandle, (CUdeviceptr * out, CUipcMemHandle handle, unsigned flags)) {
  return open_memory(out, handle, flags);
}

TF_API(cuIpcCloseMemHandle, (CUdeviceptr address)) {
  Context* context = nullptr;
  TF_TRY(enter("cuIpcCloseMemHandle", {}, context));
  TF_TRY(context->synchronize());
  return close_foreign_memory(address);
}

TF_API(cuIpcGetEventHandle, (CUipcEventHandle * out, CUevent handle)) {
  TF_TRY(enter("cuIpcGetEventHandle"));
  const auto event = events().share(handle);
  if (out == nullptr) return CUDA_ERROR_INVALID_VALUE;
  if (!event) return CUDA_ERROR_INVALID_HANDLE;
  if ((event->flags & CU_EVENT_INTERPROCESS) == 0) return CUDA_ERROR_INVALID_HANDLE;
  const std::lock_guard lock(mutex);
  EventHandle raw{kEventMagic, static_cast<std::uint32_t>(::getpid()), 0, event->context().device().engine.id};
  if (event->shared) {
    unsigned pid = 0, number = 0;
    const auto name = event->shared->path.rfind("/event-");
    std::sscanf(event->shared->path.c_str() + name, "/event-%u-%u", &pid, &number);
    raw.pid = pid;
    raw.number = number;
  } else {
    raw.number = next_event.fetch_add(1);
    auto shared = SharedEvent::create(event_path(raw.pid, raw.number));
    if (!shared) return CUDA_ERROR_OPERATING_SYSTEM;
    event->share_by(std::move(shared));
  }
  *out = {};
  std::memcpy(out, &raw, sizeof raw);
  return CUDA_SUCCESS;
}

TF_API(cuIpcOpenEventHandle, (CUevent * out, CUipcEventHandle raw)) {
  Context* context = nullptr;
  TF_TRY(enter("cuIpcOpenEventHandle", {}, context));
  EventHandle handle;
  std::memcpy(&handle, &raw, sizeof handle);
  if (out == nullptr || handle.magic != kEventMagic) return CUDA_ERROR_INVALID_VALUE;
  if (handle.pid == static_cast<std::uint32_t>(::getpid())) return CUDA_ERROR_INVALID_CONTEXT;
  auto shared = SharedEvent::open(event_path(handle.pid, handle.number));
  if (!shared) return CUDA_ERROR_MAP_FAILED;
  auto event = std::make_shared<Event>(context->shared_from_this(), CU_EVENT_INTERPROCESS | CU_EVENT_DISABLE_TIMING);
  event->share_by(std::move(shared));
  event->handle_value = events().insert(event);
  *out = as_handle<CUevent>(event->handle_value);
  return CUDA_SUCCESS;
}

}  // namespace tensor_fusion::sim::cuda
