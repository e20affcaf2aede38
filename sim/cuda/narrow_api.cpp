// Entry points from before CUDA 3.2, with addresses and sizes of 32 bits: memory of their own (narrow_memory.h), and
// everything else as their successors do it.
#include <algorithm>

#include "sim/cuda/capture.h"
#include "sim/cuda/device.h"
#include "sim/cuda/driver.h"
#include "sim/cuda/narrow_memory.h"

extern "C" {
using namespace tensor_fusion::cuda;
CUresult cuMemFree_v2(CUdeviceptr);
CUresult cuMemGetAddressRange_v2(CUdeviceptr*, std::size_t*, CUdeviceptr);
CUresult cuMemcpyHtoD_v2(CUdeviceptr, const void*, std::size_t);
CUresult cuMemcpyDtoH_v2(void*, CUdeviceptr, std::size_t);
CUresult cuMemcpyDtoD_v2(CUdeviceptr, CUdeviceptr, std::size_t);
CUresult cuMemcpyDtoA_v2(CUarray, std::size_t, CUdeviceptr, std::size_t);
CUresult cuMemcpyAtoD_v2(CUdeviceptr, CUarray, std::size_t, std::size_t);
CUresult cuMemcpyHtoA_v2(CUarray, std::size_t, const void*, std::size_t);
CUresult cuMemcpyAtoH_v2(void*, CUarray, std::size_t, std::size_t);
CUresult cuMemcpyAtoA_v2(CUarray, std::size_t, CUarray, std::size_t, std::size_t);
CUresult cuMemcpyHtoDAsync_v2(CUdeviceptr, const void*, std::size_t, CUstream);
CUresult cuMemcpyDtoHAsync_v2(void*, CUdeviceptr, std::size_t, CUstream);
CUresult cuMemcpyDtoDAsync_v2(CUdeviceptr, CUdeviceptr, std::size_t, CUstream);
CUresult cuMemcpyHtoAAsync_v2(CUarray, std::size_t, const void*, std::size_t, CUstream);
CUresult cuMemcpyAtoHAsync_v2(void*, CUarray, std::size_t, std::size_t, CUstream);
CUresult cuMemcpy2D_v2(const CUDA_MEMCPY2D*);
CUresult cuMemcpy2DUnaligned_v2(const CUDA_MEMCPY2D*);
CUresult cuMemcpy3D_v2(const CUDA_MEMCPY3D*);
CUresult cuMemcpy2DAsync_v2(const CUDA_MEMCPY2D*, CUstream);
CUresult cuMemcpy3DAsync_v2(const CUDA_MEMCPY3D*, CUstream);
CUresult cuMemsetD8_v2(CUdeviceptr, unsigned char, std::size_t);
CUresult cuMemsetD16_v2(CUdeviceptr, unsigned short, std::size_t);
CUresult cuMemsetD32_v2(CUdeviceptr, unsigned, std::size_t);
CUresult cuMemsetD2D8_v2(CUdeviceptr, std::size_t, unsigned char, std::size_t, std::size_t);
CUresult cuMemsetD2D16_v2(CUdeviceptr, std::size_t, unsigned short, std::size_t, std::size_t);
CUresult cuMemsetD2D32_v2(CUdeviceptr, std::size_t, unsigned, std::size_t, std::size_t);
}

