// The hooks of streams: which captures the limiter takes to be under way.
#include <gtest/gtest.h>

#include <atomic>
#include <thread>

#include "guest/limiter/core/captures.h"
#include "guest/limiter/hooks/entry.h"
#include "guest/limiter/testing/fake_memory.h"

namespace tensor_fusion::guest::limiter {
namespace {

using gate::g_captures;
using testing::FakeMemory;

CUresult g_answer = CUDA_SUCCESS;
bool g_counted = false;
CUstreamCaptureStatus g_status = CU_STREAM_CAPTURE_STATUS_NONE;

class Capture : public ::testing::Test {
 protected:
  Capture() {
    FakeMemory::get();
    g_driver.cuStreamBeginCapture_v2 = [](CUstream, CUstreamCaptureMode) {
      g_counted = g_captures.any();
      return g_answer;
    };
    g_driver.cuStreamBeginCaptureToGraph = [](CUstream, CUgraph, const CUgraphNode*, const CUgraphEdgeData*,
                                              std::size_t, CUstreamCaptureMode) { return g_answer; };
    g_driver.cuStreamEndCapture = [](CUstream, CUgraph*) { return g_answer; };
    g_driver.cuStreamIsCapturing = [](CUstream, CUstreamCaptureStatus* status) {
      *status = g_status;
      return CUDA_SUCCESS;
    };
    g_driver.cuStreamDestroy_v2 = [](CUstream) { return g_answer; };
    g_answer = CUDA_SUCCESS;
    g_status = CU_STREAM_CAPTURE_STATUS_NONE;
  }
  ~Capture() override { g_captures.clear(); }
  static void begin() {
    g_answer = CUDA_SUCCESS;
    ASSERT_EQ(cuStreamBeginCapture_v2(FakeMemory::stream(1), CU_STREAM_CAPTURE_MODE_GLOBAL), CUDA_SUCCESS);
    ASSERT_TRUE(g_captures.any());
  }
  static bool goes_on_after_an_end_of(CUresult answer) {
    begin();
    g_answer = answer;
    CUgraph graph = nullptr;
    EXPECT_EQ(cuStreamEndCapture(FakeMemory::stream(1), &graph), answer);
    const bool goes_on = g_captures.any();
    g_captures.clear();
    return goes_on;
  }
};

TEST_F(Capture, counts_before_the_driver_begins_it_in_any_mode) {
  for (const auto mode :
       {CU_STREAM_CAPTURE_MODE_GLOBAL, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL, CU_STREAM_CAPTURE_MODE_RELAXED}) {
    g_counted = false;
    ASSERT_EQ(cuStreamBeginCapture_v2(FakeMemory::stream(1), mode), CUDA_SUCCESS);
    EXPECT_TRUE(g_counted);
    CUgraph graph = nullptr;
    ASSERT_EQ(cuStreamEndCapture(FakeMemory::stream(1), &graph), CUDA_SUCCESS);
    EXPECT_FALSE(g_captures.any());
  }
  ASSERT_EQ(
      cuStreamBeginCaptureToGraph(FakeMemory::stream(1), nullptr, nullptr, nullptr, 0, CU_STREAM_CAPTURE_MODE_RELAXED),
      CUDA_SUCCESS);
  EXPECT_TRUE(g_captures.any());
}

TEST_F(Capture, that_the_driver_refuses_is_none) {
  g_answer = CUDA_ERROR_ILLEGAL_STATE;
  EXPECT_EQ(cuStreamBeginCapture_v2(FakeMemory::stream(1), CU_STREAM_CAPTURE_MODE_GLOBAL), CUDA_ERROR_ILLEGAL_STATE);
  EXPECT_TRUE(g_counted) << "it might have been one";
  EXPECT_FALSE(g_captures.any());
}

TEST_F(Capture, goes_on_when_an_end_of_it_fails_unless_the_driver_says_that_there_is_none) {
  EXPECT_FALSE(goes_on_after_an_end_of(CUDA_SUCCESS));
  EXPECT_FALSE(goes_on_after_an_end_of(CUDA_ERROR_STREAM_CAPTURE_INVALIDATED));
  EXPECT_FALSE(goes_on_after_an_end_of(CUDA_ERROR_STREAM_CAPTURE_UNJOINED));
  g_status = CU_STREAM_CAPTURE_STATUS_ACTIVE;
  EXPECT_TRUE(goes_on_after_an_end_of(CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD));
  g_status = CU_STREAM_CAPTURE_STATUS_NONE;
  EXPECT_FALSE(goes_on_after_an_end_of(CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD));
  g_driver.cuStreamIsCapturing = nullptr;
  EXPECT_TRUE(goes_on_after_an_end_of(CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD)) << "a driver that cannot say";
}

TEST_F(Capture, is_not_ended_on_a_stream_that_only_joined_it) {
  begin();
  CUgraph graph = nullptr;
  g_answer = CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
  EXPECT_EQ(cuStreamEndCapture(FakeMemory::stream(2), &graph), g_answer);
  EXPECT_TRUE(g_captures.any());
}

TEST_F(Capture, goes_with_its_stream_but_not_when_that_stays) {
  begin();
  g_answer = CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
  EXPECT_EQ(cuStreamDestroy_v2(FakeMemory::stream(1)), g_answer);
  EXPECT_TRUE(g_captures.any());
  g_answer = CUDA_SUCCESS;
  EXPECT_EQ(cuStreamDestroy_v2(FakeMemory::stream(1)), CUDA_SUCCESS);
  EXPECT_FALSE(g_captures.any());
}

TEST_F(Capture, goes_with_its_context) {
  CUcontext context = nullptr;
  ASSERT_EQ(cuCtxCreate_v2(&context, 0, 0), CUDA_SUCCESS);
  begin();
  ASSERT_EQ(cuCtxDestroy_v2(context), CUDA_SUCCESS);
  EXPECT_FALSE(g_captures.any());
  EXPECT_EQ(FakeMemory::get().charged(), 0u);
}

TEST_F(Capture, of_one_stream_is_not_spoilt_by_a_pool_that_is_full_for_another) {
  FakeMemory& fake = FakeMemory::get();
  CUmemPoolProps props{};
  props.allocType = CU_MEM_ALLOCATION_TYPE_PINNED;
  props.location = {CU_MEM_LOCATION_TYPE_DEVICE, 0};
  CUmemoryPool pool = nullptr;
  CUdeviceptr pointer = 0;
  ASSERT_EQ(cuMemPoolCreate(&pool, &props), CUDA_SUCCESS);
  const int waits = fake.waits;
  static int trims;
  trims = 0;
  const auto plain = g_driver.cuMemPoolTrimTo;
  g_driver.cuMemPoolTrimTo = [](CUmemoryPool, std::size_t) {
    ++trims;
    return CUDA_SUCCESS;
  };
  begin();
  EXPECT_EQ(cuMemAllocFromPoolAsync(&pointer, 2 * FakeMemory::kLimit, pool, FakeMemory::stream(2)),
            CUDA_ERROR_OUT_OF_MEMORY);
  EXPECT_EQ(fake.waits, waits) << "to wait is forbidden to every thread then";
  EXPECT_EQ(trims, 0) << "a pool that gives back may wait";
  g_driver.cuMemPoolTrimTo = plain;
  ASSERT_EQ(cuMemPoolDestroy(pool), CUDA_SUCCESS);
  EXPECT_EQ(fake.charged(), 0u);
}

TEST_F(Capture, ends_a_wait_of_the_limiters_own) {
  static std::atomic<int> asked;
  asked = 0;
  const auto plain = g_driver.cuStreamQuery;
  g_driver.cuStreamQuery = [](CUstream) {
    ++asked;
    return CUDA_ERROR_NOT_READY;
  };
  std::thread waiting([] { gate::wait_unless_captured(FakeMemory::stream(2), false); });
  while (asked == 0) std::this_thread::yield();
  begin();
  const int before = asked;
  waiting.join();
  EXPECT_EQ(asked, before) << "none is made during a capture";
  g_driver.cuStreamQuery = plain;
}

}  // namespace
}  // namespace tensor_fusion::guest::limiter
