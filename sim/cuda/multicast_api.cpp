// Entry points of multicast objects. The object itself is a physical allocation without memory of its own: mapped,
// exported and released as others are (vmm_api.cpp).
#include "sim/cuda/driver.h"
#include "sim/cuda/multicast.h"
#include "sim/cuda/narrow_memory.h"
#include "sim/cuda/vmm.h"

namespace tensor_fusion::sim::cuda {
namespace {

bool aligned(std::uint64_t value) { return value % kChunkBytes == 0; }

CUresult check(const CUmulticastObjectProp* properties) {
  if (properties == nullptr || properties->numDevices == 0 || properties->size == 0 || properties->flags != 0)
    return CUDA_ERROR_INVALID_VALUE;
  std::size_t able = 0;
  for (const auto& device : Driver::get().devices()) able += can_multicast(*device) ? 1 : 0;
  if (able == 0) return CUDA_ERROR_NOT_SUPPORTED;
  if (properties->numDevices > device::kMaxMachineDevices) return CUDA_ERROR_INVALID_VALUE;
  if ((properties->handleTypes & ~std::uint64_t{CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR}) != 0)
    return CUDA_ERROR_NOT_SUPPORTED;
  return CUDA_SUCCESS;
}

CUresult find_team(CUmemGenericAllocationHandle handle, std::shared_ptr<PhysicalMemory>& out) {
  out = physicals().share(handle);
  return out && out->team ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

// Kernels and copies that use the object's mappings have ended.
CUresult settle() {
  for (const auto& context : all_contexts()) TF_TRY(context->synchronize());
  return CUDA_SUCCESS;
}

}  // namespace

TF_API(cuMulticastGetGranularity,
       (std::size_t* out, const CUmulticastObjectProp* properties, CUmulticastGranularity_flags option)) {
  TF_TRY(enter("cuMulticastGetGranularity"));
  if (out == nullptr || (option != CU_MULTICAST_GRANULARITY_MINIMUM && option != CU_MULTICAST_GRANULARITY_RECOMMENDED))
    return CUDA_ERROR_INVALID_VALUE;
  TF_TRY(check(properties));
  *out = kChunkBytes;
  return CUDA_SUCCESS;
}

TF_API(cuMulticastCreate, (CUmemGenericAllocationHandle * out, const CUmulticastObjectProp* properties)) {
  TF_TRY(enter("cuMulticastCreate"));
  if (out == nullptr) return CUDA_ERROR_INVALID_VALUE;
  TF_TRY(check(properties));
  if (!aligned(properties->size)) return CUDA_ERROR_INVALID_VALUE;
  auto backing = device::Physical::create(properties->size + kTrailerBytes);
  if (!backing) return CUDA_ERROR_OUT_OF_MEMORY;
  auto team = MulticastTeam::lay(*backing, *properties);
  if (!team) return CUDA_ERROR_OUT_OF_MEMORY;
  *out = add_physical(of_team(std::move(*backing), std::move(team)));
  return CUDA_SUCCESS;
}

TF_API(cuMulticastAddDevice, (CUmemGenericAllocationHandle handle, CUdevice ordinal)) {
  TF_TRY(enter("cuMulticastAddDevice"));
  std::shared_ptr<PhysicalMemory> object;
  TF_TRY(find_team(handle, object));
  Device* device = nullptr;
  TF_TRY(find_device(ordinal, device));
  return can_multicast(*device) ? object->team->add(*device) : CUDA_ERROR_NOT_SUPPORTED;
}

TF_API(cuMulticastBindMem,
       (CUmemGenericAllocationHandle handle, std::size_t offset, CUmemGenericAllocationHandle memory_handle,
        std::size_t memory_offset, std::size_t bytes, unsigned long long flags)) {
  TF_TRY(enter("cuMulticastBindMem"));
  std::shared_ptr<PhysicalMemory> object;
  TF_TRY(find_team(handle, object));
  const auto memory = physicals().share(memory_handle);
  if (!memory || memory->team || flags != 0 || !aligned(offset) || !aligned(memory_offset) || !aligned(bytes) ||
      memory_offset > memory->bytes || bytes > memory->bytes - memory_offset ||
      memory->properties.location.type != CU_MEM_LOCATION_TYPE_DEVICE)
    return CUDA_ERROR_INVALID_VALUE;
  Device* device = nullptr;
  TF_TRY(find_device(memory->properties.location.id, device));
  object->team->await_all();
  TF_TRY(settle());
  return object->team->bind(*device, offset, {memory, memory->memory.fd(), memory_offset, bytes});
}

TF_API(cuMulticastBindAddr, (CUmemGenericAllocationHandle handle, std::size_t offset, CUdeviceptr address,
                             std::size_t bytes, unsigned long long flags)) {
  TF_TRY(enter("cuMulticastBindAddr"));
  std::shared_ptr<PhysicalMemory> object;
  TF_TRY(find_team(handle, object));
  const auto allocation = Driver::get().addresses().find(address);
  if (!allocation || allocation->device == nullptr || flags != 0 || !aligned(offset) || !aligned(address) ||
      !aligned(bytes) || bytes > allocation->base + allocation->extent - address)
    return CUDA_ERROR_INVALID_VALUE;
  TeamMemory memory{allocation, -1, 0, bytes};
  if (allocation->kind == Allocation::Kind::mapped) {
    const auto* mapping = static_cast<const Mapping*>(allocation->keeper.get());
    if (mapping->memory->team) return CUDA_ERROR_INVALID_VALUE;
    memory = {mapping->memory, mapping->memory->memory.fd(), mapping->offset + (address - allocation->base), bytes};
  } else if (allocation->kind == Allocation::Kind::device && !is_narrow(address)) {
    const auto* arena = allocation->device->arena();
    memory.fd = arena->fd();
    memory.offset = address - reinterpret_cast<std::uint64_t>(arena->base());
  } else {
    return CUDA_ERROR_INVALID_VALUE;
  }
  object->team->await_all();
  TF_TRY(settle());
  return object->team->bind(*allocation->device, offset, std::move(memory));
}

TF_API(cuMulticastUnbind,
       (CUmemGenericAllocationHandle handle, CUdevice ordinal, std::size_t offset, std::size_t bytes)) {
  TF_TRY(enter("cuMulticastUnbind"));
  std::shared_ptr<PhysicalMemory> object;
  TF_TRY(find_team(handle, object));
  Device* device = nullptr;
  TF_TRY(find_device(ordinal, device));
  TF_TRY(settle());
  return object->team->unbind(*device, offset, bytes);
}

}  // namespace tensor_fusion::sim::cuda
