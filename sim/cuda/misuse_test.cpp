#include <cstring>
#include <thread>

#include "sim/cuda/test_context.h"

namespace tensor_fusion::sim::cuda {

using Misuse = Cuda;

TEST_F(Misuse, of_handles_is_told_apart_from_use) {
  const auto wrong = reinterpret_cast<CUstream>(0x1234567890ULL);
  EXPECT_EQ(cuStreamSynchronize(wrong), CUDA_ERROR_INVALID_HANDLE);
  EXPECT_EQ(cuStreamSynchronize(reinterpret_cast<CUstream>(module)), CUDA_ERROR_INVALID_HANDLE);
  EXPECT_EQ(cuEventQuery(reinterpret_cast<CUevent>(wrong)), CUDA_ERROR_INVALID_HANDLE);
  CUfunction function = nullptr;
  EXPECT_EQ(cuModuleGetFunction(&function, reinterpret_cast<CUmodule>(wrong), "nothing"), CUDA_ERROR_INVALID_HANDLE);
  EXPECT_EQ(cuModuleGetFunction(&function, module, "absent"), CUDA_ERROR_NOT_FOUND);
  EXPECT_EQ(cuLaunchKernel(nullptr, 1, 1, 1, 1, 1, 1, 0, nullptr, nullptr, nullptr), CUDA_ERROR_INVALID_HANDLE);
  EXPECT_EQ(cuCtxSetCurrent(reinterpret_cast<CUcontext>(wrong)), CUDA_ERROR_INVALID_CONTEXT);
}

TEST_F(Misuse, of_launch_sizes_is_refused_at_the_call) {
  const auto sized = [&](unsigned grid, unsigned block_x, unsigned block_z, unsigned shared) {
    return cuLaunchKernel(nothing, grid, 1, 1, block_x, 1, block_z, shared, nullptr, nullptr, nullptr);
  };
  EXPECT_OK(sized(1, 1024, 1, 0));
  EXPECT_EQ(sized(0, 1, 1, 0), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(sized(1, 0, 1, 0), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(sized(1, 1025, 1, 0), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(sized(1, 1, 65, 0), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(sized(1, 64, 32, 0), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(sized(1, 1, 1, 49 * 1024), CUDA_ERROR_INVALID_VALUE);
  EXPECT_OK(cuFuncSetAttribute(nothing, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, 100 * 1024));
  EXPECT_OK(sized(1, 1, 1, 100 * 1024));
  EXPECT_EQ(cuFuncSetAttribute(nothing, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, 1 << 20),
            CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(cuLaunchKernel(add, 1, 1, 1, 1, 1, 1, 0, nullptr, nullptr, nullptr), CUDA_ERROR_INVALID_VALUE);
}

TEST_F(Misuse, of_an_address_by_a_kernel_poisons_the_context_and_only_it) {
  CUcontext victim = nullptr;
  ASSERT_OK(cuCtxCreate_v2(&victim, 0, 0));
  CUmodule mine = nullptr;
  CUfunction bad = nullptr;
  ASSERT_OK(cuModuleLoadData(&mine, kTestKernels));
  ASSERT_OK(cuModuleGetFunction(&bad, mine, "store"));
  CUdeviceptr nowhere = 64;
  std::uint32_t value = 1;
  void* params[] = {&nowhere, &value};
  EXPECT_OK(cuLaunchKernel(bad, 1, 1, 1, 1, 1, 1, 0, nullptr, params, nullptr));
  EXPECT_EQ(cuCtxSynchronize(), CUDA_ERROR_ILLEGAL_ADDRESS);
  CUdeviceptr p = 0;
  EXPECT_EQ(cuMemAlloc_v2(&p, 4), CUDA_ERROR_ILLEGAL_ADDRESS);
  EXPECT_EQ(cuLaunchKernel(bad, 1, 1, 1, 1, 1, 1, 0, nullptr, params, nullptr), CUDA_ERROR_ILLEGAL_ADDRESS);
  EXPECT_EQ(cuStreamSynchronize(nullptr), CUDA_ERROR_ILLEGAL_ADDRESS);
  EXPECT_OK(cuCtxDestroy_v2(victim));
  EXPECT_OK(launch(store, 3));
  EXPECT_EQ(read_word(), 3U);
}

TEST_F(Misuse, of_contexts_is_told) {
  CUcontext gone = nullptr;
  ASSERT_OK(cuCtxCreate_v2(&gone, 0, 0));
  std::thread([&] {
    CUdeviceptr p = 0;
    EXPECT_EQ(cuMemAlloc_v2(&p, 4), CUDA_ERROR_INVALID_CONTEXT);  // none current in a new thread
    EXPECT_OK(cuCtxSetCurrent(gone));
    CUcontext same = nullptr;
    EXPECT_OK(cuCtxGetCurrent(&same));
    EXPECT_EQ(same, gone);
    EXPECT_OK(cuCtxSetCurrent(nullptr));
  }).join();
  std::thread holder([&] { EXPECT_OK(cuCtxDestroy_v2(gone)); });
  holder.join();
  CUdeviceptr p = 0;
  EXPECT_EQ(cuMemAlloc_v2(&p, 4), CUDA_ERROR_CONTEXT_IS_DESTROYED);  // destroyed elsewhere, still on top here
  CUcontext popped = nullptr;
  EXPECT_OK(cuCtxPopCurrent_v2(&popped));
  EXPECT_EQ(popped, gone);
  EXPECT_OK(cuMemAlloc_v2(&p, 4));
  EXPECT_EQ(cuCtxDestroy_v2(gone), CUDA_ERROR_INVALID_CONTEXT);
  CUcontext primary = nullptr;
  ASSERT_OK(cuDevicePrimaryCtxRetain(&primary, 0));
  EXPECT_EQ(cuCtxDestroy_v2(primary), CUDA_ERROR_INVALID_CONTEXT);
  EXPECT_OK(cuDevicePrimaryCtxRelease_v2(0));
  EXPECT_EQ(cuDevicePrimaryCtxRelease_v2(0), CUDA_ERROR_INVALID_CONTEXT);
  EXPECT_EQ(cuCtxCreate_v2(&gone, 0, 7), CUDA_ERROR_INVALID_DEVICE);
}

TEST_F(Misuse, of_ptx_gives_a_log_with_line_and_column) {
  char log[512] = {};
  CUjit_option options[] = {CU_JIT_ERROR_LOG_BUFFER, CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES};
  void* values[] = {log, reinterpret_cast<void*>(sizeof log)};
  CUmodule bad = nullptr;
  EXPECT_EQ(cuModuleLoadDataEx(
                &bad, ".version 6.3\n.target sm_70\n.address_size 64\n.entry x()\n{\n  frobnicate.u32 %r1;\n}\n", 2,
                options, values),
            CUDA_ERROR_INVALID_PTX);
  EXPECT_NE(std::strstr(log, "6"), nullptr) << log;
  EXPECT_EQ(reinterpret_cast<std::uintptr_t>(values[1]), std::strlen(log));
  EXPECT_EQ(cuModuleLoadData(&bad, "\177ELF"), CUDA_ERROR_NO_BINARY_FOR_GPU);
}

TEST_F(Misuse, of_what_does_not_exist_here_is_not_supported) {
  EXPECT_EQ(cuGraphicsUnregisterResource(nullptr), CUDA_ERROR_NOT_SUPPORTED);
  const void* table = nullptr;
  const CUuuid id{};
  EXPECT_EQ(cuGetExportTable(&table, &id), CUDA_ERROR_NOT_FOUND);
}

TEST_F(Misuse, has_names) {
  const char* text = nullptr;
  EXPECT_OK(cuGetErrorName(CUDA_ERROR_ILLEGAL_ADDRESS, &text));
  EXPECT_STREQ(text, "CUDA_ERROR_ILLEGAL_ADDRESS");
  EXPECT_OK(cuGetErrorString(CUDA_ERROR_OUT_OF_MEMORY, &text));
  EXPECT_STREQ(text, "out of memory");
  EXPECT_EQ(cuGetErrorName(static_cast<CUresult>(12345), &text), CUDA_ERROR_INVALID_VALUE);
}

}  // namespace tensor_fusion::sim::cuda
