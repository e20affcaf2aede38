#include "sim/cuda/pool_place.h"

#include <algorithm>
#include <map>
#include <mutex>
#include <tuple>

#include "sim/cuda/device.h"
#include "sim/cuda/driver.h"
#include "sim/cuda/pool.h"

namespace tensor_fusion::sim::cuda {
namespace {

struct Place {
  std::shared_ptr<Pool> usual, current;
};
using Key = std::tuple<CUmemLocationType, int, CUmemAllocationType>;
std::mutex mutex;
std::map<Key, Place>& places() {
  static auto* all = new std::map<Key, Place>;
  return *all;
}

bool is_numa_node(int id) {
  const auto& devices = Driver::get().devices();
  return id == 0 || std::ranges::any_of(devices, [id](const auto& each) { return each->card.numa_node == id; });
}

Key key_of(const CUmemLocation& location, CUmemAllocationType type) {
  const bool numbered = location.type == CU_MEM_LOCATION_TYPE_DEVICE || location.type == CU_MEM_LOCATION_TYPE_HOST_NUMA;
  return {location.type, numbered ? location.id : 0, type};
}

// Of a device's own memory, which the device keeps.
bool of_device_memory(const CUmemLocation& location, CUmemAllocationType type) {
  return location.type == CU_MEM_LOCATION_TYPE_DEVICE && type == CU_MEM_ALLOCATION_TYPE_PINNED;
}

Place& place_at(const CUmemLocation& location, CUmemAllocationType type, Device* device) {  // under mutex
  Place& place = places()[key_of(location, type)];
  if (!place.usual) {
    CUmemPoolProps properties{};
    properties.allocType = type;
    properties.location = location;
    place.usual = std::make_shared<Pool>(device, properties);
    place.usual->is_default = true;
    place.usual->handle_value = pools().insert(place.usual);
  }
  return place;
}

CUresult look_up(const char* symbol, const CUmemLocation* location, CUmemAllocationType type, CUmemoryPool* out,
                 bool current) {
  TF_TRY(enter(symbol));
  if (location == nullptr || out == nullptr) return CUDA_ERROR_INVALID_VALUE;
  Device* device = nullptr;
  TF_TRY(find_pool_place(*location, type, device));
  if (of_device_memory(*location, type)) {
    *out = (current ? device->current_pool() : device->default_pool())->handle();
    return CUDA_SUCCESS;
  }
  const std::lock_guard lock(mutex);
  const Place& place = place_at(*location, type, device);
  *out = (current && place.current ? place.current : place.usual)->handle();
  return CUDA_SUCCESS;
}

}  // namespace

CUresult find_pool_place(const CUmemLocation& location, CUmemAllocationType type, Device*& device) {
  device = nullptr;
  if (type != CU_MEM_ALLOCATION_TYPE_PINNED && type != CU_MEM_ALLOCATION_TYPE_MANAGED) return CUDA_ERROR_INVALID_VALUE;
  switch (location.type) {
    case CU_MEM_LOCATION_TYPE_DEVICE:
      return find_device(location.id, device);
    case CU_MEM_LOCATION_TYPE_HOST:
      return CUDA_SUCCESS;
    case CU_MEM_LOCATION_TYPE_HOST_NUMA:
      return is_numa_node(location.id) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
    case CU_MEM_LOCATION_TYPE_NONE:
      return type == CU_MEM_ALLOCATION_TYPE_MANAGED ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
    default:
      return CUDA_ERROR_INVALID_VALUE;
  }
}

void forget_current_pool(const std::shared_ptr<Pool>& pool) {
  if (pool->device() != nullptr && pool->device()->current_pool() == pool) pool->device()->set_current_pool(nullptr);
  const std::lock_guard lock(mutex);
  for (auto& [key, place] : places())
    if (place.current == pool) place.current.reset();
}

TF_API(cuMemGetDefaultMemPool, (CUmemoryPool * out, CUmemLocation* location, CUmemAllocationType type)) {
  return look_up("cuMemGetDefaultMemPool", location, type, out, false);
}
TF_API(cuMemGetMemPool, (CUmemoryPool * out, CUmemLocation* location, CUmemAllocationType type)) {
  return look_up("cuMemGetMemPool", location, type, out, true);
}
TF_API(cuMemSetMemPool, (CUmemLocation * location, CUmemAllocationType type, CUmemoryPool handle)) {
  TF_TRY(enter("cuMemSetMemPool"));
  if (location == nullptr) return CUDA_ERROR_INVALID_VALUE;
  Device* device = nullptr;
  TF_TRY(find_pool_place(*location, type, device));
  const auto pool = pools().share(handle);
  if (!pool || pool->imported) return CUDA_ERROR_INVALID_VALUE;
  if (key_of(pool->properties().location, pool->properties().allocType) != key_of(*location, type))
    return device != nullptr && pool->device() != device ? CUDA_ERROR_INVALID_DEVICE : CUDA_ERROR_INVALID_VALUE;
  if (of_device_memory(*location, type)) {
    device->set_current_pool(pool);
    return CUDA_SUCCESS;
  }
  const std::lock_guard lock(mutex);
  place_at(*location, type, device).current = pool;
  return CUDA_SUCCESS;
}

}  // namespace tensor_fusion::sim::cuda
