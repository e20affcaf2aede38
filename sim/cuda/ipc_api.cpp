// Memory and events between processes. A memory handle names the exporter's arena and place in it; opening maps the
// same bytes here, uncharged. An event handle names a small shared file.
#include <unistd.h>

#include <atomic>
#include <cstdio>
#include <cstring>
#include <map>

#include "sim/cuda/device.h"
#include "sim/cuda/driver.h"
#include "sim/cuda/event.h"
#include "sim/cuda/ipc.h"

namespace tensor_fusion::sim::cuda {
namespace {

constexpr std::uint32_t kMemoryMagic = 0x4d504954, kEventMagic = 0x45504954;

struct MemoryHandle {
  std::uint32_t magic, pid;
  std::int32_t fd;
  std::uint32_t engine;
  std::uint64_t offset, bytes, id;
};
static_assert(sizeof(MemoryHandle) <= sizeof(CUipcMemHandle));

struct EventHandle {
  std::uint32_t magic, pid, number, engine;
};

// A foreign allocation opened here; every opening of the same one gives the same address.
struct Opened {
  std::uint64_t pid = 0, id = 0, address = 0, mapped = 0, mapped_bytes = 0;
  unsigned count = 0;
};
std::mutex mutex;
std::map<std::uint64_t, Opened>& opened() {  // by address
  static auto* all = new std::map<std::uint64_t, Opened>;
  return *all;
}
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
  if (handle.pid == static_cast<std::uint32_t>(::getpid()))
    return CUDA_ERROR_INVALID_CONTEXT;  // not for one's own memory
  Device* device = nullptr;
  for (const auto& each : Driver::get().devices())
    if (each->engine.id == handle.engine) device = each.get();
  if (device == nullptr) return CUDA_ERROR_INVALID_DEVICE;
  const std::lock_guard lock(mutex);
  for (auto& [address, known] : opened()) {
    if (known.pid != handle.pid || known.id != handle.id) continue;
    ++known.count;
    *out = address;
    return CUDA_SUCCESS;
  }
  const auto fd = device::open_foreign(handle.pid, handle.fd);
  if (!fd) return CUDA_ERROR_MAP_FAILED;
  const std::uint64_t first = handle.offset / device::kArenaPage * device::kArenaPage;
  const std::uint64_t bytes = round_up(handle.offset + handle.bytes, device::kArenaPage) - first;
  const auto place = device::reserve_addresses(bytes, device::kArenaPage);
  const bool mapped =
      place && device::map_at(*place, bytes, *fd, first) && device::protect(*place, bytes, device::Access::read_write);
  ::close(*fd);
  if (!mapped) {
    if (place) device::free_addresses(*place, bytes);
    return CUDA_ERROR_MAP_FAILED;
  }
  auto allocation = std::make_shared<Allocation>();
  allocation->kind = Allocation::Kind::ipc;
  allocation->base = reinterpret_cast<std::uint64_t>(*place) + (handle.offset - first);
  allocation->size = handle.bytes;
  allocation->extent = round_up(handle.bytes, kAllocationUnit);
  allocation->device = device;
  allocation->context_id = context->id();
  allocation->owner = context->weak_from_this();
  allocation->id = Driver::get().addresses().next_id();
  Driver::get().addresses().add(allocation);
  opened()[allocation->base] = {handle.pid, handle.id, allocation->base, reinterpret_cast<std::uint64_t>(*place),
                                bytes,      1};
  *out = allocation->base;
  return CUDA_SUCCESS;
}

}  // namespace

TF_API(cuIpcGetMemHandle, (CUipcMemHandle * out, CUdeviceptr address)) {
  Context* context = nullptr;
  TF_TRY(enter("cuIpcGetMemHandle", {}, context));
  const auto allocation = Driver::get().addresses().find(address);
  if (out == nullptr || !allocation || allocation->kind != Allocation::Kind::device) return CUDA_ERROR_INVALID_VALUE;
  const auto* arena = allocation->device->arena();
  MemoryHandle handle{};
  handle.magic = kMemoryMagic;
  handle.pid = static_cast<std::uint32_t>(::getpid());
  handle.fd = arena->fd();
  handle.engine = allocation->device->engine.id;
  handle.offset = allocation->base - reinterpret_cast<std::uint64_t>(arena->base());
  handle.bytes = allocation->size;
  handle.id = allocation->id;
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
  {
    const std::lock_guard lock(mutex);
    const auto found = opened().find(address);
    if (found == opened().end()) return CUDA_ERROR_INVALID_VALUE;
    if (--found->second.count != 0) return CUDA_SUCCESS;
  }
  TF_TRY(context->synchronize());
  const std::lock_guard lock(mutex);
  const auto found = opened().find(address);
  if (found == opened().end()) return CUDA_ERROR_INVALID_VALUE;
  Driver::get().addresses().remove(address);
  device::free_addresses(reinterpret_cast<void*>(found->second.mapped), found->second.mapped_bytes);
  opened().erase(found);
  return CUDA_SUCCESS;
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
