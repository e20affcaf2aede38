#include "sim/cuda/symbol_address.h"

#include "contract/cuda_symbols.h"

// Only addresses are taken here, so all are declared alike; a row that nobody exports fails at the link.
extern "C" {
#define TF_DECLARE(base, exported, version) void exported();
#define TF_DECLARE_STREAM(base, exported, version, twin) \
  void exported();                                       \
  void exported##_ptsz();
#define TF_DECLARE_BLOCKING(base, exported, version, twin) \
  void exported();                                         \
  void exported##_ptds();
TF_CUDA_SYMBOLS(TF_DECLARE, TF_DECLARE_STREAM, TF_DECLARE_BLOCKING)
}

namespace tensor_fusion::sim::cuda {

void* symbol_address(std::size_t row) {
#define TF_ADDRESS(base, exported, version) &(exported),
#define TF_ADDRESS_STREAM(base, exported, version, twin) &(exported), &exported##_ptsz,
#define TF_ADDRESS_BLOCKING(base, exported, version, twin) &(exported), &exported##_ptds,
  static constexpr void (*kAddresses[])() = {TF_CUDA_SYMBOLS(TF_ADDRESS, TF_ADDRESS_STREAM, TF_ADDRESS_BLOCKING)};
  static_assert(sizeof(kAddresses) / sizeof(kAddresses[0]) == ::tensor_fusion::cuda::kCudaSymbolCount);
  return reinterpret_cast<void*>(kAddresses[row]);
}

}  // namespace tensor_fusion::sim::cuda
