// Profiler and core dump switches: accepted, remembered where they can be read back, without further effect.
#include <cstring>
#include <map>
#include <mutex>
#include <vector>

#include "sim/cuda/driver.h"

namespace tensor_fusion::sim::cuda {
namespace {

constexpr int kFirstAttribute = 1, kLastAttribute = 7, kFile = 5, kPipe = 6;
std::mutex mutex;
std::map<int, std::vector<char>>& values() {
  static auto* all = new std::map<int, std::vector<char>>;
  return *all;
}

CUresult get(int attribute, void* out, std::size_t* bytes) {
  if (attribute < kFirstAttribute || attribute > kLastAttribute || bytes == nullptr) return CUDA_ERROR_INVALID_VALUE;
  const std::lock_guard lock(mutex);
  auto& value = values()[attribute];
  if (value.empty()) value.assign(attribute == kFile || attribute == kPipe ? 1 : sizeof(int), '\0');
  if (out != nullptr) {
    if (*bytes < value.size()) return CUDA_ERROR_INVALID_VALUE;
    std::memcpy(out, value.data(), value.size());
  }
  *bytes = value.size();
  return CUDA_SUCCESS;
}

CUresult set(int attribute, const void* value, const std::size_t* bytes) {
  if (attribute < kFirstAttribute || attribute > kLastAttribute || value == nullptr || bytes == nullptr ||
      *bytes == 0 || *bytes > 1024)
    return CUDA_ERROR_INVALID_VALUE;
  const std::lock_guard lock(mutex);
  const auto* from = static_cast<const char*>(value);
  values()[attribute].assign(from, from + *bytes);
  return CUDA_SUCCESS;
}

}  // namespace

// As drivers since CUDA 12 answer, whatever they are given: nobody configures a profiler by this any more.
TF_API(cuProfilerInitialize, (const char*, const char*, int)) { return CUDA_ERROR_NOT_SUPPORTED; }
TF_API(cuProfilerStart, ()) {
  Context* context = nullptr;
  return enter("cuProfilerStart", {}, context);
}
TF_API(cuProfilerStop, ()) {
  Context* context = nullptr;
  return enter("cuProfilerStop", {}, context);
}

TF_API(cuCoredumpGetAttribute, (int attribute, void* out, std::size_t* bytes)) {
  Context* context = nullptr;
  TF_TRY(enter("cuCoredumpGetAttribute", {}, context));
  return get(attribute, out, bytes);
}
TF_API(cuCoredumpSetAttribute, (int attribute, void* value, std::size_t* bytes)) {
  Context* context = nullptr;
  TF_TRY(enter("cuCoredumpSetAttribute", {}, context));
  return set(attribute, value, bytes);
}
TF_API(cuCoredumpGetAttributeGlobal, (int attribute, void* out, std::size_t* bytes)) {
  return get(attribute, out, bytes);
}
TF_API(cuCoredumpSetAttributeGlobal, (int attribute, void* value, std::size_t* bytes)) {
  return set(attribute, value, bytes);
}

}  // namespace tensor_fusion::sim::cuda
