// Synchronous memory: cuMemAlloc, pitched and managed memory, frees, and what a program sees as free and total.
#include "guest/limiter/hooks/charge.h"

namespace tensor_fusion::guest::limiter {
namespace {

Holding pointer_holding(std::uint64_t address) {
  Holding holding;
  holding.kind = Kind::pointer;
  holding.key = address;
  return holding;
}

// A pitched row is padded by the driver: this is the widest padding of any driver known, corrected once the pitch is.
constexpr std::uint64_t kWidestPitch = 512;

template <auto Member, class Pointer, class Size>
[[gnu::always_inline]] inline CUresult allocate(Device& device, Pointer* pointer, Size bytes) {
  return charged(
      device, rounded(bytes), [&] { return real<Member>()(pointer, bytes); },
      [&] { return pointer_holding(static_cast<std::uint64_t>(*pointer)); },
      [&] {
        TF_REAL(cuMemFree_v2)(static_cast<CUdeviceptr>(*pointer));
        *pointer = 0;
      });
}

template <auto Member, class Pointer, class Size>
CUresult allocate_pitch(Device& device, Pointer* pointer, Size* pitch, Size width, Size height, unsigned element) {
  std::uint64_t bytes;
  if (__builtin_mul_overflow(rounded(width, kWidestPitch), static_cast<std::uint64_t>(height), &bytes))
    return CUDA_ERROR_OUT_OF_MEMORY;
  bytes = rounded(bytes);
  const CUresult result = charged(
      device, bytes, [&] { return real<Member>()(pointer, pitch, width, height, element); },
      [&] { return pointer_holding(static_cast<std::uint64_t>(*pointer)); },
      [&] { TF_REAL(cuMemFree_v2)(static_cast<CUdeviceptr>(*pointer)); });
  if (result != CUDA_SUCCESS) return result;
  const std::uint64_t exact = rounded(static_cast<std::uint64_t>(*pitch) * height);
  attachment()->holdings.update(Kind::pointer, static_cast<std::uint64_t>(*pointer), [&](Holding& holding) {
    if (holding.bytes > exact) attachment()->ledger.release(device, holding.bytes - exact);
    if (holding.bytes < exact) attachment()->ledger.charge(device, exact - holding.bytes);
    holding.bytes = exact;
  });
  return result;
}

template <class Size>
CUresult show_slice(Device& device, CUresult result, Size* free_bytes, Size* total_bytes) {
  if (result != CUDA_SUCCESS) return result;
  settle_guesses(device);
  attachment()->sharing.settle(*attachment());
  const Ledger::View view = Ledger::view(device);
  if (view.unlimited) return result;
  const std::uint64_t left = view.limit - view.used;
  if (total_bytes != nullptr && *total_bytes > view.limit) *total_bytes = static_cast<Size>(view.limit);
  if (free_bytes != nullptr && *free_bytes > left) *free_bytes = static_cast<Size>(left);
  return result;
}

template <class Size>
CUresult show_total(CUdevice ordinal, CUresult result, Size* bytes) {
  if (result != CUDA_SUCCESS || bytes == nullptr) return result;
  Device* device = device_of(ordinal);
  if (device == nullptr) return result;
  const Ledger::View view = Ledger::view(*device);
  if (!view.unlimited && *bytes > view.limit) *bytes = static_cast<Size>(view.limit);
  return result;
}

}  // namespace

TF_ENTRY(cuMemAlloc, (CUdeviceptr_v1 * pointer, unsigned bytes)) {
  Device* device = current_device();
  if (device == nullptr || pointer == nullptr || bytes == 0) return TF_FORWARD(cuMemAlloc, pointer, bytes);
  return allocate<&Driver::cuMemAlloc>(*device, pointer, bytes);
}
TF_ENTRY(cuMemAlloc_v2, (CUdeviceptr * pointer, std::size_t bytes)) {
  Device* device = current_device();
  if (device == nullptr || pointer == nullptr || bytes == 0) return TF_FORWARD(cuMemAlloc_v2, pointer, bytes);
  return allocate<&Driver::cuMemAlloc_v2>(*device, pointer, bytes);
}
TF_ENTRY(cuMemAllocManaged, (CUdeviceptr * pointer, std::size_t bytes, unsigned flags)) {
  Device* device = current_device();
  if (device == nullptr || pointer == nullptr || bytes == 0)
    return TF_FORWARD(cuMemAllocManaged, pointer, bytes, flags);
  return charged(
      *device, rounded(bytes), [&] { return TF_REAL(cuMemAllocManaged)(pointer, bytes, flags); },
      [&] { return pointer_holding(*pointer); }, [&] { TF_REAL(cuMemFree_v2)(*pointer); });
}
TF_ENTRY(cuMemAllocPitch,
         (CUdeviceptr_v1 * pointer, unsigned* pitch, unsigned width, unsigned height, unsigned element)) {
  Device* device = current_device();
  if (device == nullptr || pointer == nullptr || pitch == nullptr || width == 0 || height == 0)
    return TF_FORWARD(cuMemAllocPitch, pointer, pitch, width, height, element);
  return allocate_pitch<&Driver::cuMemAllocPitch>(*device, pointer, pitch, width, height, element);
}
TF_ENTRY(cuMemAllocPitch_v2,
         (CUdeviceptr * pointer, std::size_t* pitch, std::size_t width, std::size_t height, unsigned element)) {
  Device* device = current_device();
  if (device == nullptr || pointer == nullptr || pitch == nullptr || width == 0 || height == 0)
    return TF_FORWARD(cuMemAllocPitch_v2, pointer, pitch, width, height, element);
  return allocate_pitch<&Driver::cuMemAllocPitch_v2>(*device, pointer, pitch, width, height, element);
}

TF_ENTRY(cuMemFree, (CUdeviceptr_v1 pointer)) {
  return discharged(Kind::pointer, pointer, [&] { return TF_REAL(cuMemFree)(pointer); });
}
TF_ENTRY(cuMemFree_v2, (CUdeviceptr pointer)) {
  return discharged(Kind::pointer, pointer, [&] { return TF_REAL(cuMemFree_v2)(pointer); });
}

TF_ENTRY(cuMemGetInfo, (unsigned* free_bytes, unsigned* total_bytes)) {
  Device* device = current_device();
  if (device == nullptr) return TF_FORWARD(cuMemGetInfo, free_bytes, total_bytes);
  return show_slice(*device, TF_REAL(cuMemGetInfo)(free_bytes, total_bytes), free_bytes, total_bytes);
}
TF_ENTRY(cuMemGetInfo_v2, (std::size_t* free_bytes, std::size_t* total_bytes)) {
  Device* device = current_device();
  if (device == nullptr) return TF_FORWARD(cuMemGetInfo_v2, free_bytes, total_bytes);
  return show_slice(*device, TF_REAL(cuMemGetInfo_v2)(free_bytes, total_bytes), free_bytes, total_bytes);
}
TF_ENTRY(cuDeviceTotalMem, (unsigned* bytes, CUdevice device)) {
  return show_total(device, TF_REAL(cuDeviceTotalMem)(bytes, device), bytes);
}
TF_ENTRY(cuDeviceTotalMem_v2, (std::size_t* bytes, CUdevice device)) {
  return show_total(device, TF_REAL(cuDeviceTotalMem_v2)(bytes, device), bytes);
}

}  // namespace tensor_fusion::guest::limiter
