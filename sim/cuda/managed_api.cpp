// Hints about managed memory, and what is known of any address. Managed bytes are charged to their device in full and
// stay where they are: hints are checked and remembered, and change nothing else.
#include <cstring>
#include <map>
#include <mutex>

#include "sim/cuda/device.h"
#include "sim/cuda/driver.h"
#include "sim/cuda/pool.h"
#include "sim/cuda/stream.h"

namespace tensor_fusion::sim::cuda {
namespace {

struct Advice {
  int read_mostly = 0;
  CUmemLocation preferred{CU_MEM_LOCATION_TYPE_INVALID, -2}, prefetched{CU_MEM_LOCATION_TYPE_INVALID, -2};
  std::vector<int> accessed_by;
};
std::mutex mutex;
std::map<std::uint64_t, Advice>& advices() {  // by allocation id
  static auto* all = new std::map<std::uint64_t, Advice>;
  return *all;
}

CUresult managed(CUdeviceptr address, std::size_t bytes, std::shared_ptr<Allocation>& allocation) {
  allocation = Driver::get().addresses().find(address);
  if (bytes == 0 || !allocation || allocation->kind != Allocation::Kind::managed) return CUDA_ERROR_INVALID_VALUE;
  return address + bytes <= allocation->base + allocation->extent ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

CUresult check_location(const CUmemLocation& location) {
  switch (location.type) {
    case CU_MEM_LOCATION_TYPE_DEVICE:
      return Driver::get().device(location.id) != nullptr ? CUDA_SUCCESS : CUDA_ERROR_INVALID_DEVICE;
    case CU_MEM_LOCATION_TYPE_HOST:
    case CU_MEM_LOCATION_TYPE_HOST_NUMA:
    case CU_MEM_LOCATION_TYPE_HOST_NUMA_CURRENT:
      return CUDA_SUCCESS;
    default:
      return CUDA_ERROR_INVALID_VALUE;
  }
}

CUmemLocation of_device(CUdevice device) {
  return device == -1 ? CUmemLocation{CU_MEM_LOCATION_TYPE_HOST, 0}
                      : CUmemLocation{CU_MEM_LOCATION_TYPE_DEVICE, device};
}

CUresult prefetch(Flavour flavour, CUdeviceptr address, std::size_t bytes, const CUmemLocation& location,
                  CUstream handle) {
  TF_TRY(enter("cuMemPrefetchAsync"));
  Stream* stream = nullptr;
  TF_TRY(find_work_stream(handle, flavour, stream));
  std::shared_ptr<Allocation> allocation;
  TF_TRY(managed(address, bytes, allocation));
  TF_TRY(check_location(location));
  {
    const std::lock_guard lock(mutex);
    advices()[allocation->id].prefetched = location;
  }
  // The time of the move; the bytes are there already.
  const std::lock_guard lock(stream->mutex());
  if (stream->capturing) return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
  device::Work work;
  work.kind = location.type == CU_MEM_LOCATION_TYPE_DEVICE ? device::WorkKind::h2d : device::WorkKind::d2h;
  work.duration_ns = Driver::get().machine().copy_duration_ns(stream->context().device().engine.id, work.kind, bytes);
  stream->submit_effect_free(work);
  return CUDA_SUCCESS;
}

CUresult prefetch_many(Flavour flavour, const CUdeviceptr* addresses, const std::size_t* bytes, std::size_t count,
                       const CUmemLocation* locations, const std::size_t* starts, std::size_t location_count,
                       CUstream stream) {
  TF_TRY(check_ready());
  if (addresses == nullptr || bytes == nullptr || locations == nullptr || starts == nullptr || count == 0 ||
      location_count == 0 || location_count > count || starts[0] != 0)
    return CUDA_ERROR_INVALID_VALUE;
  std::size_t which = 0;
  for (std::size_t i = 0; i < count; ++i) {
    while (which + 1 < location_count && starts[which + 1] <= i) ++which;
    TF_TRY(prefetch(flavour, addresses[i], bytes[i], locations[which], stream));
  }
  return CUDA_SUCCESS;
}

CUresult advise(CUdeviceptr address, std::size_t bytes, CUmem_advise what, const CUmemLocation& location) {
  TF_TRY(enter("cuMemAdvise"));
  std::shared_ptr<Allocation> allocation;
  TF_TRY(managed(address, bytes, allocation));
  if (what != CU_MEM_ADVISE_SET_READ_MOSTLY && what != CU_MEM_ADVISE_UNSET_READ_MOSTLY &&
      what != CU_MEM_ADVISE_UNSET_PREFERRED_LOCATION)
    TF_TRY(check_location(location));
  const std::lock_guard lock(mutex);
  Advice& advice = advices()[allocation->id];
  const int ordinal = location.type == CU_MEM_LOCATION_TYPE_DEVICE ? location.id : -1;
  switch (what) {
    case CU_MEM_ADVISE_SET_READ_MOSTLY:
      advice.read_mostly = 1;
      return CUDA_SUCCESS;
    case CU_MEM_ADVISE_UNSET_READ_MOSTLY:
      advice.read_mostly = 0;
      return CUDA_SUCCESS;
    case CU_MEM_ADVISE_SET_PREFERRED_LOCATION:
      advice.preferred = location;
      return CUDA_SUCCESS;
    case CU_MEM_ADVISE_UNSET_PREFERRED_LOCATION:
      advice.preferred = {CU_MEM_LOCATION_TYPE_INVALID, -2};
      return CUDA_SUCCESS;
    case CU_MEM_ADVISE_SET_ACCESSED_BY:
      std::erase(advice.accessed_by, ordinal);
      advice.accessed_by.push_back(ordinal);
      return CUDA_SUCCESS;
    case CU_MEM_ADVISE_UNSET_ACCESSED_BY:
      std::erase(advice.accessed_by, ordinal);
      return CUDA_SUCCESS;
  }
  return CUDA_ERROR_INVALID_VALUE;
}

int legacy_id(const CUmemLocation& location) {
  return location.type == CU_MEM_LOCATION_TYPE_DEVICE    ? location.id
         : location.type == CU_MEM_LOCATION_TYPE_INVALID ? -2
                                                         : -1;
}

CUresult range_attribute(void* out, std::size_t out_bytes, CUmem_range_attribute name, CUdeviceptr address,
                         std::size_t bytes) {
  TF_TRY(enter("cuMemRangeGetAttribute"));
  std::shared_ptr<Allocation> allocation;
  TF_TRY(managed(address, bytes, allocation));
  if (out == nullptr || out_bytes < 4 || out_bytes % 4 != 0) return CUDA_ERROR_INVALID_VALUE;
  const std::lock_guard lock(mutex);
  const Advice& advice = advices()[allocation->id];
  auto* words = static_cast<int*>(out);
  switch (name) {
    case CU_MEM_RANGE_ATTRIBUTE_READ_MOSTLY:
      *words = advice.read_mostly;
      break;
    case CU_MEM_RANGE_ATTRIBUTE_PREFERRED_LOCATION:
      *words = legacy_id(advice.preferred);
      break;
    case CU_MEM_RANGE_ATTRIBUTE_ACCESSED_BY:
      for (std::size_t i = 0; i < out_bytes / 4; ++i)
        words[i] = i < advice.accessed_by.size() ? advice.accessed_by[i] : -2;
      break;
    case CU_MEM_RANGE_ATTRIBUTE_LAST_PREFETCH_LOCATION:
      *words = legacy_id(advice.prefetched);
      break;
    case CU_MEM_RANGE_ATTRIBUTE_PREFERRED_LOCATION_TYPE:
      *words = advice.preferred.type;
      break;
    case CU_MEM_RANGE_ATTRIBUTE_PREFERRED_LOCATION_ID:
      *words = advice.preferred.id;
      break;
    case CU_MEM_RANGE_ATTRIBUTE_LAST_PREFETCH_LOCATION_TYPE:
      *words = advice.prefetched.type;
      break;
    case CU_MEM_RANGE_ATTRIBUTE_LAST_PREFETCH_LOCATION_ID:
      *words = advice.prefetched.id;
      break;
    default:
      return CUDA_ERROR_INVALID_VALUE;
  }
  return CUDA_SUCCESS;
}

}  // namespace

TF_STREAM_API(cuMemPrefetchAsync, (CUdeviceptr address, std::size_t bytes, CUdevice device, CUstream stream),
              { return prefetch(kFlavour, address, bytes, of_device(device), stream); })
TF_STREAM_API(cuMemPrefetchAsync_v2,
              (CUdeviceptr address, std::size_t bytes, CUmemLocation location, unsigned flags, CUstream stream),
              { return flags != 0 ? CUDA_ERROR_INVALID_VALUE : prefetch(kFlavour, address, bytes, location, stream); })
TF_STREAM_API(cuMemPrefetchBatchAsync,
              (CUdeviceptr * addresses, std::size_t* bytes, std::size_t count, CUmemLocation* locations,
               std::size_t* starts, std::size_t location_count, unsigned long long, CUstream stream),
              { return prefetch_many(kFlavour, addresses, bytes, count, locations, starts, location_count, stream); })
TF_STREAM_API(cuMemDiscardBatchAsync,
              (CUdeviceptr * addresses, std::size_t* bytes, std::size_t count, unsigned long long, CUstream handle), {
                TF_TRY(enter("cuMemDiscardBatchAsync"));
                Stream* stream = nullptr;
                TF_TRY(find_work_stream(handle, kFlavour, stream));
                if (addresses == nullptr || bytes == nullptr || count == 0) return CUDA_ERROR_INVALID_VALUE;
                for (std::size_t i = 0; i < count; ++i) {
                  std::shared_ptr<Allocation> allocation;
                  TF_TRY(managed(addresses[i], bytes[i], allocation));
                }
                return CUDA_SUCCESS;  // allowed to keep the bytes
              })
TF_STREAM_API(cuMemDiscardAndPrefetchBatchAsync,
              (CUdeviceptr * addresses, std::size_t* bytes, std::size_t count, CUmemLocation* locations,
               std::size_t* starts, std::size_t location_count, unsigned long long, CUstream stream),
              { return prefetch_many(kFlavour, addresses, bytes, count, locations, starts, location_count, stream); })
TF_API(cuMemAdvise, (CUdeviceptr address, std::size_t bytes, CUmem_advise what, CUdevice device)) {
  return advise(address, bytes, what, of_device(device));
}
TF_API(cuMemAdvise_v2, (CUdeviceptr address, std::size_t bytes, CUmem_advise what, CUmemLocation location)) {
  return advise(address, bytes, what, location);
}
TF_API(cuMemRangeGetAttribute,
       (void* out, std::size_t out_bytes, CUmem_range_attribute name, CUdeviceptr address, std::size_t bytes)) {
  return range_attribute(out, out_bytes, name, address, bytes);
}
TF_API(cuMemRangeGetAttributes, (void** out, std::size_t* out_bytes, CUmem_range_attribute* names, std::size_t count,
                                 CUdeviceptr address, std::size_t bytes)) {
  if (out == nullptr || out_bytes == nullptr || names == nullptr || count == 0) return CUDA_ERROR_INVALID_VALUE;
  for (std::size_t i = 0; i < count; ++i) TF_TRY(range_attribute(out[i], out_bytes[i], names[i], address, bytes));
  return CUDA_SUCCESS;
}
TF_STREAM_API(cuStreamAttachMemAsync, (CUstream handle, CUdeviceptr address, std::size_t length, unsigned flags), {
  TF_TRY(enter("cuStreamAttachMemAsync"));
  Stream* stream = nullptr;
  TF_TRY(find_stream(handle, kFlavour, stream));
  if (flags != CU_MEM_ATTACH_GLOBAL && flags != CU_MEM_ATTACH_HOST && flags != CU_MEM_ATTACH_SINGLE)
    return CUDA_ERROR_INVALID_VALUE;
  std::shared_ptr<Allocation> allocation;
  return managed(address, length != 0 ? length : 1, allocation);
})

}  // namespace tensor_fusion::sim::cuda
