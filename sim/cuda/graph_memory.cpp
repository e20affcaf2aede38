// Memory that graphs allocate and free. The range lives as long as its node; its bytes are charged from its first run
// until the device's graph memory is trimmed.
#include "sim/cuda/graph_memory.h"

#include <set>

#include "sim/cuda/device.h"
#include "sim/cuda/driver.h"
#include "sim/cuda/graph.h"
#include "sim/cuda/pool.h"

namespace tensor_fusion::sim::cuda {
namespace {

struct Account {
  std::uint64_t used = 0, used_high = 0, reserved = 0, reserved_high = 0;
};
std::mutex mutex;
std::map<const Device*, Account>& accounts() {
  static auto* all = new std::map<const Device*, Account>;
  return *all;
}
std::set<GraphMemory*>& ranges() {
  static auto* all = new std::set<GraphMemory*>;
  return *all;
}

void uncharge(GraphMemory& memory) {  // under mutex
  if (!memory.charged) return;
  memory.charged = false;
  memory.device->uncharge(memory.extent);
  accounts()[memory.device].reserved -= memory.extent;
  Driver::get().addresses().remove(memory.address);
}

}  // namespace

CUresult make_graph_memory(Device& device, std::uint64_t bytes, std::shared_ptr<GraphMemory>& out) {
  auto memory = std::make_shared<GraphMemory>();
  memory->bytes = bytes;
  memory->extent = round_up(bytes, kChunkBytes);
  TF_TRY(device.cut(memory->extent, memory->address, kChunkBytes));
  memory->device = &device;
  const std::lock_guard lock(mutex);
  ranges().insert(memory.get());
  out = std::move(memory);
  return CUDA_SUCCESS;
}

GraphMemory::~GraphMemory() {
  if (device == nullptr) return;
  {
    const std::lock_guard lock(mutex);
    ranges().erase(this);
    if (live) accounts()[device].used -= extent;
    uncharge(*this);
  }
  device->uncut(address, extent);
}

CUresult enqueue_alloc(Stream&, const AllocCommand& command) {
  GraphMemory& memory = *command.memory;
  const std::lock_guard lock(mutex);
  if (memory.live) return CUDA_ERROR_INVALID_VALUE;  // a second launch before the first one's memory was freed
  auto& account = accounts()[memory.device];
  if (!memory.charged) {
    TF_TRY(memory.device->charge(memory.extent));
    memory.charged = true;
    account.reserved += memory.extent;
    account.reserved_high = std::max(account.reserved_high, account.reserved);
    auto allocation = std::make_shared<Allocation>();
    allocation->kind = Allocation::Kind::device;
    allocation->base = memory.address;
    allocation->size = memory.bytes;
    allocation->extent = memory.extent;
    allocation->device = memory.device;
    allocation->id = Driver::get().addresses().next_id();
    Driver::get().addresses().add(allocation);
  }
  memory.live = true;
  account.used += memory.extent;
  account.used_high = std::max(account.used_high, account.used);
  return CUDA_SUCCESS;
}

CUresult free_graph_memory(CUdeviceptr address) {
  const std::lock_guard lock(mutex);
  for (GraphMemory* memory : ranges()) {
    if (memory->address != address) continue;
    if (!memory->live) return CUDA_ERROR_INVALID_VALUE;
    memory->live = false;
    accounts()[memory->device].used -= memory->extent;
    return CUDA_SUCCESS;
  }
  return CUDA_ERROR_NOT_FOUND;
}

CUresult enqueue_free(Stream& stream, const FreeCommand& command) {
  if (const CUresult result = free_graph_memory(command.address); result != CUDA_ERROR_NOT_FOUND) return result;
  const auto allocation = Driver::get().addresses().exact(command.address);
  if (!allocation || allocation->kind != Allocation::Kind::pool) return CUDA_ERROR_INVALID_VALUE;
  return std::static_pointer_cast<Pool>(allocation->keeper)->free(command.address, &stream);
}

bool graph_owns(CUdeviceptr address) {
  const std::lock_guard lock(mutex);
  for (const GraphMemory* memory : ranges())
    if (memory->address == address) return true;
  return false;
}

TF_API(cuDeviceGraphMemTrim, (CUdevice ordinal)) {
  TF_TRY(enter("cuDeviceGraphMemTrim"));
  Device* device = nullptr;
  TF_TRY(find_device(ordinal, device));
  const std::lock_guard lock(mutex);
  for (GraphMemory* memory : ranges())
    if (memory->device == device && !memory->live) uncharge(*memory);
  return CUDA_SUCCESS;
}

TF_API(cuDeviceGetGraphMemAttribute, (CUdevice ordinal, CUgraphMem_attribute attribute, void* value)) {
  TF_TRY(enter("cuDeviceGetGraphMemAttribute"));
  Device* device = nullptr;
  TF_TRY(find_device(ordinal, device));
  if (value == nullptr) return CUDA_ERROR_INVALID_VALUE;
  const std::lock_guard lock(mutex);
  const Account& account = accounts()[device];
  auto& out = *static_cast<std::uint64_t*>(value);
  switch (attribute) {
    case CU_GRAPH_MEM_ATTR_USED_MEM_CURRENT:
      out = account.used;
      return CUDA_SUCCESS;
    case CU_GRAPH_MEM_ATTR_USED_MEM_HIGH:
      out = account.used_high;
      return CUDA_SUCCESS;
    case CU_GRAPH_MEM_ATTR_RESERVED_MEM_CURRENT:
      out = account.reserved;
      return CUDA_SUCCESS;
    case CU_GRAPH_MEM_ATTR_RESERVED_MEM_HIGH:
      out = account.reserved_high;
      return CUDA_SUCCESS;
  }
  return CUDA_ERROR_INVALID_VALUE;
}

TF_API(cuDeviceSetGraphMemAttribute, (CUdevice ordinal, CUgraphMem_attribute attribute, void* value)) {
  TF_TRY(enter("cuDeviceSetGraphMemAttribute"));
  Device* device = nullptr;
  TF_TRY(find_device(ordinal, device));
  if (value == nullptr || *static_cast<std::uint64_t*>(value) != 0) return CUDA_ERROR_INVALID_VALUE;
  const std::lock_guard lock(mutex);
  Account& account = accounts()[device];
  if (attribute == CU_GRAPH_MEM_ATTR_USED_MEM_HIGH)
    account.used_high = account.used;
  else if (attribute == CU_GRAPH_MEM_ATTR_RESERVED_MEM_HIGH)
    account.reserved_high = account.reserved;
  else
    return CUDA_ERROR_INVALID_VALUE;
  return CUDA_SUCCESS;
}

}  // namespace tensor_fusion::sim::cuda