namespace tensor_fusion::sim::cuda {
namespace {

constexpr unsigned kPitchUnit = 512;

struct Copy2D {
  unsigned srcXInBytes, srcY;
  CUmemorytype srcMemoryType;
  const void* srcHost;
  CUdeviceptr_v1 srcDevice;
  CUarray srcArray;
  unsigned srcPitch, dstXInBytes, dstY;
  CUmemorytype dstMemoryType;
  void* dstHost;
  CUdeviceptr_v1 dstDevice;
  CUarray dstArray;
  unsigned dstPitch, WidthInBytes, Height;
};
struct Copy3D {
  unsigned srcXInBytes, srcY, srcZ, srcLOD;
  CUmemorytype srcMemoryType;
  const void* srcHost;
  CUdeviceptr_v1 srcDevice;
  CUarray srcArray;
  void* reserved0;
  unsigned srcPitch, srcHeight, dstXInBytes, dstY, dstZ, dstLOD;
  CUmemorytype dstMemoryType;
  void* dstHost;
  CUdeviceptr_v1 dstDevice;
  CUarray dstArray;
  void* reserved1;
  unsigned dstPitch, dstHeight, WidthInBytes, Height, Depth;
};
static_assert(sizeof(Copy2D) == 96 && sizeof(Copy3D) == 144);

// What both kinds have, in the wide form of the kind.
template <typename Wide, typename Narrow>
Wide widened(const Narrow& n) {
  Wide w{};
  w.srcXInBytes = n.srcXInBytes, w.srcY = n.srcY, w.srcMemoryType = n.srcMemoryType, w.srcHost = n.srcHost;
  w.srcDevice = n.srcDevice, w.srcArray = n.srcArray, w.srcPitch = n.srcPitch;
  w.dstXInBytes = n.dstXInBytes, w.dstY = n.dstY, w.dstMemoryType = n.dstMemoryType, w.dstHost = n.dstHost;
  w.dstDevice = n.dstDevice, w.dstArray = n.dstArray, w.dstPitch = n.dstPitch;
  w.WidthInBytes = n.WidthInBytes, w.Height = n.Height;
  if constexpr (std::is_same_v<Wide, CUDA_MEMCPY3D>) {
    w.srcZ = n.srcZ, w.srcLOD = n.srcLOD, w.srcHeight = n.srcHeight;
    w.dstZ = n.dstZ, w.dstLOD = n.dstLOD, w.dstHeight = n.dstHeight, w.Depth = n.Depth;
  }
  return w;
}

template <typename Wide, typename Narrow, typename... Rest>
CUresult copy(CUresult (*call)(const Wide*, Rest...), const Narrow* narrow, Rest... rest) {
  if (narrow == nullptr) return call(nullptr, rest...);
  const Wide wide = widened<Wide>(*narrow);
  return call(&wide, rest...);
}

}  // namespace

TF_API(cuMemAlloc, (CUdeviceptr_v1 * out, unsigned bytes)) {
  Context* context = nullptr;
  TF_TRY(enter("cuMemAlloc", "alloc", context));
  if (out == nullptr || bytes == 0) return CUDA_ERROR_INVALID_VALUE;
  TF_TRY(check_capture_unsafe());
  return allocate_narrow(*context, bytes, *out);
}
TF_API(cuMemAllocPitch, (CUdeviceptr_v1 * out, unsigned* pitch, unsigned width, unsigned height, unsigned element)) {
  Context* context = nullptr;
  TF_TRY(enter("cuMemAllocPitch", "alloc", context));
  if (out == nullptr || pitch == nullptr || width == 0 || height == 0 ||
      (element != 4 && element != 8 && element != 16))
    return CUDA_ERROR_INVALID_VALUE;
  TF_TRY(check_capture_unsafe());
  const std::uint64_t row = round_up(width, kPitchUnit);
  if (row > UINT32_MAX || row * height > UINT32_MAX) return CUDA_ERROR_OUT_OF_MEMORY;
  TF_TRY(allocate_narrow(*context, row * height, *out));
  *pitch = static_cast<unsigned>(row);
  return CUDA_SUCCESS;
}
TF_API(cuMemFree, (CUdeviceptr_v1 address)) { return cuMemFree_v2(address); }
TF_API(cuMemGetAddressRange, (CUdeviceptr_v1 * base, unsigned* bytes, CUdeviceptr_v1 address)) {
  CUdeviceptr wide_base = 0;
  std::size_t wide_bytes = 0;
  TF_TRY(cuMemGetAddressRange_v2(&wide_base, &wide_bytes, address));
  if (base != nullptr) *base = static_cast<CUdeviceptr_v1>(wide_base);
  if (bytes != nullptr) *bytes = static_cast<unsigned>(std::min<std::size_t>(wide_bytes, UINT32_MAX));
  return CUDA_SUCCESS;
}

TF_API(cuMemcpyHtoD, (CUdeviceptr_v1 to, const void* from, unsigned bytes)) { return cuMemcpyHtoD_v2(to, from, bytes); }
TF_API(cuMemcpyDtoH, (void* to, CUdeviceptr_v1 from, unsigned bytes)) { return cuMemcpyDtoH_v2(to, from, bytes); }
TF_API(cuMemcpyDtoD, (CUdeviceptr_v1 to, CUdeviceptr_v1 from, unsigned bytes)) {
  return cuMemcpyDtoD_v2(to, from, bytes);
}
TF_API(cuMemcpyDtoA, (CUarray to, unsigned at, CUdeviceptr_v1 from, unsigned bytes)) {
  return cuMemcpyDtoA_v2(to, at, from, bytes);
}
TF_API(cuMemcpyAtoD, (CUdeviceptr_v1 to, CUarray from, unsigned at, unsigned bytes)) {
  return cuMemcpyAtoD_v2(to, from, at, bytes);
}
TF_API(cuMemcpyHtoA, (CUarray to, unsigned at, const void* from, unsigned bytes)) {
  return cuMemcpyHtoA_v2(to, at, from, bytes);
}
TF_API(cuMemcpyAtoH, (void* to, CUarray from, unsigned at, unsigned bytes)) {
  return cuMemcpyAtoH_v2(to, from, at, bytes);
}
TF_API(cuMemcpyAtoA, (CUarray to, unsigned to_at, CUarray from, unsigned from_at, unsigned bytes)) {
  return cuMemcpyAtoA_v2(to, to_at, from, from_at, bytes);
}
TF_API(cuMemcpyHtoDAsync, (CUdeviceptr_v1 to, const void* from, unsigned bytes, CUstream stream)) {
  return cuMemcpyHtoDAsync_v2(to, from, bytes, stream);
}
TF_API(cuMemcpyDtoHAsync, (void* to, CUdeviceptr_v1 from, unsigned bytes, CUstream stream)) {
  return cuMemcpyDtoHAsync_v2(to, from, bytes, stream);
}
TF_API(cuMemcpyDtoDAsync, (CUdeviceptr_v1 to, CUdeviceptr_v1 from, unsigned bytes, CUstream stream)) {
  return cuMemcpyDtoDAsync_v2(to, from, bytes, stream);
}
TF_API(cuMemcpyHtoAAsync, (CUarray to, unsigned at, const void* from, unsigned bytes, CUstream stream)) {
  return cuMemcpyHtoAAsync_v2(to, at, from, bytes, stream);
}
TF_API(cuMemcpyAtoHAsync, (void* to, CUarray from, unsigned at, unsigned bytes, CUstream stream)) {
  return cuMemcpyAtoHAsync_v2(to, from, at, bytes, stream);
}
TF_API(cuMemcpy2D, (const Copy2D* asked)) { return copy(cuMemcpy2D_v2, asked); }
TF_API(cuMemcpy2DUnaligned, (const Copy2D* asked)) { return copy(cuMemcpy2DUnaligned_v2, asked); }
TF_API(cuMemcpy3D, (const Copy3D* asked)) { return copy(cuMemcpy3D_v2, asked); }
TF_API(cuMemcpy2DAsync, (const Copy2D* asked, CUstream stream)) { return copy(cuMemcpy2DAsync_v2, asked, stream); }
TF_API(cuMemcpy3DAsync, (const Copy3D* asked, CUstream stream)) { return copy(cuMemcpy3DAsync_v2, asked, stream); }

#define TF_NARROW_MEMSET(bits, type)                                                                                 \
  TF_API(cuMemsetD##bits, (CUdeviceptr_v1 address, type value, unsigned count)) {                                    \
    return cuMemsetD##bits##_v2(address, value, count);                                                              \
  }                                                                                                                  \
  TF_API(cuMemsetD2D##bits, (CUdeviceptr_v1 address, unsigned pitch, type value, unsigned width, unsigned height)) { \
    return cuMemsetD2D##bits##_v2(address, pitch, value, width, height);                                             \
  }
TF_NARROW_MEMSET(8, unsigned char)
TF_NARROW_MEMSET(16, unsigned short)
TF_NARROW_MEMSET(32, unsigned)

}  // namespace tensor_fusion::sim::cuda
