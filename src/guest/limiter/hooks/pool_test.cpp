#include <gtest/gtest.h>

#include "guest/limiter/hooks/entry.h"
#include "guest/limiter/testing/fake_memory.h"

namespace tensor_fusion::guest::limiter {
namespace {

using testing::FakeMemory;
constexpr std::uint64_t kMiB = 1 << 20;

CUmemPoolProps on(CUmemLocationType type) {
  CUmemPoolProps props{};
  props.allocType = CU_MEM_ALLOCATION_TYPE_PINNED;
  props.location = {type, 0};
  return props;
}

class HostPool : public ::testing::TestWithParam<CUmemLocationType> {};
INSTANTIATE_TEST_SUITE_P(Locations, HostPool,
                         ::testing::Values(CU_MEM_LOCATION_TYPE_HOST, CU_MEM_LOCATION_TYPE_HOST_NUMA,
                                           CU_MEM_LOCATION_TYPE_HOST_NUMA_CURRENT),
                         [](const auto& place) {
                           return place.param == CU_MEM_LOCATION_TYPE_HOST        ? "host"
                                  : place.param == CU_MEM_LOCATION_TYPE_HOST_NUMA ? "node"
                                                                                  : "node_of_this_thread";
                         });

TEST_P(HostPool, is_not_charged_against_device_memory) {
  FakeMemory& fake = FakeMemory::get();
  const CUmemPoolProps props = on(GetParam());
  CUmemoryPool pool = nullptr;
  CUdeviceptr pointer = 0;
  ASSERT_EQ(cuMemPoolCreate(&pool, &props), CUDA_SUCCESS);
  ASSERT_EQ(cuMemAllocFromPoolAsync(&pointer, 2 * FakeMemory::kLimit, pool, nullptr), CUDA_SUCCESS);
  EXPECT_EQ(fake.charged(), 0u);
  ASSERT_EQ(cuMemPoolTrimTo(pool, 0), CUDA_SUCCESS);
  EXPECT_EQ(fake.charged(), 0u);
  ASSERT_EQ(cuMemPoolDestroy(pool), CUDA_SUCCESS);
  EXPECT_EQ(fake.charged(), 0u);
}

TEST_P(HostPool, of_the_drivers_own_is_not_charged_either) {
  FakeMemory& fake = FakeMemory::get();
  for (const auto ask : {&cuMemGetDefaultMemPool, &cuMemGetMemPool}) {
    CUmemLocation location{GetParam(), 0};
    CUmemoryPool pool = nullptr;
    CUdeviceptr pointer = 0;
    ASSERT_EQ(ask(&pool, &location, CU_MEM_ALLOCATION_TYPE_PINNED), CUDA_SUCCESS);
    ASSERT_EQ(cuMemAllocFromPoolAsync(&pointer, 100 * kMiB, pool, nullptr), CUDA_SUCCESS);
    EXPECT_EQ(fake.charged(), 0u);
  }
}

TEST(Pool, on_the_device_is_charged_by_its_growth) {
  FakeMemory& fake = FakeMemory::get();
  const CUmemPoolProps props = on(CU_MEM_LOCATION_TYPE_DEVICE);
  CUmemoryPool pool = nullptr;
  CUdeviceptr pointer = 0;
  ASSERT_EQ(cuMemPoolCreate(&pool, &props), CUDA_SUCCESS);
  ASSERT_EQ(cuMemAllocFromPoolAsync(&pointer, 10 * kMiB, pool, nullptr), CUDA_SUCCESS);
  EXPECT_EQ(fake.charged(), 10 * kMiB);
  EXPECT_EQ(cuMemAllocFromPoolAsync(&pointer, FakeMemory::kLimit, pool, nullptr), CUDA_ERROR_OUT_OF_MEMORY);
  fake.reserved[pool] = 0;
  ASSERT_EQ(cuMemPoolDestroy(pool), CUDA_SUCCESS);
  EXPECT_EQ(fake.charged(), 0u);
}

}  // namespace
}  // namespace tensor_fusion::guest::limiter
