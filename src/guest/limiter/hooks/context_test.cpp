#include <gtest/gtest.h>

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

}  // namespace
}  // namespace tensor_fusion::guest::limiter
