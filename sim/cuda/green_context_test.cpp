#include "sim/cuda/test_context.h"

namespace tensor_fusion::sim::cuda {

class GreenContexts : public Cuda {
 protected:
  void SetUp() override {
    Cuda::SetUp();
    ASSERT_OK(cuDevicePrimaryCtxRetain(&primary, 0));
    ASSERT_OK(cuDeviceGetDevResource(0, &all, CU_DEV_RESOURCE_TYPE_SM));
  }
  void TearDown() override {
    EXPECT_OK(cuCtxSetCurrent(context));
    EXPECT_OK(cuDevicePrimaryCtxRelease_v2(0));
    Cuda::TearDown();
  }
  static CUgreenCtx make(CUdevResource part) {
    CUdevResourceDesc description = nullptr;
    CUgreenCtx green = nullptr;
    EXPECT_OK(cuDevResourceGenerateDesc(&description, &part, 1));
    EXPECT_OK(cuGreenCtxCreate(&green, description, 0, CU_GREEN_CTX_DEFAULT_STREAM));
    return green;
  }
  static CUcontext as_context(CUgreenCtx green) {
    CUcontext made = nullptr;
    EXPECT_OK(cuCtxFromGreenCtx(&made, green));
    return made;
  }
  // Device time until both of two streams have run a kernel of the primary context that wants the whole card.
  float both_ms(CUstream a, CUstream b) {
    CUmodule code = nullptr;
    CUfunction fill = nullptr;
    EXPECT_OK(cuCtxSetCurrent(primary));
    EXPECT_OK(cuModuleLoadData(&code, kTestKernels));
    EXPECT_OK(cuModuleGetFunction(&fill, code, "tensor_fusion_busy"));
    CUevent begin = nullptr, end_a = nullptr, end_b = nullptr;
    for (CUevent* each : {&begin, &end_a, &end_b}) EXPECT_OK(cuEventCreate(each, 0));
    std::uint64_t ns = 4'000'000;
    void* params[] = {&ns};
    Held held(a);
    EXPECT_OK(cuEventRecord(begin, a));
    EXPECT_OK(cuStreamWaitEvent(b, begin, 0));
    EXPECT_OK(cuLaunchKernel(fill, 1024, 1, 1, 1, 1, 1, 0, a, params, nullptr));
    EXPECT_OK(cuLaunchKernel(fill, 1024, 1, 1, 1, 1, 1, 0, b, params, nullptr));
    EXPECT_OK(cuEventRecord(end_a, a));
    EXPECT_OK(cuEventRecord(end_b, b));
    held.let_go();
    EXPECT_OK(cuEventSynchronize(end_a));
    EXPECT_OK(cuEventSynchronize(end_b));
    float ms_a = 0, ms_b = 0;
    EXPECT_OK(cuEventElapsedTime(&ms_a, begin, end_a));
    EXPECT_OK(cuEventElapsedTime(&ms_b, begin, end_b));
    EXPECT_OK(cuModuleUnload(code));
    return std::max(ms_a, ms_b);
  }
  CUcontext primary = nullptr;
  CUdevResource all{};
};

TEST_F(GreenContexts, are_made_of_groups_as_large_as_the_card_s_generation_wants) {
  EXPECT_EQ(all.sm.smCount, 132U);
  CUdevResource groups[32], rest{};
  unsigned count = 0;
  EXPECT_OK(cuDevSmResourceSplitByCount(nullptr, &count, &all, nullptr, 0, 10));
  EXPECT_EQ(count, 8U);  // of 16
  count = 3;
  ASSERT_OK(cuDevSmResourceSplitByCount(groups, &count, &all, &rest, 0, 10));
  EXPECT_EQ(count, 3U);
  EXPECT_EQ(groups[2].sm.smCount, 16U);
  EXPECT_EQ(rest.sm.smCount, 132U - 48U);
  CUdevResource halves[2];
  count = 2;
  EXPECT_OK(cuDevSmResourceSplitByCount(halves, &count, &groups[0], &rest, 0, 1));
  EXPECT_EQ(halves[1].sm.smCount, 8U);
  EXPECT_EQ(rest.type, CU_DEV_RESOURCE_TYPE_INVALID);
  EXPECT_EQ(cuDevSmResourceSplitByCount(groups, &count, &halves[0], &rest, 0, 9),
            CUDA_ERROR_INVALID_RESOURCE_CONFIGURATION);
  CUdevResource forged{};
  forged.type = CU_DEV_RESOURCE_TYPE_SM;
  forged.sm.smCount = 132;
  EXPECT_EQ(cuDevSmResourceSplitByCount(groups, &count, &forged, &rest, 0, 8), CUDA_ERROR_INVALID_RESOURCE_TYPE);
  CUdevResourceDesc description = nullptr;
  CUdevResource twice[] = {halves[0], halves[0]};
  EXPECT_EQ(cuDevResourceGenerateDesc(&description, twice, 2), CUDA_ERROR_INVALID_RESOURCE_CONFIGURATION);
  ASSERT_OK(cuDevResourceGenerateDesc(&description, halves, 2));
  CUgreenCtx green = nullptr;
  EXPECT_EQ(cuGreenCtxCreate(&green, description, 0, 0), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(cuGreenCtxCreate(&green, description, 1, CU_GREEN_CTX_DEFAULT_STREAM), CUDA_ERROR_INVALID_VALUE);
  ASSERT_OK(cuGreenCtxCreate(&green, description, 0, CU_GREEN_CTX_DEFAULT_STREAM));
  EXPECT_OK(cuGreenCtxGetDevResource(green, &rest, CU_DEV_RESOURCE_TYPE_SM));
  EXPECT_EQ(rest.sm.smCount, 16U);
  EXPECT_OK(cuGreenCtxDestroy(green));
}

TEST_F(GreenContexts, run_side_by_side_each_on_its_own_part) {
  CUdevResource halves[2];
  unsigned count = 2;
  ASSERT_OK(cuDevSmResourceSplitByCount(halves, &count, &all, nullptr, 0, 64));
  ASSERT_EQ(count, 2U);
  const CUgreenCtx one = make(halves[0]), two = make(halves[1]);
  CUstream a = nullptr, b = nullptr, c = nullptr, d = nullptr;
  ASSERT_OK(cuGreenCtxStreamCreate(&a, one, CU_STREAM_NON_BLOCKING, 0));
  ASSERT_OK(cuGreenCtxStreamCreate(&b, two, CU_STREAM_NON_BLOCKING, 0));
  ASSERT_OK(cuCtxSetCurrent(primary));
  ASSERT_OK(cuStreamCreate(&c, CU_STREAM_NON_BLOCKING));
  ASSERT_OK(cuStreamCreate(&d, CU_STREAM_NON_BLOCKING));
  EXPECT_NEAR(both_ms(a, b), 4.0F, 0.2F);  // beside each other
  EXPECT_NEAR(both_ms(c, d), 8.0F, 0.2F);  // each wants all
  EXPECT_OK(cuGreenCtxDestroy(one));
  EXPECT_OK(cuGreenCtxDestroy(two));
  EXPECT_EQ(cuStreamSynchronize(a), CUDA_ERROR_INVALID_HANDLE);
  EXPECT_EQ(cuGreenCtxDestroy(one), CUDA_ERROR_INVALID_CONTEXT);
}

TEST_F(GreenContexts, are_current_like_any_other_and_share_the_primary_s_memory) {
  CUdevResource part{};
  unsigned count = 1;
  ASSERT_OK(cuDevSmResourceSplitByCount(&part, &count, &all, nullptr, 0, 32));
  const CUgreenCtx green = make(part);
  const CUcontext handle = as_context(green);
  EXPECT_EQ(as_context(green), handle);
  EXPECT_NE(handle, primary);
  ASSERT_OK(cuCtxSetCurrent(handle));
  CUcontext now = nullptr;
  EXPECT_OK(cuCtxGetCurrent(&now));
  EXPECT_EQ(now, handle);
  CUdevResource told{};
  EXPECT_OK(cuCtxGetDevResource(handle, &told, CU_DEV_RESOURCE_TYPE_SM));
  EXPECT_EQ(told.sm.smCount, 32U);
  EXPECT_OK(cuCtxGetDevResource(primary, &told, CU_DEV_RESOURCE_TYPE_SM));
  EXPECT_EQ(told.sm.smCount, 132U);
  CUmodule code = nullptr;
  CUfunction write = nullptr;
  CUdeviceptr memory = 0;
  CUstream stream = nullptr;
  CUgreenCtx of_stream = nullptr;
  ASSERT_OK(cuModuleLoadData(&code, kTestKernels));
  ASSERT_OK(cuModuleGetFunction(&write, code, "store"));
  ASSERT_OK(cuMemAlloc_v2(&memory, 4));
  ASSERT_OK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
  EXPECT_OK(cuStreamGetGreenCtx(stream, &of_stream));
  EXPECT_EQ(of_stream, green);
  EXPECT_OK(cuStreamGetGreenCtx(nullptr, &of_stream));
  EXPECT_EQ(of_stream, green);
  std::uint32_t value = 11, seen = 0;
  void* params[] = {&memory, &value};
  EXPECT_OK(cuLaunchKernel(write, 1, 1, 1, 1, 1, 1, 0, nullptr, params, nullptr));
  EXPECT_OK(cuCtxSynchronize());
  EXPECT_OK(cuCtxSetCurrent(primary));
  EXPECT_OK(cuMemcpyDtoH_v2(&seen, memory, 4));
  EXPECT_EQ(seen, 11U);
  EXPECT_OK(cuStreamGetGreenCtx(nullptr, &of_stream));
  EXPECT_EQ(of_stream, nullptr);
  EXPECT_EQ(cuCtxDestroy_v2(handle), CUDA_ERROR_INVALID_CONTEXT);
  EXPECT_OK(cuGreenCtxDestroy(green));
  EXPECT_EQ(cuCtxSetCurrent(handle), CUDA_ERROR_INVALID_CONTEXT);
  EXPECT_OK(cuModuleUnload(code));
  EXPECT_OK(cuMemFree_v2(memory));
}

TEST_F(GreenContexts, wait_for_all_of_each_other_s_streams_by_events) {
  CUdevResource halves[2];
  unsigned count = 2;
  ASSERT_OK(cuDevSmResourceSplitByCount(halves, &count, &all, nullptr, 0, 64));
  const CUgreenCtx one = make(halves[0]), two = make(halves[1]);
  CUstream a = nullptr, b = nullptr;
  ASSERT_OK(cuGreenCtxStreamCreate(&a, one, CU_STREAM_NON_BLOCKING, 0));
  ASSERT_OK(cuGreenCtxStreamCreate(&b, two, CU_STREAM_NON_BLOCKING, 0));
  ASSERT_OK(cuCtxSetCurrent(primary));
  CUstream c = nullptr;
  ASSERT_OK(cuStreamCreate(&c, CU_STREAM_NON_BLOCKING));
  CUdeviceptr flag = 0;
  CUevent event = nullptr;
  ASSERT_OK(cuMemAlloc_v2(&flag, 4));
  ASSERT_OK(cuMemsetD32_v2(flag, 0, 1));
  ASSERT_OK(cuEventCreate(&event, CU_EVENT_DISABLE_TIMING));
  ASSERT_OK(cuStreamWaitValue32_v2(a, flag, 1, CU_STREAM_WAIT_VALUE_EQ));
  EXPECT_OK(cuGreenCtxRecordEvent(one, event));
  EXPECT_OK(cuGreenCtxWaitEvent(two, event));
  EXPECT_EQ(cuEventQuery(event), CUDA_ERROR_NOT_READY);
  EXPECT_EQ(cuStreamQuery(b), CUDA_ERROR_NOT_READY);
  EXPECT_OK(cuStreamWriteValue32_v2(c, flag, 1, 0));
  EXPECT_OK(cuStreamSynchronize(b));
  EXPECT_OK(cuEventQuery(event));
  EXPECT_OK(cuCtxRecordEvent(primary, event));
  EXPECT_OK(cuCtxWaitEvent(primary, event));
  EXPECT_OK(cuEventSynchronize(event));
  EXPECT_OK(cuGreenCtxDestroy(one));
  EXPECT_OK(cuGreenCtxDestroy(two));
  EXPECT_OK(cuMemFree_v2(flag));
}

TEST_F(GreenContexts, go_with_the_primary_context) {
  CUdevResource part{};
  unsigned count = 1;
  ASSERT_OK(cuDevSmResourceSplitByCount(&part, &count, &all, nullptr, 0, 32));
  const CUgreenCtx green = make(part);
  const CUcontext handle = as_context(green);
  ASSERT_OK(cuCtxSetCurrent(handle));
  EXPECT_OK(cuDevicePrimaryCtxReset_v2(0));
  EXPECT_EQ(cuCtxSynchronize(), CUDA_ERROR_CONTEXT_IS_DESTROYED);
  EXPECT_EQ(cuGreenCtxDestroy(green), CUDA_ERROR_INVALID_CONTEXT);
  ASSERT_OK(cuDevicePrimaryCtxRetain(&primary, 0));
}

}  // namespace tensor_fusion::sim::cuda
