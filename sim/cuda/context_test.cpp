#include <thread>
#include <vector>

#include "sim/cuda/test_context.h"

namespace tensor_fusion::sim::cuda {

using Contexts = Cuda;

TEST_F(Contexts, are_asked_for_by_everything_that_gives_a_stream_work) {
  CUstream stream = nullptr;
  CUgraph graph = nullptr;
  CUgraphExec exec = nullptr;
  ASSERT_OK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
  ASSERT_OK(cuGraphCreate(&graph, 0));
  ASSERT_OK(cuGraphInstantiateWithFlags(&exec, graph, 0));
  ASSERT_OK(cuCtxSetCurrent(nullptr));
  std::uint32_t value = 0;
  CUdeviceptr p = 0;
  for (const CUstream each : {stream, CUstream{nullptr}}) {
    EXPECT_EQ(launch(add, 1, each), CUDA_ERROR_INVALID_CONTEXT);
    EXPECT_EQ(launch_busy(1, each), CUDA_ERROR_INVALID_CONTEXT);
    EXPECT_EQ(cuMemcpyHtoDAsync_v2(word, &value, 4, each), CUDA_ERROR_INVALID_CONTEXT);
    EXPECT_EQ(cuMemcpyDtoHAsync_v2(&value, word, 4, each), CUDA_ERROR_INVALID_CONTEXT);
    EXPECT_EQ(cuMemsetD32Async(word, 1, 1, each), CUDA_ERROR_INVALID_CONTEXT);
    EXPECT_EQ(cuMemAllocAsync(&p, 64, each), CUDA_ERROR_INVALID_CONTEXT);
    EXPECT_EQ(cuGraphLaunch(exec, each), CUDA_ERROR_INVALID_CONTEXT);
    EXPECT_EQ(cuLaunchHostFunc(each, [](void*) {}, nullptr), CUDA_ERROR_INVALID_CONTEXT);
  }
  EXPECT_EQ(cuMemcpyHtoD_v2(word, &value, 4), CUDA_ERROR_INVALID_CONTEXT);
  EXPECT_EQ(cuMemcpyDtoH_v2(&value, word, 4), CUDA_ERROR_INVALID_CONTEXT);
  EXPECT_EQ(cuMemsetD32_v2(word, 1, 1), CUDA_ERROR_INVALID_CONTEXT);
  EXPECT_EQ(cuMemAlloc_v2(&p, 4), CUDA_ERROR_INVALID_CONTEXT);
  EXPECT_EQ(cuCtxSynchronize(), CUDA_ERROR_INVALID_CONTEXT);
  EXPECT_OK(cuStreamSynchronize(stream));  // asks about work, gives none
  EXPECT_OK(cuCtxSetCurrent(context));
  EXPECT_EQ(read_word(), 0U);
}

TEST_F(Contexts, are_profiled_on_request_and_take_no_configuration_for_it) {
  EXPECT_OK(cuProfilerStart());
  EXPECT_EQ(launch(add, 1, nullptr), CUDA_SUCCESS);
  EXPECT_OK(cuProfilerStop());
  EXPECT_OK(cuProfilerStop());
  EXPECT_EQ(cuProfilerInitialize("counters", "out", 1), CUDA_ERROR_NOT_SUPPORTED);
  ASSERT_OK(cuCtxSetCurrent(nullptr));
  EXPECT_EQ(cuProfilerStart(), CUDA_ERROR_INVALID_CONTEXT);
  ASSERT_OK(cuCtxSetCurrent(context));
}

TEST_F(Contexts, of_a_device_s_own_keep_their_handle) {
  CUcontext first = nullptr, again = nullptr;
  ASSERT_OK(cuDevicePrimaryCtxRetain(&first, 1));
  ASSERT_OK(cuDevicePrimaryCtxRetain(&again, 1));
  EXPECT_EQ(first, again);
  ASSERT_OK(cuCtxSetCurrent(first));
  EXPECT_OK(cuDevicePrimaryCtxRelease_v2(1));
  EXPECT_OK(cuCtxSynchronize());
  EXPECT_OK(cuDevicePrimaryCtxRelease_v2(1));
  unsigned flags = 0;
  int active = 1;
  EXPECT_OK(cuDevicePrimaryCtxGetState(1, &flags, &active));
  EXPECT_EQ(active, 0);
  EXPECT_EQ(cuCtxSynchronize(), CUDA_ERROR_CONTEXT_IS_DESTROYED);
  ASSERT_OK(cuDevicePrimaryCtxRetain(&again, 1));
  EXPECT_EQ(first, again);
  EXPECT_OK(cuCtxSynchronize());  // still on top of this thread's stack, and there again
  EXPECT_OK(cuDevicePrimaryCtxReset_v2(1));
  CUdeviceptr p = 0;
  EXPECT_EQ(cuMemAlloc_v2(&p, 4), CUDA_ERROR_CONTEXT_IS_DESTROYED);
  EXPECT_EQ(cuDevicePrimaryCtxRelease_v2(1), CUDA_ERROR_INVALID_CONTEXT);
  ASSERT_OK(cuDevicePrimaryCtxRetain(&again, 1));
  EXPECT_EQ(first, again);
  CUcontext created = nullptr;
  ASSERT_OK(cuCtxCreate_v2(&created, 0, 1));
  EXPECT_NE(created, first);
  EXPECT_OK(cuCtxDestroy_v2(created));
  EXPECT_OK(cuDevicePrimaryCtxRelease_v2(1));
  EXPECT_OK(cuCtxSetCurrent(context));
}

TEST_F(Contexts, of_a_device_s_own_survive_many_threads_that_take_and_leave_them) {
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t)
    threads.emplace_back([] {
      for (int round = 0; round < 50; ++round) {
        CUcontext primary = nullptr;
        ASSERT_OK(cuDevicePrimaryCtxRetain(&primary, 1));
        ASSERT_OK(cuCtxSetCurrent(primary));
        EXPECT_OK(cuCtxSynchronize());
        EXPECT_OK(cuDevicePrimaryCtxRelease_v2(1));
      }
    });
  for (auto& thread : threads) thread.join();
  EXPECT_EQ(cuDevicePrimaryCtxRelease_v2(1), CUDA_ERROR_INVALID_CONTEXT);
}

