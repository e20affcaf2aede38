// One-dimensional copies. A blocking copy that touches host memory returns when it is done; between devices it does not
// wait, as real ones do not. Asynchronous copies from pageable memory take the source's bytes before they return.
#include <cstring>

#include "sim/cuda/array.h"
#include "sim/cuda/capture.h"
#include "sim/cuda/copy_submit.h"
#include "sim/cuda/driver.h"

namespace tensor_fusion::sim::cuda {

namespace {
constexpr std::uint64_t kStagedBytes = std::uint64_t{1} << 20;  // longer pageable sources are waited for instead
}

CUresult submit_copy(const char* symbol, Flavour flavour, CUstream handle, const CUDA_MEMCPY3D& asked, Waits waits) {
  TF_TRY(enter(symbol, "copy"));
  Stream* stream = nullptr;
  TF_TRY(find_work_stream(handle, flavour, stream));
  std::shared_ptr<CopyCommand> copy;
  TF_TRY(make_copy(asked, copy));
  if (copy->bytes() == 0) return CUDA_SUCCESS;
  const bool touches_host = copy->from.device == nullptr || copy->to.device == nullptr;
  if (waits == Waits::if_host && touches_host) {
    TF_TRY(forbid_capture(*stream));
    TF_TRY(check_capture_unsafe());
    {
      const std::lock_guard lock(stream->mutex());
      TF_TRY(check_capture_conflict(*stream));
      TF_TRY(enqueue_copy(*stream, copy, true));
    }
    return stream->synchronize();
  }
  const bool busy = !stream->queue()->idle() || copy->bytes() > kQuickBytes;
  bool wait = false;
  if (!stream->capturing && busy && copy->from.pageable) {
    if (copy->bytes() <= kStagedBytes && copy->height * copy->depth == 1) {
      auto staged = std::make_shared<std::vector<std::byte>>(copy->width);
      std::memcpy(staged->data(), reinterpret_cast<const void*>(copy->from.address), copy->width);
      copy->from.address = reinterpret_cast<std::uint64_t>(staged->data());
      copy->from.keeper = std::move(staged);
    } else {
      wait = true;
    }
  }
  if (!stream->capturing && copy->to.pageable) wait = true;
  TF_TRY(issue(*stream, std::shared_ptr<const CopyCommand>(std::move(copy))));
  return wait ? stream->synchronize() : CUDA_SUCCESS;
}

namespace {

CUDA_MEMCPY3D flat(CUmemorytype to, std::uint64_t to_address, CUmemorytype from, std::uint64_t from_address,
                   std::size_t bytes) {
  CUDA_MEMCPY3D asked{};
  asked.srcMemoryType = from;
  asked.dstMemoryType = to;
  if (from == CU_MEMORYTYPE_HOST)
    asked.srcHost = reinterpret_cast<const void*>(from_address);
  else
    asked.srcDevice = from_address;
  if (to == CU_MEMORYTYPE_HOST)
    asked.dstHost = reinterpret_cast<void*>(to_address);
  else
    asked.dstDevice = to_address;
  asked.WidthInBytes = bytes;
  asked.Height = asked.Depth = 1;
  return asked;
}

std::uint64_t word(const void* pointer) { return reinterpret_cast<std::uint64_t>(pointer); }

constexpr auto kHost = CU_MEMORYTYPE_HOST;
constexpr auto kDevice = CU_MEMORYTYPE_DEVICE;
constexpr auto kAny = CU_MEMORYTYPE_UNIFIED;
constexpr auto kArray = CU_MEMORYTYPE_ARRAY;

CUDA_MEMCPY3D to_array(CUarray array, std::size_t offset, CUmemorytype from, std::uint64_t address, std::size_t bytes) {
  CUDA_MEMCPY3D asked = flat(kAny, 0, from, address, bytes);
  asked.dstMemoryType = kArray;
  asked.dstArray = array;
  asked.dstXInBytes = offset;
  return asked;
}
CUDA_MEMCPY3D from_array(CUmemorytype to, std::uint64_t address, CUarray array, std::size_t offset, std::size_t bytes) {
  CUDA_MEMCPY3D asked = flat(to, address, kAny, 0, bytes);
  asked.srcMemoryType = kArray;
  asked.srcArray = array;
  asked.srcXInBytes = offset;
  return asked;
}

CUresult peer_copy(const char* symbol, Flavour flavour, CUstream stream, CUdeviceptr to, CUcontext to_context,
                   CUdeviceptr from, CUcontext from_context, std::size_t bytes) {
  TF_TRY(check_ready());
  for (const CUcontext handle : {to_context, from_context}) {
    Context* context = contexts().find(handle);
    if (context == nullptr) return CUDA_ERROR_INVALID_CONTEXT;
    TF_TRY(check_context(*context));
  }
  return submit_copy(symbol, flavour, stream, flat(kDevice, to, kDevice, from, bytes), Waits::never);
}

}  // namespace

TF_BLOCKING_API(cuMemcpy, (CUdeviceptr to, CUdeviceptr from, std::size_t bytes), {
  return submit_copy("cuMemcpy", kFlavour, nullptr, flat(kAny, to, kAny, from, bytes), Waits::if_host);
})
TF_STREAM_API(cuMemcpyAsync, (CUdeviceptr to, CUdeviceptr from, std::size_t bytes, CUstream stream), {
  return submit_copy("cuMemcpyAsync", kFlavour, stream, flat(kAny, to, kAny, from, bytes), Waits::never);
})
TF_BLOCKING_API(cuMemcpyHtoD_v2, (CUdeviceptr to, const void* from, std::size_t bytes), {
  return submit_copy("cuMemcpyHtoD", kFlavour, nullptr, flat(kDevice, to, kHost, word(from), bytes), Waits::if_host);
})
TF_BLOCKING_API(cuMemcpyDtoH_v2, (void* to, CUdeviceptr from, std::size_t bytes), {
  return submit_copy("cuMemcpyDtoH", kFlavour, nullptr, flat(kHost, word(to), kDevice, from, bytes), Waits::if_host);
})
TF_BLOCKING_API(cuMemcpyDtoD_v2, (CUdeviceptr to, CUdeviceptr from, std::size_t bytes), {
  return submit_copy("cuMemcpyDtoD", kFlavour, nullptr, flat(kDevice, to, kDevice, from, bytes), Waits::if_host);
})
TF_STREAM_API(cuMemcpyHtoDAsync_v2, (CUdeviceptr to, const void* from, std::size_t bytes, CUstream stream), {
  return submit_copy("cuMemcpyHtoDAsync", kFlavour, stream, flat(kDevice, to, kHost, word(from), bytes), Waits::never);
})
TF_STREAM_API(cuMemcpyDtoHAsync_v2, (void* to, CUdeviceptr from, std::size_t bytes, CUstream stream), {
  return submit_copy("cuMemcpyDtoHAsync", kFlavour, stream, flat(kHost, word(to), kDevice, from, bytes), Waits::never);
})
TF_STREAM_API(cuMemcpyDtoDAsync_v2, (CUdeviceptr to, CUdeviceptr from, std::size_t bytes, CUstream stream), {
  return submit_copy("cuMemcpyDtoDAsync", kFlavour, stream, flat(kDevice, to, kDevice, from, bytes), Waits::never);
})

TF_BLOCKING_API(cuMemcpyPeer,
                (CUdeviceptr to, CUcontext to_context, CUdeviceptr from, CUcontext from_context, std::size_t bytes),
                { return peer_copy("cuMemcpyPeer", kFlavour, nullptr, to, to_context, from, from_context, bytes); })
TF_STREAM_API(cuMemcpyPeerAsync,
              (CUdeviceptr to, CUcontext to_context, CUdeviceptr from, CUcontext from_context, std::size_t bytes,
               CUstream stream),
              { return peer_copy("cuMemcpyPeerAsync", kFlavour, stream, to, to_context, from, from_context, bytes); })

TF_BLOCKING_API(cuMemcpyHtoA_v2, (CUarray to, std::size_t offset, const void* from, std::size_t bytes), {
  return submit_copy("cuMemcpyHtoA", kFlavour, nullptr, to_array(to, offset, kHost, word(from), bytes), Waits::if_host);
})
TF_BLOCKING_API(cuMemcpyAtoH_v2, (void* to, CUarray from, std::size_t offset, std::size_t bytes), {
  return submit_copy("cuMemcpyAtoH", kFlavour, nullptr, from_array(kHost, word(to), from, offset, bytes),
                     Waits::if_host);
})
TF_BLOCKING_API(cuMemcpyDtoA_v2, (CUarray to, std::size_t offset, CUdeviceptr from, std::size_t bytes), {
  return submit_copy("cuMemcpyDtoA", kFlavour, nullptr, to_array(to, offset, kDevice, from, bytes), Waits::if_host);
})
TF_BLOCKING_API(cuMemcpyAtoD_v2, (CUdeviceptr to, CUarray from, std::size_t offset, std::size_t bytes), {
  return submit_copy("cuMemcpyAtoD", kFlavour, nullptr, from_array(kDevice, to, from, offset, bytes), Waits::if_host);
})
TF_BLOCKING_API(cuMemcpyAtoA_v2,
                (CUarray to, std::size_t to_offset, CUarray from, std::size_t from_offset, std::size_t bytes), {
                  CUDA_MEMCPY3D asked = to_array(to, to_offset, kAny, 0, bytes);
                  asked.srcMemoryType = kArray;
                  asked.srcArray = from;
                  asked.srcXInBytes = from_offset;
                  return submit_copy("cuMemcpyAtoA", kFlavour, nullptr, asked, Waits::if_host);
                })
TF_STREAM_API(cuMemcpyHtoAAsync_v2,
              (CUarray to, std::size_t offset, const void* from, std::size_t bytes, CUstream stream), {
                return submit_copy("cuMemcpyHtoAAsync", kFlavour, stream,
                                   to_array(to, offset, kHost, word(from), bytes), Waits::never);
              })
TF_STREAM_API(cuMemcpyAtoHAsync_v2, (void* to, CUarray from, std::size_t offset, std::size_t bytes, CUstream stream), {
  return submit_copy("cuMemcpyAtoHAsync", kFlavour, stream, from_array(kHost, word(to), from, offset, bytes),
                     Waits::never);
})

}  // namespace tensor_fusion::sim::cuda
