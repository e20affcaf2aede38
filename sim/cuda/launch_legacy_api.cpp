// The launch of CUDA 3 and before: block shape and parameters are set on the function, then it is launched on a grid.
#include <cstring>
#include <map>
#include <mutex>
#include <vector>

#include "sim/cuda/command.h"
#include "sim/cuda/driver.h"

namespace tensor_fusion::sim::cuda {
namespace {

struct Prepared {
  std::array<unsigned, 3> block{1, 1, 1};
  unsigned shared_bytes = 0, size = 0;
  std::vector<std::byte> params;
};
std::mutex mutex;
std::map<std::uint64_t, Prepared>& prepared() {  // by function
  static auto* all = new std::map<std::uint64_t, Prepared>;
  return *all;
}

// Changes what is prepared for a function.
template <typename Change>
CUresult prepare(const char* symbol, CUfunction handle, Change change) {
  Context* context = nullptr;
  TF_TRY(enter(symbol, {}, context));
  if (functions().find(handle) == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  const std::lock_guard lock(mutex);
  return change(prepared()[reinterpret_cast<std::uintptr_t>(handle)]);
}

CUresult put(const char* symbol, CUfunction handle, int offset, const void* value, std::size_t bytes) {
  return prepare(symbol, handle, [&](Prepared& p) {
    constexpr std::size_t kMost = 4096;  // as much as parameters may have
    if (offset < 0 || value == nullptr || static_cast<std::size_t>(offset) + bytes > kMost)
      return CUDA_ERROR_INVALID_VALUE;
    if (p.params.size() < static_cast<std::size_t>(offset) + bytes)
      p.params.resize(static_cast<std::size_t>(offset) + bytes);
    std::memcpy(p.params.data() + offset, value, bytes);
    return CUDA_SUCCESS;
  });
}

CUresult launch(const char* symbol, CUfunction handle, int width, int height, CUstream stream_handle) {
  TF_TRY(enter(symbol, "launch"));
  Stream* stream = nullptr;
  TF_TRY(find_work_stream(stream_handle, Flavour::legacy, stream));
  const auto function = functions().share(handle);
  if (!function) return CUDA_ERROR_INVALID_HANDLE;
  if (width <= 0 || height <= 0) return CUDA_ERROR_INVALID_VALUE;
  Prepared p;
  {
    const std::lock_guard lock(mutex);
    p = prepared()[reinterpret_cast<std::uintptr_t>(handle)];
  }
  p.params.resize(std::max<std::size_t>(p.params.size(), p.size));
  std::size_t bytes = p.params.size();
  void* extra[] = {reinterpret_cast<void*>(kLaunchParamBufferPointer), p.params.data(),
                   reinterpret_cast<void*>(kLaunchParamBufferSize), &bytes, reinterpret_cast<void*>(kLaunchParamEnd)};
  std::shared_ptr<const KernelCommand> command;
  TF_TRY(make_kernel_command(function, {static_cast<unsigned>(width), static_cast<unsigned>(height), 1}, p.block,
                             p.shared_bytes, nullptr, extra, false, command));
  return issue(*stream, std::move(command));
}

}  // namespace

TF_API(cuFuncSetBlockShape, (CUfunction function, int x, int y, int z)) {
  return prepare("cuFuncSetBlockShape", function, [&](Prepared& p) {
    if (x <= 0 || y <= 0 || z <= 0) return CUDA_ERROR_INVALID_VALUE;
    p.block = {static_cast<unsigned>(x), static_cast<unsigned>(y), static_cast<unsigned>(z)};
    return CUDA_SUCCESS;
  });
}
TF_API(cuFuncSetSharedSize, (CUfunction function, unsigned bytes)) {
  return prepare("cuFuncSetSharedSize", function, [&](Prepared& p) {
    p.shared_bytes = bytes;
    return CUDA_SUCCESS;
  });
}
TF_API(cuParamSetSize, (CUfunction function, unsigned bytes)) {
  return prepare("cuParamSetSize", function, [&](Prepared& p) {
    if (bytes > 4096) return CUDA_ERROR_INVALID_VALUE;
    p.size = bytes;
    return CUDA_SUCCESS;
  });
}
TF_API(cuParamSeti, (CUfunction function, int offset, unsigned value)) {
  return put("cuParamSeti", function, offset, &value, sizeof value);
}
TF_API(cuParamSetf, (CUfunction function, int offset, float value)) {
  return put("cuParamSetf", function, offset, &value, sizeof value);
}
TF_API(cuParamSetv, (CUfunction function, int offset, void* value, unsigned bytes)) {
  return put("cuParamSetv", function, offset, value, bytes);
}
TF_API(cuLaunch, (CUfunction function)) { return launch("cuLaunch", function, 1, 1, nullptr); }
TF_API(cuLaunchGrid, (CUfunction function, int width, int height)) {
  return launch("cuLaunchGrid", function, width, height, nullptr);
}
TF_API(cuLaunchGridAsync, (CUfunction function, int width, int height, CUstream stream)) {
  return launch("cuLaunchGridAsync", function, width, height, stream);
}

}  // namespace tensor_fusion::sim::cuda
