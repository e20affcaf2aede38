#include <gtest/gtest.h>

#include <string>

#include "contract/cuda_symbols.h"
#include "sim/cuda/symbol_address.h"
#include "sim/cuda/test_api.h"

namespace tensor_fusion::sim::cuda {

using namespace ::tensor_fusion::cuda;

namespace {
void* resolve(const char* name, int version, std::uint64_t flags, CUdriverProcAddressQueryResult* status = nullptr) {
  void* address = nullptr;
  CUdriverProcAddressQueryResult ignored{};
  EXPECT_EQ(cuGetProcAddress_v2(name, &address, version, flags, status != nullptr ? status : &ignored), CUDA_SUCCESS)
      << name;
  return address;
}
}  // namespace

TEST(ProcAddress, gives_every_variant_at_the_version_that_brought_it) {
  for (std::size_t row = 0; row < kCudaSymbolCount; ++row) {
    const CudaSymbol& symbol = kCudaSymbols[row];
    const std::uint64_t flags = symbol.flavour == StreamFlavour::kPlain ? CU_GET_PROC_ADDRESS_LEGACY_STREAM
                                                                        : CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM;
    EXPECT_EQ(resolve(symbol.base, symbol.version, flags), symbol_address(row)) << symbol.exported;
  }
}

TEST(ProcAddress, takes_the_newest_variant_that_is_not_newer_than_asked) {
  void* const first = resolve("cuCtxCreate", 2000, 0);
  void* const second = resolve("cuCtxCreate", 3020, 0);
  EXPECT_NE(first, second);
  EXPECT_EQ(resolve("cuCtxCreate", 11030, 0), second);
  EXPECT_NE(resolve("cuCtxCreate", 11040, 0), second);
  EXPECT_EQ(resolve("cuGraphInstantiate", 12000, 0), resolve("cuGraphInstantiateWithFlags", 11040, 0));
  EXPECT_EQ(resolve("cuMemCreate", 12000, 0), resolve("cuMemCreate", 10020, 0));
}

TEST(ProcAddress, gives_the_per_thread_twin_only_when_asked_and_where_there_is_one) {
  EXPECT_NE(resolve("cuLaunchKernel", 7000, 2), resolve("cuLaunchKernel", 7000, 0));
  EXPECT_EQ(resolve("cuLaunchKernel", 7000, 1), resolve("cuLaunchKernel", 7000, 0));
  EXPECT_EQ(resolve("cuLaunchKernel", 4000, 2), resolve("cuLaunchKernel", 4000, 0));  // the twin came later
  EXPECT_EQ(resolve("cuMemAlloc", 12000, 2), resolve("cuMemAlloc", 12000, 0));
}

TEST(ProcAddress, says_why_there_is_nothing) {
  CUdriverProcAddressQueryResult status{};
  EXPECT_EQ(resolve("cuNoSuchThing", 12000, 0, &status), nullptr);
  EXPECT_EQ(status, CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND);
  EXPECT_EQ(resolve("cuLaunchKernelEx", 11050, 0, &status), nullptr);
  EXPECT_EQ(status, CU_GET_PROC_ADDRESS_VERSION_NOT_SUFFICIENT);
  EXPECT_EQ(resolve("", 0, 0, &status), nullptr);
  EXPECT_EQ(status, CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND);
  void* address = nullptr;
  EXPECT_EQ(cuGetProcAddress_v2("cuInit", &address, 14000, 0, &status), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(cuGetProcAddress_v2("cuInit", nullptr, 12000, 0, &status), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(cuGetProcAddress("cuInit", &address, 2000, 0), CUDA_SUCCESS);
  EXPECT_NE(address, nullptr);
}

}  // namespace tensor_fusion::sim::cuda
