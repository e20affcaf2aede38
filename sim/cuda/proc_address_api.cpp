// cuGetProcAddress: of all variants of a name the newest that is not newer than the version asked for, in the flavour
// of default stream asked for where a name has both.
#include <string_view>
#include <unordered_map>
#include <vector>

#include "contract/cuda_symbols.h"
#include "sim/cuda/driver.h"
#include "sim/cuda/symbol_address.h"

namespace tensor_fusion::sim::cuda {
namespace {

const std::vector<std::size_t>* rows_of(std::string_view base) {
  static const auto* index = [] {
    auto* made = new std::unordered_map<std::string_view, std::vector<std::size_t>>;
    for (std::size_t row = 0; row < kCudaSymbolCount; ++row) (*made)[kCudaSymbols[row].base].push_back(row);
    return made;
  }();
  const auto found = index->find(base);
  return found != index->end() ? &found->second : nullptr;
}

CUresult resolve(const char* symbol, void** out, int version, std::uint64_t flags,
                 CUdriverProcAddressQueryResult* status) {
  if (symbol == nullptr || out == nullptr || version > Driver::get().version() || version < 0 || flags > 2)
    return CUDA_ERROR_INVALID_VALUE;
  *out = nullptr;
  const auto say = [&](CUdriverProcAddressQueryResult what) {
    if (status != nullptr) *status = what;
    return CUDA_SUCCESS;
  };
  const auto* rows = rows_of(symbol);
  if (rows == nullptr) return say(CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND);
  const bool per_thread = flags == CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM;
  const CudaSymbol* best = nullptr;
  for (const std::size_t row : *rows) {
    const CudaSymbol& candidate = kCudaSymbols[row];
    const bool twin = candidate.flavour != StreamFlavour::kPlain;
    if (candidate.version > version || (twin && !per_thread)) continue;
    // A twin goes before a plain variant of the same age; a newer plain one without a twin goes before both.
    if (best != nullptr && (candidate.version < best->version || (candidate.version == best->version && !twin))) {
      const bool replaces_plain = twin && best->flavour == StreamFlavour::kPlain;
      if (!replaces_plain) continue;
    }
    best = &candidate;
    *out = symbol_address(row);
  }
  return say(best != nullptr ? CU_GET_PROC_ADDRESS_SUCCESS : CU_GET_PROC_ADDRESS_VERSION_NOT_SUFFICIENT);
}

}  // namespace

TF_API(cuGetProcAddress_v2,
       (const char* symbol, void** out, int version, std::uint64_t flags, CUdriverProcAddressQueryResult* status)) {
  return resolve(symbol, out, version, flags, status);
}
TF_API(cuGetProcAddress, (const char* symbol, void** out, int version, std::uint64_t flags)) {
  return resolve(symbol, out, version, flags, nullptr);
}

}  // namespace tensor_fusion::sim::cuda
