// Entry points of virtual memory management.
#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <vector>

#include "sim/cuda/driver.h"
#include "sim/cuda/stream.h"
#include "sim/cuda/vmm.h"

namespace tensor_fusion::sim::cuda {
namespace {

std::mutex mutex;
std::map<std::uint64_t, std::uint64_t>& reservations() {  // address → bytes
  static auto* all = new std::map<std::uint64_t, std::uint64_t>;
  return *all;
}

bool aligned(std::uint64_t value) { return value % kChunkBytes == 0; }

CUresult check_properties(const CUmemAllocationProp* properties) {
  if (properties == nullptr || properties->type != CU_MEM_ALLOCATION_TYPE_PINNED) return CUDA_ERROR_INVALID_VALUE;
  switch (properties->location.type) {
    case CU_MEM_LOCATION_TYPE_DEVICE:
      if (Driver::get().device(properties->location.id) == nullptr) return CUDA_ERROR_INVALID_DEVICE;
      break;
    case CU_MEM_LOCATION_TYPE_HOST:
    case CU_MEM_LOCATION_TYPE_HOST_NUMA:
    case CU_MEM_LOCATION_TYPE_HOST_NUMA_CURRENT:
      break;
    default:
      return CUDA_ERROR_INVALID_VALUE;
  }
  const int types = properties->requestedHandleTypes;
  if ((types & ~CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR) != 0)
    return refuse_once("cuMemCreate for other handles than descriptors");
  return CUDA_SUCCESS;
}

bool reserved(std::uint64_t address, std::uint64_t bytes) {
  const auto next = reservations().upper_bound(address);
  if (next == reservations().begin()) return false;
  const auto& [base, size] = *std::prev(next);
  return address - base <= size && bytes <= size - (address - base);
}

// All mappings that fill [address, address + bytes), or nothing when there is a gap or one sticks out.
std::vector<std::shared_ptr<Allocation>> mappings_in(std::uint64_t address, std::uint64_t bytes) {
  std::vector<std::shared_ptr<Allocation>> found;
  for (std::uint64_t at = address; at < address + bytes;) {
    auto allocation = Driver::get().addresses().exact(at);
    if (!allocation || allocation->kind != Allocation::Kind::mapped) return {};
    at += allocation->extent;
    if (at > address + bytes) return {};
    found.push_back(std::move(allocation));
  }
  return found;
}

}  // namespace

HandleTable<PhysicalMemory>& physicals() {
  static auto* table = new HandleTable<PhysicalMemory>;
  return *table;
}

CUmemGenericAllocationHandle add_physical(const std::shared_ptr<PhysicalMemory>& memory) {
  return memory->handle_value = physicals().insert(memory);
}

std::shared_ptr<PhysicalMemory> of_team(device::Physical backing, std::shared_ptr<MulticastTeam> team) {
  CUmemAllocationProp properties{};
  properties.requestedHandleTypes = static_cast<CUmemAllocationHandleType>(team->properties().handleTypes);
  auto object = std::make_shared<PhysicalMemory>(std::move(backing), properties, team->properties().size);
  object->team = std::move(team);
  return object;
}

std::shared_ptr<PhysicalMemory> import_physical(int fd) {
  auto backing = device::Physical::adopt(fd);
  if (!backing || backing->size() <= kTrailerBytes) return nullptr;
  if (auto team = MulticastTeam::find(*backing)) return of_team(std::move(*backing), std::move(team));
  const std::uint64_t bytes = backing->size() - kTrailerBytes;
  CUmemAllocationProp properties{};
  if (::pread(backing->fd(), &properties, sizeof properties, static_cast<off_t>(bytes)) != sizeof properties ||
      properties.type != CU_MEM_ALLOCATION_TYPE_PINNED || !aligned(bytes))
    return nullptr;
  auto memory = std::make_shared<PhysicalMemory>(std::move(*backing), properties, bytes);
  memory->travelled = true;
  keep_paid(memory);
  return memory;
}

TF_API(cuMemGetAllocationGranularity,
       (std::size_t* out, const CUmemAllocationProp* properties, CUmemAllocationGranularity_flags option)) {
  TF_TRY(enter("cuMemGetAllocationGranularity"));
  if (out == nullptr || (option != CU_MEM_ALLOC_GRANULARITY_MINIMUM && option != CU_MEM_ALLOC_GRANULARITY_RECOMMENDED))
    return CUDA_ERROR_INVALID_VALUE;
  TF_TRY(check_properties(properties));
  *out = kChunkBytes;
  return CUDA_SUCCESS;
}

TF_API(cuMemAddressReserve,
       (CUdeviceptr * out, std::size_t bytes, std::size_t alignment, CUdeviceptr wish, unsigned long long flags)) {
  TF_TRY(enter("cuMemAddressReserve"));
  if (out == nullptr || bytes == 0 || !aligned(bytes) || flags != 0 || (alignment & (alignment - 1)) != 0)
    return CUDA_ERROR_INVALID_VALUE;
  const auto address =
      device::reserve_addresses(bytes, std::max<std::size_t>(alignment, kChunkBytes), reinterpret_cast<void*>(wish));
  if (!address) return CUDA_ERROR_OUT_OF_MEMORY;
  *out = reinterpret_cast<std::uint64_t>(*address);
  const std::lock_guard lock(mutex);
  reservations()[*out] = bytes;
  return CUDA_SUCCESS;
}

TF_API(cuMemAddressFree, (CUdeviceptr address, std::size_t bytes)) {
  TF_TRY(enter("cuMemAddressFree"));
  const std::lock_guard lock(mutex);
  const auto found = reservations().find(address);
  if (found == reservations().end() || found->second != bytes || Driver::get().addresses().overlaps(address, bytes))
    return CUDA_ERROR_INVALID_VALUE;
  reservations().erase(found);
  device::free_addresses(reinterpret_cast<void*>(address), bytes);
  return CUDA_SUCCESS;
}

TF_API(cuMemCreate, (CUmemGenericAllocationHandle * out, std::size_t bytes, const CUmemAllocationProp* properties,
                     unsigned long long flags)) {
  TF_TRY(enter("cuMemCreate", "alloc"));
  TF_TRY(check_properties(properties));
  if (out == nullptr || bytes == 0 || !aligned(bytes) || flags != 0) return CUDA_ERROR_INVALID_VALUE;
  Device* device = properties->location.type == CU_MEM_LOCATION_TYPE_DEVICE
                       ? Driver::get().device(properties->location.id)
                       : nullptr;
  if (device != nullptr) TF_TRY(device->charge(bytes));
  auto backing = device::Physical::create(bytes + kTrailerBytes);
  if (!backing ||
      ::pwrite(backing->fd(), properties, sizeof *properties, static_cast<off_t>(bytes)) != sizeof *properties) {
    if (device != nullptr) device->uncharge(bytes);
    return CUDA_ERROR_OUT_OF_MEMORY;
  }
  const auto memory = std::make_shared<PhysicalMemory>(std::move(*backing), *properties, bytes);
  if (device != nullptr) {
    memory->domain = device->engine.memory_domain;
    memory->paid_here = true;
    if (!name_payer(*memory)) return CUDA_ERROR_OUT_OF_MEMORY;
  }
  *out = add_physical(memory);
  return CUDA_SUCCESS;
}

TF_API(cuMemRelease, (CUmemGenericAllocationHandle handle)) {
  TF_TRY(enter("cuMemRelease"));
  const auto memory = physicals().share(handle);
  if (!memory) return CUDA_ERROR_INVALID_VALUE;
  const std::lock_guard lock(mutex);
  if (--memory->handles == 0) physicals().remove(handle);
  return CUDA_SUCCESS;
}

TF_API(cuMemMap, (CUdeviceptr address, std::size_t bytes, std::size_t offset, CUmemGenericAllocationHandle handle,
                  unsigned long long flags)) {
  TF_TRY(enter("cuMemMap"));
  const auto memory = physicals().share(handle);
  if (!memory || flags != 0 || bytes == 0 || !aligned(address) || !aligned(bytes) || !aligned(offset) ||
      offset > memory->bytes || bytes > memory->bytes - offset)
    return CUDA_ERROR_INVALID_VALUE;
  if (memory->team) memory->team->await_all();
  const std::lock_guard lock(mutex);
  if (!reserved(address, bytes)) return CUDA_ERROR_INVALID_VALUE;
  auto mapping = std::make_shared<Mapping>();
  mapping->memory = memory;
  mapping->offset = offset;
  auto allocation = std::make_shared<Allocation>();
  allocation->kind = Allocation::Kind::mapped;
  allocation->base = address;
  allocation->size = allocation->extent = bytes;
  const auto& location = memory->properties.location;
  allocation->device = location.type == CU_MEM_LOCATION_TYPE_DEVICE ? Driver::get().device(location.id) : nullptr;
  allocation->id = Driver::get().addresses().next_id();
  allocation->readable = allocation->writable = false;
  allocation->keeper = std::move(mapping);
  if (!Driver::get().addresses().add(allocation)) return CUDA_ERROR_INVALID_VALUE;
  if (!device::map_at(reinterpret_cast<void*>(address), bytes, memory->memory.fd(), offset)) {
    Driver::get().addresses().remove(address);
    return CUDA_ERROR_OUT_OF_MEMORY;
  }
  if (memory->team) memory->team->show(allocation, offset);
  return CUDA_SUCCESS;
}

TF_API(cuMemUnmap, (CUdeviceptr address, std::size_t bytes)) {
  TF_TRY(enter("cuMemUnmap"));
  const auto mapped = mappings_in(address, bytes);
  if (bytes == 0 || mapped.empty()) return CUDA_ERROR_INVALID_VALUE;
  for (const auto& context : all_contexts()) TF_TRY(context->synchronize());
  const std::lock_guard lock(mutex);
  for (const auto& allocation : mapped) {
    if (!Driver::get().addresses().remove(allocation->base)) continue;
    (void)device::unmap_at(reinterpret_cast<void*>(allocation->base), allocation->extent);
    allocation->keeper.reset();
  }
  return CUDA_SUCCESS;
}

TF_API(cuMemSetAccess,
       (CUdeviceptr address, std::size_t bytes, const CUmemAccessDesc* descriptions, std::size_t count)) {
  TF_TRY(enter("cuMemSetAccess"));
  const auto mapped = mappings_in(address, bytes);
  if (bytes == 0 || mapped.empty() || descriptions == nullptr || count == 0) return CUDA_ERROR_INVALID_VALUE;
  for (std::size_t i = 0; i < count; ++i) {
    const auto& d = descriptions[i];
    if (d.flags != CU_MEM_ACCESS_FLAGS_PROT_NONE && d.flags != CU_MEM_ACCESS_FLAGS_PROT_READ &&
        d.flags != CU_MEM_ACCESS_FLAGS_PROT_READWRITE)
      return CUDA_ERROR_INVALID_VALUE;
    if (d.location.type == CU_MEM_LOCATION_TYPE_DEVICE && Driver::get().device(d.location.id) == nullptr)
      return CUDA_ERROR_INVALID_DEVICE;
    if (d.location.type == CU_MEM_LOCATION_TYPE_INVALID) return CUDA_ERROR_INVALID_VALUE;
  }
  const std::lock_guard lock(mutex);
  for (const auto& allocation : mapped) {
    auto& mapping = *static_cast<Mapping*>(allocation->keeper.get());
    int most = CU_MEM_ACCESS_FLAGS_PROT_NONE;
    {
      const std::lock_guard mapping_lock(mapping.mutex);
      for (std::size_t i = 0; i < count; ++i) {
        const auto& d = descriptions[i];
        if (d.location.type == CU_MEM_LOCATION_TYPE_DEVICE)
          mapping.access[d.location.id] = d.flags;
        else
          mapping.host_access[d.location.type] = d.flags;
      }
      for (const auto& [device, flags] : mapping.access) most = std::max<int>(most, flags);
      for (const auto& [type, flags] : mapping.host_access) most = std::max<int>(most, flags);
    }
    allocation->readable = most != CU_MEM_ACCESS_FLAGS_PROT_NONE;
    allocation->writable = most == CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
    const auto access = !allocation->readable  ? device::Access::none
                        : allocation->writable ? device::Access::read_write
                                               : device::Access::read;
    if (!device::protect(reinterpret_cast<void*>(allocation->base), allocation->extent, access))
      return CUDA_ERROR_UNKNOWN;
  }
  return CUDA_SUCCESS;
}

TF_API(cuMemGetAccess, (unsigned long long* out, const CUmemLocation* location, CUdeviceptr address)) {
  TF_TRY(enter("cuMemGetAccess"));
  const auto allocation = Driver::get().addresses().find(address);
  if (out == nullptr || location == nullptr || !allocation || allocation->kind != Allocation::Kind::mapped)
    return CUDA_ERROR_INVALID_VALUE;
  auto& mapping = *static_cast<Mapping*>(allocation->keeper.get());
  if (location->type == CU_MEM_LOCATION_TYPE_DEVICE) {
    *out = static_cast<unsigned long long>(mapping.allowed(location->id));
  } else {
    const std::lock_guard lock(mapping.mutex);
    const auto found = mapping.host_access.find(location->type);
    *out = found != mapping.host_access.end() ? static_cast<unsigned long long>(found->second) : 0;
  }
  return CUDA_SUCCESS;
}

TF_API(cuMemExportToShareableHandle,
       (void* out, CUmemGenericAllocationHandle handle, CUmemAllocationHandleType type, unsigned long long flags)) {
  TF_TRY(enter("cuMemExportToShareableHandle"));
  const auto memory = physicals().share(handle);
  if (out == nullptr || flags != 0 || !memory) return CUDA_ERROR_INVALID_VALUE;
  if (type != CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR || (memory->properties.requestedHandleTypes & type) == 0)
    return CUDA_ERROR_NOT_SUPPORTED;
  memory->travelled = true;  // before anybody has it
  const int copy = memory->team ? ::dup(memory->memory.fd()) : export_descriptor(memory->memory);
  if (copy < 0) return CUDA_ERROR_OPERATING_SYSTEM;
  *static_cast<int*>(out) = copy;
  return CUDA_SUCCESS;
}

TF_API(cuMemImportFromShareableHandle,
       (CUmemGenericAllocationHandle * out, void* os_handle, CUmemAllocationHandleType type)) {
  TF_TRY(enter("cuMemImportFromShareableHandle"));
  if (out == nullptr || type != CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR) return CUDA_ERROR_INVALID_VALUE;
  const int fd = ::fcntl(static_cast<int>(reinterpret_cast<std::intptr_t>(os_handle)), F_DUPFD_CLOEXEC, 0);
  if (fd < 0) return CUDA_ERROR_INVALID_VALUE;
  const auto memory = import_physical(fd);
  if (!memory) return CUDA_ERROR_INVALID_VALUE;
  *out = add_physical(memory);
  return CUDA_SUCCESS;
}

TF_API(cuMemGetAllocationPropertiesFromHandle, (CUmemAllocationProp * out, CUmemGenericAllocationHandle handle)) {
  TF_TRY(enter("cuMemGetAllocationPropertiesFromHandle"));
  const auto memory = physicals().share(handle);
  if (out == nullptr || !memory || memory->team) return CUDA_ERROR_INVALID_VALUE;
  *out = memory->properties;
  return CUDA_SUCCESS;
}

TF_API(cuMemRetainAllocationHandle, (CUmemGenericAllocationHandle * out, void* address)) {
  TF_TRY(enter("cuMemRetainAllocationHandle"));
  const auto allocation = Driver::get().addresses().find(reinterpret_cast<std::uint64_t>(address));
  if (out == nullptr || !allocation || allocation->kind != Allocation::Kind::mapped) return CUDA_ERROR_INVALID_VALUE;
  const auto memory = static_cast<Mapping*>(allocation->keeper.get())->memory;
  const std::lock_guard lock(mutex);
  if (physicals().find(memory->handle_value) == nullptr) {  // released before, alive by its mapping: a new handle
    memory->handle_value = physicals().insert(memory);
    memory->handles = 0;
  }
  ++memory->handles;
  *out = memory->handle_value;
  return CUDA_SUCCESS;
}

}  // namespace tensor_fusion::sim::cuda
