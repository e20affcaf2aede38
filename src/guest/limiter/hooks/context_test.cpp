#include <gtest/gtest.h>

#include <atomic>
#include <cstdlib>
#include <string>
#include <thread>

#include "guest/limiter/hooks/entry.h"
#include "guest/limiter/testing/fake_memory.h"

namespace tensor_fusion::guest::limiter {
namespace {

using testing::FakeMemory;
constexpr std::size_t kMiB = 1 << 20;

TEST(ContextLimit, charges_what_kernels_may_take_beyond_a_new_context) {
  FakeMemory& fake = FakeMemory::get();
  for (const CUlimit limit : {CU_LIMIT_MALLOC_HEAP_SIZE, CU_LIMIT_PRINTF_FIFO_SIZE}) {
    fake.limits[limit] = 8 * kMiB;
    ASSERT_EQ(cuCtxSetLimit(limit, 4 * kMiB), CUDA_SUCCESS);
    EXPECT_EQ(fake.charged(), 0u);
    ASSERT_EQ(cuCtxSetLimit(limit, 108 * kMiB), CUDA_SUCCESS);
    EXPECT_EQ(fake.charged(), 100 * kMiB);
    EXPECT_EQ(cuCtxSetLimit(limit, 2 * FakeMemory::kLimit), CUDA_ERROR_OUT_OF_MEMORY);
    EXPECT_EQ(fake.limits[limit], 108 * kMiB) << "the driver was asked all the same";
    EXPECT_EQ(fake.charged(), 100 * kMiB);
    ASSERT_EQ(cuCtxSetLimit(limit, 18 * kMiB), CUDA_SUCCESS);
    EXPECT_EQ(fake.charged(), 10 * kMiB);
    ASSERT_EQ(cuCtxSetLimit(limit, 8 * kMiB), CUDA_SUCCESS);
    EXPECT_EQ(fake.charged(), 0u);
  }
  ASSERT_EQ(cuCtxSetLimit(CU_LIMIT_STACK_SIZE, 64 * kMiB), CUDA_SUCCESS);
  EXPECT_EQ(fake.charged(), 0u);
}

TEST(Context, gives_back_with_its_end_what_was_mapped_into_any_of_its_arrays) {
  FakeMemory& fake = FakeMemory::get();
  fake.tile = 0;
  CUcontext context = nullptr;
  ASSERT_EQ(cuCtxCreate_v2(&context, 0, 0), CUDA_SUCCESS);
  const std::uint64_t before = fake.charged();
  for (int i = 0; i < 200; ++i) {
    CUarray array = nullptr;
    const CUDA_ARRAY3D_DESCRIPTOR shape{256, 256, 0, CU_AD_FORMAT_FLOAT, 1, CUDA_ARRAY3D_SPARSE};
    ASSERT_EQ(cuArray3DCreate_v2(&array, &shape), CUDA_SUCCESS);
    CUmemAllocationProp prop{};
    prop.location = {CU_MEM_LOCATION_TYPE_DEVICE, 0};
    CUmemGenericAllocationHandle memory = 0;
    ASSERT_EQ(cuMemCreate(&memory, kMiB, &prop, 0), CUDA_SUCCESS);
    CUarrayMapInfo info{};
    info.resource.array = array;
    info.subresource.sparseLevel.extentWidth = info.subresource.sparseLevel.extentHeight = 256;
    info.subresource.sparseLevel.extentDepth = 1;
    info.memOperationType = CU_MEM_OPERATION_TYPE_MAP;
    info.memHandle.memHandle = memory;
    ASSERT_EQ(cuMemMapArrayAsync(&info, 1, nullptr), CUDA_SUCCESS);
    ASSERT_EQ(cuMemRelease(memory), CUDA_SUCCESS);
  }
  EXPECT_EQ(fake.charged() - before, 200 * kMiB);
  ASSERT_EQ(cuCtxDestroy_v2(context), CUDA_SUCCESS);
  EXPECT_EQ(fake.charged(), 0u);
}

TEST(Context, whose_end_reports_what_a_kernel_did_before_is_gone_all_the_same) {
  FakeMemory& fake = FakeMemory::get();
  fake.slice.grant().devices[0].context_overhead_bytes = 64 * kMiB;
  static CUresult answer;
  const auto plain = g_driver.cuCtxDestroy_v2;
  g_driver.cuCtxDestroy_v2 = [](CUcontext) { return answer; };
  CUcontext context = nullptr;
  ASSERT_EQ(cuCtxCreate_v2(&context, 0, 0), CUDA_SUCCESS);
  answer = CUDA_ERROR_INVALID_CONTEXT;
  EXPECT_EQ(cuCtxDestroy_v2(context), answer);
  EXPECT_EQ(fake.charged(), 64 * kMiB);
  answer = CUDA_ERROR_ILLEGAL_ADDRESS;
  EXPECT_EQ(cuCtxDestroy_v2(context), answer);
  EXPECT_EQ(fake.charged(), 0u);
  g_driver.cuCtxDestroy_v2 = plain;
  fake.slice.grant().devices[0].context_overhead_bytes = 0;
}

CUresult take(CUmemGenericAllocationHandle& memory, std::size_t bytes) {
  CUmemAllocationProp prop{};
  prop.location = {CU_MEM_LOCATION_TYPE_DEVICE, 0};
  return cuMemCreate(&memory, bytes, &prop, 0);
}

TEST(Refused, memory_is_explained_with_what_was_asked_and_who_holds_what) {
  FakeMemory::get();  // the slice and the driver that all of these tests run in
  setenv("TENSOR_FUSION_LIMITER_LOG", "1", 1);
  CUmemGenericAllocationHandle held = 0;
  CUmemGenericAllocationHandle memory = 0;
  ASSERT_EQ(take(held, 300 * kMiB), CUDA_SUCCESS);
  ::testing::internal::CaptureStderr();
  EXPECT_EQ(take(memory, 800 * kMiB), CUDA_ERROR_OUT_OF_MEMORY);
  const std::string said = ::testing::internal::GetCapturedStderr();
  EXPECT_NE(said.find("800 MiB on device 0: the limit is 1024 MiB, held are 300 MiB by 1 process (300 MiB by this"),
            std::string::npos)
      << said;
  ASSERT_EQ(cuMemRelease(held), CUDA_SUCCESS);
  unsetenv("TENSOR_FUSION_LIMITER_LOG");
}

TEST(ContextCost, is_guessed_while_nobody_can_measure_it_and_booked_once_it_is_known) {
  FakeMemory& fake = FakeMemory::get();  // no hypervisor, and none has ever read the driver
  contract::GrantDevice& grant = fake.slice.grant().devices[0];
  CUcontext context = nullptr;
  ASSERT_EQ(cuCtxCreate_v2(&context, 0, 0), CUDA_SUCCESS);
  EXPECT_EQ(fake.charged(), 512 * kMiB);
  EXPECT_EQ(fake.slice.claim().processes[0].devices[0].guessed_bytes.load(), 512 * kMiB)
      << "so that it can be measured";
  CUmemGenericAllocationHandle memory = 0;
  EXPECT_EQ(take(memory, 600 * kMiB), CUDA_ERROR_OUT_OF_MEMORY);
  grant.context_overhead_bytes = 64 * kMiB;
  ASSERT_EQ(take(memory, 600 * kMiB), CUDA_SUCCESS);
  EXPECT_EQ(fake.charged(), 664 * kMiB);
  EXPECT_EQ(fake.slice.claim().processes[0].devices[0].guessed_bytes.load(), 0u);
  ASSERT_EQ(cuMemRelease(memory), CUDA_SUCCESS);
  ASSERT_EQ(cuCtxDestroy_v2(context), CUDA_SUCCESS);
  EXPECT_EQ(fake.charged(), 0u);
  grant.context_overhead_bytes = 0;
}

TEST(ContextCost, is_guessed_when_the_last_reading_is_older_than_the_context) {
  FakeMemory& fake = FakeMemory::get();
  contract::GrantDevice& grant = fake.slice.grant().devices[0];
  grant.reading_begun = grant.reading_mark = 1;
  grant.observed_bytes = 1;  // the slice held nothing then
  grant.reading_done = 1;
  CUcontext context = nullptr;
  ASSERT_EQ(cuCtxCreate_v2(&context, 0, 0), CUDA_SUCCESS);
  EXPECT_EQ(fake.charged(), 512 * kMiB);
  ASSERT_EQ(cuCtxDestroy_v2(context), CUDA_SUCCESS);
  EXPECT_EQ(fake.charged(), 0u);
  EXPECT_EQ(fake.slice.claim().processes[0].devices[0].guessed_bytes.load(), 0u);
  grant.reading_done = 0;
}

TEST(ContextCost, is_no_more_than_the_driver_shows_where_what_was_learned_is_too_much) {
  FakeMemory& fake = FakeMemory::get();
  contract::GrantDevice& grant = fake.slice.grant().devices[0];
  static std::atomic<std::uint64_t> shown;
  shown = 300 * kMiB;
  grant.context_overhead_bytes = 400 * kMiB;
  fake.slice.start_hypervisor([](std::uint32_t) { return shown.load(); });
  while (grant.reading_done == 0) std::this_thread::yield();
  CUcontext context = nullptr;
  ASSERT_EQ(cuCtxCreate_v2(&context, 0, 0), CUDA_SUCCESS);
  EXPECT_EQ(fake.charged(), 300 * kMiB);
  CUmemGenericAllocationHandle memory = 0;
  ASSERT_EQ(take(memory, 600 * kMiB), CUDA_SUCCESS) << "what it does not cost is the program's";
  ASSERT_EQ(cuMemRelease(memory), CUDA_SUCCESS);
  ASSERT_EQ(cuCtxDestroy_v2(context), CUDA_SUCCESS);
  EXPECT_EQ(fake.charged(), 0u);
  shown = 0;  // as of a process that the driver does not see
  ASSERT_EQ(cuCtxCreate_v2(&context, 0, 0), CUDA_SUCCESS);
  EXPECT_EQ(fake.charged(), 400 * kMiB);
  ASSERT_EQ(cuCtxDestroy_v2(context), CUDA_SUCCESS);
  EXPECT_EQ(fake.charged(), 0u);
  fake.slice.stop_hypervisor();
  grant.context_overhead_bytes = 0;
  grant.reading_done = 0;
}

TEST(ContextCost, is_not_asked_for_where_no_reading_could_tell_whose_it_is) {
  FakeMemory& fake = FakeMemory::get();
  contract::GrantDevice& grant = fake.slice.grant().devices[0];
  contract::ClaimPage& claim = fake.slice.claim();
  grant.context_overhead_bytes = 400 * kMiB;
  grant.flags.fetch_or(contract::kMemoryUnlimited);  // so that nothing else asks
  claim.process_high = 2;
  claim.processes[1].pid = 1;
  claim.processes[1].state = contract::kSlotLive;
  fake.slice.start_hypervisor({}, false);
  while (fake.slice.grant().process_count != 2 || (fake.slice.grant().process_sequence & 1) != 0)
    std::this_thread::yield();
  const std::uint32_t asked = claim.processes[0].devices[0].settle_request;
  CUcontext context = nullptr;
  ASSERT_EQ(cuCtxCreate_v2(&context, 0, 0), CUDA_SUCCESS);
  EXPECT_EQ(claim.processes[0].devices[0].settle_request.load(), asked) << "it would wait for the hypervisor";
  EXPECT_EQ(fake.charged(), 400 * kMiB);
  ASSERT_EQ(cuCtxDestroy_v2(context), CUDA_SUCCESS);
  claim.processes[1].state = contract::kSlotFree;
  claim.process_high = 1;
  fake.slice.stop_hypervisor();
  grant.flags.fetch_and(~contract::kMemoryUnlimited);
  grant.context_overhead_bytes = 0;
  grant.reading_done = 0;
}

TEST(ContextCost, is_looked_for_in_what_is_left_without_counting_refusals) {
  FakeMemory& fake = FakeMemory::get();
  contract::GrantDevice& grant = fake.slice.grant().devices[0];
  auto& refused = fake.slice.claim().devices[0].refused;
  grant.memory_limit_bytes = 300 * kMiB;
  refused = 0;
  fake.slice.start_hypervisor([](std::uint32_t) { return 30 * kMiB; });  // less is left than the ledger says
  while (grant.observed_bytes != 30 * kMiB) std::this_thread::yield();
  CUcontext context = nullptr;
  ASSERT_EQ(cuCtxCreate_v2(&context, 0, 0), CUDA_SUCCESS);
  EXPECT_GT(fake.charged(), 200 * kMiB);
  EXPECT_LE(fake.charged(), 270 * kMiB);
  EXPECT_EQ(refused.load(), 0u);
  fake.slice.stop_hypervisor();
  CUcontext second = nullptr;
  EXPECT_EQ(cuCtxCreate_v2(&second, 0, 0), CUDA_ERROR_OUT_OF_MEMORY);
  EXPECT_EQ(refused.load(), 1u) << "a context that could not be made is one";
  ASSERT_EQ(cuCtxDestroy_v2(context), CUDA_SUCCESS);
  EXPECT_EQ(fake.charged(), 0u);
  grant.memory_limit_bytes = FakeMemory::kLimit;
  grant.reading_done = 0;
}

}  // namespace
}  // namespace tensor_fusion::guest::limiter
