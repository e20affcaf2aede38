#include <atomic>
#include <chrono>
#include <thread>

#include "sim/cuda/test_context.h"

namespace tensor_fusion::sim::cuda {

using Streams = Cuda;

TEST_F(Streams, run_their_work_in_order) {
  CUstream s = nullptr;
  ASSERT_OK(cuStreamCreate(&s, CU_STREAM_NON_BLOCKING));
  EXPECT_OK(launch(store, 5, s));
  EXPECT_OK(launch(add, 2, s));
  EXPECT_OK(launch(add, 1, s));
  EXPECT_OK(cuStreamSynchronize(s));
  EXPECT_EQ(read_word(), 8U);
  EXPECT_OK(cuStreamDestroy_v2(s));
  EXPECT_EQ(cuStreamSynchronize(s), CUDA_ERROR_INVALID_HANDLE);
}

TEST_F(Streams, of_the_blocking_kind_wait_for_the_legacy_stream_and_it_for_them) {
  CUstream s = nullptr;
  ASSERT_OK(cuStreamCreate(&s, CU_STREAM_DEFAULT));
  for (std::uint32_t i = 0; i < 50; ++i) {
    EXPECT_OK(launch(store, i));
    EXPECT_OK(launch(add, 100, s));
  }
  EXPECT_OK(launch(add, 1000));
  EXPECT_EQ(read_word(), 49U + 100U + 1000U);
}

TEST_F(Streams, busy_kernels_take_exactly_their_time_between_two_events) {
  CUevent begin = nullptr, end = nullptr;
  ASSERT_OK(cuEventCreate(&begin, 0));
  ASSERT_OK(cuEventCreate(&end, 0));
  Held held(nullptr);
  EXPECT_OK(cuEventRecord(begin, nullptr));
  for (int i = 0; i < 20; ++i) EXPECT_OK(launch_busy(1000));
  EXPECT_OK(cuEventRecord(end, nullptr));
  EXPECT_EQ(cuEventQuery(end), CUDA_ERROR_NOT_READY);
  float ms = 0;
  EXPECT_EQ(cuEventElapsedTime(&ms, begin, end), CUDA_ERROR_NOT_READY);
  held.let_go();
  EXPECT_OK(cuEventSynchronize(end));
  EXPECT_OK(cuEventElapsedTime(&ms, begin, end));
  EXPECT_NEAR(ms, 20.0F, 0.2F);
}

TEST_F(Streams, wait_for_events_of_other_streams) {
  CUstream a = nullptr, b = nullptr;
  ASSERT_OK(cuStreamCreate(&a, CU_STREAM_NON_BLOCKING));
  ASSERT_OK(cuStreamCreate(&b, CU_STREAM_NON_BLOCKING));
  CUevent event = nullptr;
  ASSERT_OK(cuEventCreate(&event, CU_EVENT_DISABLE_TIMING));
  EXPECT_OK(launch_busy(3000, a));
  EXPECT_OK(launch(store, 7, a));
  EXPECT_OK(cuEventRecord(event, a));
  EXPECT_OK(cuStreamWaitEvent(b, event, 0));
  EXPECT_OK(launch(add, 1, b));
  EXPECT_OK(cuStreamSynchronize(b));
  EXPECT_OK(cuEventQuery(event));
  EXPECT_EQ(read_word(), 8U);
}

TEST_F(Streams, call_host_functions_when_the_device_gets_there) {
  const auto begin = std::chrono::steady_clock::now();
  std::atomic<std::int64_t> called_after_us{-1};
  struct Call {
    std::chrono::steady_clock::time_point begin;
    std::atomic<std::int64_t>* out;
  } call{begin, &called_after_us};
  EXPECT_OK(launch_busy(20'000));
  EXPECT_OK(cuLaunchHostFunc(
      nullptr,
      [](void* data) {
        const auto& c = *static_cast<Call*>(data);
        *c.out =
            std::chrono::duration_cast<std::chrono::microseconds>(std::chrono::steady_clock::now() - c.begin).count();
      },
      &call));
  EXPECT_EQ(called_after_us, -1);
  EXPECT_OK(cuCtxSynchronize());
  EXPECT_GE(called_after_us, 20'000);
}

TEST_F(Streams, refuse_calls_from_host_functions) {
  std::atomic<int> answer{-1};
  EXPECT_OK(cuLaunchHostFunc(
      nullptr, [](void* data) { *static_cast<std::atomic<int>*>(data) = cuCtxSynchronize(); }, &answer));
  EXPECT_OK(cuCtxSynchronize());
  EXPECT_EQ(answer, CUDA_ERROR_NOT_PERMITTED);
}

TEST_F(Streams, let_go_of_a_waiting_thread_when_their_context_is_destroyed) {
  CUcontext other = nullptr;
  ASSERT_OK(cuCtxCreate_v2(&other, 0, 0));
  CUstream s = nullptr;
  CUdeviceptr flag = 0;
  ASSERT_OK(cuStreamCreate(&s, CU_STREAM_NON_BLOCKING));
  ASSERT_OK(cuMemAlloc_v2(&flag, 4));
  ASSERT_OK(cuMemsetD32_v2(flag, 0, 1));
  ASSERT_OK(cuStreamWaitValue32_v2(s, flag, 1, CU_STREAM_WAIT_VALUE_EQ));
  std::atomic<bool> waiting{false};
  std::thread waiter([&] {
    waiting = true;
    EXPECT_NE(cuStreamSynchronize(s), CUDA_SUCCESS);  // destroyed while it waits, or before
  });
  while (!waiting) std::this_thread::yield();
  EXPECT_OK(cuCtxDestroy_v2(other));
  waiter.join();
}

TEST_F(Streams, held_up_by_a_value_in_memory_hold_nobody_else_up) {
  CUstream held = nullptr, other = nullptr;
  ASSERT_OK(cuStreamCreate(&held, CU_STREAM_NON_BLOCKING));
  ASSERT_OK(cuStreamCreate(&other, CU_STREAM_NON_BLOCKING));
  CUdeviceptr flag = 0;
  ASSERT_OK(cuMemAlloc_v2(&flag, 4));
  ASSERT_OK(cuMemsetD32_v2(flag, 0, 1));
  EXPECT_OK(cuStreamWaitValue32_v2(held, flag, 1, CU_STREAM_WAIT_VALUE_GEQ));
  EXPECT_OK(launch(store, 9, held));
  EXPECT_OK(launch(store, 4, other));
  EXPECT_OK(cuStreamSynchronize(other));
  EXPECT_EQ(cuStreamQuery(held), CUDA_ERROR_NOT_READY);
  EXPECT_OK(cuStreamWriteValue32_v2(other, flag, 1, 0));
  EXPECT_OK(cuStreamSynchronize(held));
  EXPECT_EQ(read_word(), 9U);
  EXPECT_EQ(cuStreamWaitValue32_v2(held, 12345, 1, 0), CUDA_ERROR_INVALID_VALUE);
}

TEST_F(Streams, per_thread_default_ones_belong_to_their_thread) {
  ASSERT_OK(cuMemsetD32_v2(word, 0, 1));
  std::vector<std::thread> threads;
  for (int i = 0; i < 4; ++i)
    threads.emplace_back([&] {
      EXPECT_OK(cuCtxSetCurrent(context));
      std::uint32_t value = 1;
      void* params[] = {&word, &value};
      for (int n = 0; n < 100; ++n) EXPECT_OK(cuLaunchKernel_ptsz(add, 1, 1, 1, 1, 1, 1, 0, nullptr, params, nullptr));
    });
  for (auto& thread : threads) thread.join();
  EXPECT_OK(cuCtxSynchronize());
  EXPECT_EQ(read_word(), 400U);
}

TEST_F(Streams, are_destroyed_after_the_work_of_one_that_was_destroyed_before_is_over) {
  CUevent end = nullptr;
  ASSERT_OK(cuEventCreate(&end, 0));
  for (int i = 0; i < 5; ++i) {
    CUstream stream = nullptr;
    ASSERT_OK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    EXPECT_OK(launch_busy(500, stream));
    EXPECT_OK(cuEventRecord(end, stream));
    EXPECT_OK(cuStreamDestroy_v2(stream));
    EXPECT_OK(cuEventSynchronize(end));
  }
}

TEST_F(Streams, more_than_lanes_exist_all_work) {
  std::vector<CUstream> many(100);
  for (auto& s : many) ASSERT_OK(cuStreamCreate(&s, CU_STREAM_NON_BLOCKING));
  for (int round = 0; round < 3; ++round)
    for (auto& s : many) EXPECT_OK(launch(add, 1, s));
  EXPECT_OK(cuCtxSynchronize());
  EXPECT_EQ(read_word(), 300U);
  for (auto& s : many) EXPECT_OK(cuStreamDestroy_v2(s));
}

}  // namespace tensor_fusion::sim::cuda
