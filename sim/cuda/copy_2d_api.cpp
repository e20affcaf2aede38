// Two- and three-dimensional copies, copies between contexts, and batches.
#include "sim/cuda/array.h"
#include "sim/cuda/copy_submit.h"
#include "sim/cuda/driver.h"

namespace tensor_fusion::sim::cuda {
namespace {

CUDA_MEMCPY3D from_2d(const CUDA_MEMCPY2D& c) {
  CUDA_MEMCPY3D asked{};
  asked.srcXInBytes = c.srcXInBytes, asked.srcY = c.srcY, asked.srcMemoryType = c.srcMemoryType,
  asked.srcHost = c.srcHost;
  asked.srcDevice = c.srcDevice, asked.srcArray = c.srcArray, asked.srcPitch = c.srcPitch;
  asked.dstXInBytes = c.dstXInBytes, asked.dstY = c.dstY, asked.dstMemoryType = c.dstMemoryType,
  asked.dstHost = c.dstHost;
  asked.dstDevice = c.dstDevice, asked.dstArray = c.dstArray, asked.dstPitch = c.dstPitch;
  asked.WidthInBytes = c.WidthInBytes, asked.Height = c.Height, asked.Depth = 1;
  return asked;
}

CUDA_MEMCPY3D from_peer(const CUDA_MEMCPY3D_PEER& c) {
  CUDA_MEMCPY3D asked{};
  asked.srcXInBytes = c.srcXInBytes, asked.srcY = c.srcY, asked.srcZ = c.srcZ, asked.srcLOD = c.srcLOD;
  asked.srcMemoryType = c.srcMemoryType, asked.srcHost = c.srcHost, asked.srcDevice = c.srcDevice,
  asked.srcArray = c.srcArray;
  asked.srcPitch = c.srcPitch, asked.srcHeight = c.srcHeight;
  asked.dstXInBytes = c.dstXInBytes, asked.dstY = c.dstY, asked.dstZ = c.dstZ, asked.dstLOD = c.dstLOD;
  asked.dstMemoryType = c.dstMemoryType, asked.dstHost = c.dstHost, asked.dstDevice = c.dstDevice,
  asked.dstArray = c.dstArray;
  asked.dstPitch = c.dstPitch, asked.dstHeight = c.dstHeight;
  asked.WidthInBytes = c.WidthInBytes, asked.Height = c.Height, asked.Depth = c.Depth;
  return asked;
}

CUresult copy_2d(const char* symbol, Flavour flavour, CUstream stream, const CUDA_MEMCPY2D* copy, Waits waits) {
  TF_TRY(check_ready());
  if (copy == nullptr) return CUDA_ERROR_INVALID_VALUE;
  return submit_copy(symbol, flavour, stream, from_2d(*copy), waits);
}

CUresult copy_3d(const char* symbol, Flavour flavour, CUstream stream, const CUDA_MEMCPY3D* copy, Waits waits) {
  TF_TRY(check_ready());
  if (copy == nullptr || copy->reserved0 != nullptr || copy->reserved1 != nullptr) return CUDA_ERROR_INVALID_VALUE;
  return submit_copy(symbol, flavour, stream, *copy, waits);
}

CUresult copy_peer(const char* symbol, Flavour flavour, CUstream stream, const CUDA_MEMCPY3D_PEER* copy) {
  TF_TRY(check_ready());
  if (copy == nullptr) return CUDA_ERROR_INVALID_VALUE;
  if (contexts().find(copy->srcContext) == nullptr || contexts().find(copy->dstContext) == nullptr)
    return CUDA_ERROR_INVALID_CONTEXT;
  return submit_copy(symbol, flavour, stream, from_peer(*copy), Waits::never);
}

CUresult batch(Flavour flavour, const CUdeviceptr* to, const CUdeviceptr* from, const std::size_t* bytes,
               std::size_t count, const CUmemcpyAttributes* attributes, const std::size_t* attribute_starts,
               std::size_t attribute_count, std::size_t* failed, CUstream stream) {
  TF_TRY(check_ready());
  if (failed != nullptr) *failed = SIZE_MAX;
  if (to == nullptr || from == nullptr || bytes == nullptr || count == 0) return CUDA_ERROR_INVALID_VALUE;
  if (attributes == nullptr || attribute_starts == nullptr || attribute_count == 0 || attribute_count > count ||
      attribute_starts[0] != 0)
    return CUDA_ERROR_INVALID_VALUE;
  if (reinterpret_cast<std::uintptr_t>(stream) <= kStreamPerThread)
    return CUDA_ERROR_INVALID_VALUE;  // default streams not allowed
  for (std::size_t i = 0; i < count; ++i) {
    CUDA_MEMCPY3D asked{};
    asked.srcMemoryType = asked.dstMemoryType = CU_MEMORYTYPE_UNIFIED;
    asked.srcDevice = from[i], asked.dstDevice = to[i];
    asked.WidthInBytes = bytes[i], asked.Height = asked.Depth = 1;
    if (const CUresult result = submit_copy("cuMemcpyBatchAsync", flavour, stream, asked, Waits::never);
        result != CUDA_SUCCESS) {
      if (failed != nullptr) *failed = i;
      return result;
    }
  }
  return CUDA_SUCCESS;
}

CUresult batch_3d(Flavour flavour, std::size_t count, const CUDA_MEMCPY3D_BATCH_OP* operations, std::size_t* failed,
                  std::uint64_t flags, CUstream stream) {
  TF_TRY(check_ready());
  if (failed != nullptr) *failed = SIZE_MAX;
  if (count == 0 || operations == nullptr || flags != 0) return CUDA_ERROR_INVALID_VALUE;
  if (reinterpret_cast<std::uintptr_t>(stream) <= kStreamPerThread) return CUDA_ERROR_INVALID_VALUE;
  for (std::size_t i = 0; i < count; ++i) {
    const auto& operation = operations[i];
    CUDA_MEMCPY3D asked{};
    std::uint64_t element = 1;
    for (const auto* side : {&operation.src, &operation.dst})
      if (side->type == 2)
        if (const Array* array = arrays().find(side->op.array.array); array != nullptr)
          element = element_bytes(array->shape.Format, array->shape.NumChannels);
    const auto& src = operation.src;
    const auto& dst = operation.dst;
    if (src.type == 1) {
      asked.srcMemoryType = CU_MEMORYTYPE_UNIFIED, asked.srcDevice = src.op.ptr.ptr;
      asked.srcPitch = src.op.ptr.rowLength * element, asked.srcHeight = src.op.ptr.layerHeight;
    } else {
      asked.srcMemoryType = CU_MEMORYTYPE_ARRAY, asked.srcArray = src.op.array.array;
      asked.srcXInBytes = src.op.array.offset.x * element, asked.srcY = src.op.array.offset.y,
      asked.srcZ = src.op.array.offset.z;
    }
    if (dst.type == 1) {
      asked.dstMemoryType = CU_MEMORYTYPE_UNIFIED, asked.dstDevice = dst.op.ptr.ptr;
      asked.dstPitch = dst.op.ptr.rowLength * element, asked.dstHeight = dst.op.ptr.layerHeight;
    } else {
      asked.dstMemoryType = CU_MEMORYTYPE_ARRAY, asked.dstArray = dst.op.array.array;
      asked.dstXInBytes = dst.op.array.offset.x * element, asked.dstY = dst.op.array.offset.y,
      asked.dstZ = dst.op.array.offset.z;
    }
    asked.WidthInBytes = operation.extent.width * element, asked.Height = operation.extent.height,
    asked.Depth = operation.extent.depth;
    if (const CUresult result = submit_copy("cuMemcpy3DBatchAsync", flavour, stream, asked, Waits::never);
        result != CUDA_SUCCESS) {
      if (failed != nullptr) *failed = i;
      return result;
    }
  }
  return CUDA_SUCCESS;
}

}  // namespace

TF_BLOCKING_API(cuMemcpy2D_v2, (const CUDA_MEMCPY2D* copy),
                { return copy_2d("cuMemcpy2D", kFlavour, nullptr, copy, Waits::if_host); })
TF_BLOCKING_API(cuMemcpy2DUnaligned_v2, (const CUDA_MEMCPY2D* copy),
                { return copy_2d("cuMemcpy2DUnaligned", kFlavour, nullptr, copy, Waits::if_host); })
TF_STREAM_API(cuMemcpy2DAsync_v2, (const CUDA_MEMCPY2D* copy, CUstream stream),
              { return copy_2d("cuMemcpy2DAsync", kFlavour, stream, copy, Waits::never); })
TF_BLOCKING_API(cuMemcpy3D_v2, (const CUDA_MEMCPY3D* copy),
                { return copy_3d("cuMemcpy3D", kFlavour, nullptr, copy, Waits::if_host); })
TF_STREAM_API(cuMemcpy3DAsync_v2, (const CUDA_MEMCPY3D* copy, CUstream stream),
              { return copy_3d("cuMemcpy3DAsync", kFlavour, stream, copy, Waits::never); })
TF_BLOCKING_API(cuMemcpy3DPeer, (const CUDA_MEMCPY3D_PEER* copy),
                { return copy_peer("cuMemcpy3DPeer", kFlavour, nullptr, copy); })
TF_STREAM_API(cuMemcpy3DPeerAsync, (const CUDA_MEMCPY3D_PEER* copy, CUstream stream),
              { return copy_peer("cuMemcpy3DPeerAsync", kFlavour, stream, copy); })

TF_STREAM_API(
    cuMemcpyBatchAsync,
    (CUdeviceptr * to, CUdeviceptr* from, std::size_t* bytes, std::size_t count, CUmemcpyAttributes* attributes,
     std::size_t* attribute_starts, std::size_t attribute_count, std::size_t* failed, CUstream stream),
    { return batch(kFlavour, to, from, bytes, count, attributes, attribute_starts, attribute_count, failed, stream); })
TF_STREAM_API(cuMemcpyBatchAsync_v2,
              (const CUdeviceptr* to, const CUdeviceptr* from, const std::size_t* bytes, std::size_t count,
               const CUmemcpyAttributes* attributes, const std::size_t* attribute_starts, std::size_t attribute_count,
               CUstream stream),
              {
                return batch(kFlavour, to, from, bytes, count, attributes, attribute_starts, attribute_count, nullptr,
                             stream);
              })
TF_STREAM_API(cuMemcpy3DBatchAsync,
              (std::size_t count, CUDA_MEMCPY3D_BATCH_OP* operations, std::size_t* failed, std::uint64_t flags,
               CUstream stream),
              { return batch_3d(kFlavour, count, operations, failed, flags, stream); })
TF_STREAM_API(cuMemcpy3DBatchAsync_v2,
              (std::size_t count, const CUDA_MEMCPY3D_BATCH_OP* operations, std::uint64_t flags, CUstream stream),
              { return batch_3d(kFlavour, count, operations, nullptr, flags, stream); })

}  // namespace tensor_fusion::sim::cuda