// All that one context can own, and what is left of it.
TEST_F(Contexts, take_with_them_all_that_is_theirs) {
  const std::size_t before = free_bytes();
  CUcontext other = nullptr;
  ASSERT_OK(cuCtxCreate_v2(&other, 0, 0));
  CUmodule code = nullptr;
  CUfunction function = nullptr;
  CUstream stream = nullptr;
  CUevent event = nullptr;
  CUdeviceptr memory = 0;
  CUarray array = nullptr;
  CUmipmappedArray mipmap = nullptr;
  CUtexObject texture = 0;
  CUsurfObject surface = 0;
  ASSERT_OK(cuModuleLoadData(&code, kTestKernels));
  ASSERT_OK(cuModuleGetFunction(&function, code, "add"));
  ASSERT_OK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
  ASSERT_OK(cuEventCreate(&event, 0));
  ASSERT_OK(cuMemAlloc_v2(&memory, 1 << 20));
  const CUDA_ARRAY3D_DESCRIPTOR shape{256, 256, 4, CU_AD_FORMAT_FLOAT, 1, CUDA_ARRAY3D_SURFACE_LDST};
  ASSERT_OK(cuArray3DCreate_v2(&array, &shape));
  ASSERT_OK(cuMipmappedArrayCreate(&mipmap, &shape, 4));
  CUDA_RESOURCE_DESC resource{};
  resource.res.word = reinterpret_cast<std::uintptr_t>(array);
  const unsigned char sampling[104] = {};
  ASSERT_OK(cuTexObjectCreate(&texture, &resource, sampling, nullptr));
  ASSERT_OK(cuSurfObjectCreate(&surface, &resource));
  EXPECT_OK(cuEventRecord(event, stream));
  EXPECT_OK(cuCtxDestroy_v2(other));  // the fixture's context is current again
  EXPECT_EQ(free_bytes(), before);

  std::uint32_t value = 1;
  void* params[] = {&word, &value};
  EXPECT_EQ(cuLaunchKernel(function, 1, 1, 1, 1, 1, 1, 0, nullptr, params, nullptr), CUDA_ERROR_INVALID_HANDLE);
  EXPECT_EQ(launch(add, 1, stream), CUDA_ERROR_INVALID_HANDLE);
  EXPECT_EQ(cuModuleUnload(code), CUDA_ERROR_INVALID_HANDLE);
  EXPECT_EQ(cuStreamSynchronize(stream), CUDA_ERROR_INVALID_HANDLE);
  EXPECT_EQ(cuStreamDestroy_v2(stream), CUDA_ERROR_INVALID_HANDLE);
  EXPECT_EQ(cuEventQuery(event), CUDA_ERROR_INVALID_HANDLE);
  EXPECT_EQ(cuEventDestroy_v2(event), CUDA_ERROR_INVALID_HANDLE);
  EXPECT_EQ(cuMemFree_v2(memory), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(cuArrayDestroy(array), CUDA_ERROR_INVALID_HANDLE);
  EXPECT_EQ(cuMipmappedArrayDestroy(mipmap), CUDA_ERROR_INVALID_HANDLE);
  EXPECT_EQ(cuTexObjectDestroy(texture), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(cuSurfObjectDestroy(surface), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(cuCtxDestroy_v2(other), CUDA_ERROR_INVALID_CONTEXT);
  EXPECT_EQ(cuCtxSetCurrent(other), CUDA_ERROR_INVALID_CONTEXT);
  EXPECT_EQ(cuCtxPushCurrent_v2(other), CUDA_ERROR_INVALID_CONTEXT);
  EXPECT_OK(launch(add, 1));
  EXPECT_EQ(read_word(), 1U);
}

TEST_F(Contexts, of_which_one_goes_leave_a_library_loaded_for_the_others) {
  CUlibrary library = nullptr;
  CUkernel kernel = nullptr;
  ASSERT_OK(cuLibraryLoadData(&library, kTestKernels, nullptr, nullptr, 0, nullptr, nullptr, 0));
  ASSERT_OK(cuLibraryGetKernel(&kernel, library, "add"));
  CUcontext other = nullptr;
  ASSERT_OK(cuCtxCreate_v2(&other, 0, 0));
  CUdeviceptr theirs = 0;
  ASSERT_OK(cuMemAlloc_v2(&theirs, 4));
  std::uint32_t value = 3;
  void* params[] = {&theirs, &value};
  EXPECT_OK(cuLaunchKernel(reinterpret_cast<CUfunction>(kernel), 1, 1, 1, 1, 1, 1, 0, nullptr, params, nullptr));
  EXPECT_OK(cuCtxDestroy_v2(other));
  EXPECT_OK(launch(reinterpret_cast<CUfunction>(kernel), 3));
  EXPECT_EQ(read_word(), 3U);
  EXPECT_OK(cuLibraryUnload(library));
  EXPECT_EQ(cuLibraryUnload(library), CUDA_ERROR_INVALID_HANDLE);
  EXPECT_EQ(launch(reinterpret_cast<CUfunction>(kernel), 3), CUDA_ERROR_INVALID_HANDLE);
}

}  // namespace tensor_fusion::sim::cuda
