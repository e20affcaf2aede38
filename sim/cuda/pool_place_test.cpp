// Pools of the host's memory and of managed memory.
#include "sim/cuda/test_context.h"

namespace tensor_fusion::sim::cuda {

class PoolPlaces : public Cuda {
 protected:
  static CUmemoryPool new_pool(CUmemAllocationType type, CUmemLocation location) {
    CUmemPoolProps properties{};
    properties.allocType = type;
    properties.location = location;
    CUmemoryPool pool = nullptr;
    EXPECT_OK(cuMemPoolCreate(&pool, &properties));
    return pool;
  }
  // Whether a kernel may write there.
  CUresult touch(CUdeviceptr at) {
    std::uint32_t value = 77;
    void* params[] = {&at, &value};
    EXPECT_OK(cuLaunchKernel(store, 1, 1, 1, 1, 1, 1, 0, nullptr, params, nullptr));
    return cuCtxSynchronize();
  }
  CUmemLocation host{CU_MEM_LOCATION_TYPE_HOST, 0}, node{CU_MEM_LOCATION_TYPE_HOST_NUMA, 0},
      card{CU_MEM_LOCATION_TYPE_DEVICE, 0}, nowhere{CU_MEM_LOCATION_TYPE_NONE, 0};
};

TEST_F(PoolPlaces, on_the_host_take_nothing_from_a_card_and_are_the_program_s_to_use) {
  const std::size_t before = free_bytes();
  for (const CUmemLocation& location : {host, node}) {
    const CUmemoryPool pool = new_pool(CU_MEM_ALLOCATION_TYPE_PINNED, location);
    CUdeviceptr at = 0;
    ASSERT_OK(cuMemAllocFromPoolAsync(&at, 1 << 20, pool, nullptr));
    EXPECT_OK(cuStreamSynchronize(nullptr));
    EXPECT_EQ(free_bytes(), before);
    *reinterpret_cast<std::uint32_t*>(at) = 5;
    EXPECT_OK(cuMemcpyHtoD_v2(word, reinterpret_cast<void*>(at), 4));
    EXPECT_EQ(read_word(), 5U);
    unsigned type = 0;
    EXPECT_OK(cuPointerGetAttribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, at));
    EXPECT_EQ(type, static_cast<unsigned>(CU_MEMORYTYPE_HOST));
    std::uint64_t used = 0;
    EXPECT_OK(cuMemPoolGetAttribute(pool, CU_MEMPOOL_ATTR_USED_MEM_CURRENT, &used));
    EXPECT_EQ(used, std::uint64_t{1} << 20);
    EXPECT_OK(cuMemFreeAsync(at, nullptr));
    EXPECT_OK(cuMemPoolDestroy(pool));
  }
}

TEST_F(PoolPlaces, on_the_host_are_within_a_kernel_s_reach_once_its_card_has_access) {
  const CUmemoryPool pool = new_pool(CU_MEM_ALLOCATION_TYPE_PINNED, host);
  CUmemAccess_flags access{};
  EXPECT_OK(cuMemPoolGetAccess(&access, pool, &card));
  EXPECT_EQ(access, CU_MEM_ACCESS_FLAGS_PROT_NONE);
  EXPECT_OK(cuMemPoolGetAccess(&access, pool, &host));
  EXPECT_EQ(access, CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
  const CUmemAccessDesc all{card, CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
  EXPECT_OK(cuMemPoolSetAccess(pool, &all, 1));
  const CUmemAccessDesc none{host, CU_MEM_ACCESS_FLAGS_PROT_NONE};
  EXPECT_EQ(cuMemPoolSetAccess(pool, &none, 1), CUDA_ERROR_INVALID_VALUE);
  CUdeviceptr at = 0;
  ASSERT_OK(cuMemAllocFromPoolAsync(&at, 4, pool, nullptr));
  EXPECT_OK(touch(at));
  EXPECT_EQ(*reinterpret_cast<std::uint32_t*>(at), 77U);

  CUcontext other = nullptr;
  ASSERT_OK(cuCtxCreate_v2(&other, 0, 1));  // the second card has none
  CUmodule loaded = nullptr;
  CUfunction there = nullptr;
  ASSERT_OK(cuModuleLoadData(&loaded, kTestKernels));
  ASSERT_OK(cuModuleGetFunction(&there, loaded, "store"));
  std::uint32_t value = 1;
  void* params[] = {&at, &value};
  EXPECT_OK(cuLaunchKernel(there, 1, 1, 1, 1, 1, 1, 0, nullptr, params, nullptr));
  EXPECT_EQ(cuCtxSynchronize(), CUDA_ERROR_ILLEGAL_ADDRESS);
  EXPECT_OK(cuCtxDestroy_v2(other));
  ASSERT_OK(cuCtxSetCurrent(context));
  EXPECT_OK(cuMemFreeAsync(at, nullptr));
  EXPECT_OK(cuMemPoolDestroy(pool));
}

TEST_F(PoolPlaces, of_managed_memory_are_within_everybody_s_reach) {
  const std::size_t before = free_bytes();
  for (const CUmemLocation& location : {host, nowhere, card}) {
    const CUmemoryPool pool = new_pool(CU_MEM_ALLOCATION_TYPE_MANAGED, location);
    CUdeviceptr at = 0;
    ASSERT_OK(cuMemAllocFromPoolAsync(&at, 4, pool, nullptr));
    EXPECT_OK(touch(at));
    EXPECT_EQ(*reinterpret_cast<std::uint32_t*>(at), 77U);
    unsigned managed = 0;
    EXPECT_OK(cuPointerGetAttribute(&managed, CU_POINTER_ATTRIBUTE_IS_MANAGED, at));
    EXPECT_EQ(managed, 1U);
    EXPECT_EQ(free_bytes() < before, location.type == CU_MEM_LOCATION_TYPE_DEVICE);  // where it is charged
    const CUmemAccessDesc all{card, CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
    EXPECT_EQ(cuMemPoolSetAccess(pool, &all, 1), CUDA_ERROR_INVALID_VALUE);
    EXPECT_OK(cuMemFreeAsync(at, nullptr));
    EXPECT_OK(cuMemPoolDestroy(pool));
  }
}

TEST_F(PoolPlaces, each_have_a_default_pool_and_a_current_one) {
  CUmemoryPool usual = nullptr, current = nullptr, of_node = nullptr, managed = nullptr;
  ASSERT_OK(cuMemGetDefaultMemPool(&usual, &host, CU_MEM_ALLOCATION_TYPE_PINNED));
  EXPECT_OK(cuMemGetDefaultMemPool(&of_node, &node, CU_MEM_ALLOCATION_TYPE_PINNED));
  EXPECT_OK(cuMemGetDefaultMemPool(&managed, &nowhere, CU_MEM_ALLOCATION_TYPE_MANAGED));
  EXPECT_NE(usual, of_node);
  EXPECT_NE(usual, managed);
  EXPECT_EQ(cuMemPoolDestroy(usual), CUDA_ERROR_INVALID_VALUE);
  EXPECT_OK(cuMemGetMemPool(&current, &host, CU_MEM_ALLOCATION_TYPE_PINNED));
  EXPECT_EQ(current, usual);
  const CUmemoryPool mine = new_pool(CU_MEM_ALLOCATION_TYPE_PINNED, host);
  EXPECT_OK(cuMemSetMemPool(&host, CU_MEM_ALLOCATION_TYPE_PINNED, mine));
  EXPECT_EQ(cuMemSetMemPool(&node, CU_MEM_ALLOCATION_TYPE_PINNED, mine), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(cuMemSetMemPool(&card, CU_MEM_ALLOCATION_TYPE_PINNED, mine), CUDA_ERROR_INVALID_DEVICE);
  EXPECT_OK(cuMemGetMemPool(&current, &host, CU_MEM_ALLOCATION_TYPE_PINNED));
  EXPECT_EQ(current, mine);
  EXPECT_OK(cuMemPoolDestroy(mine));
  EXPECT_OK(cuMemGetMemPool(&current, &host, CU_MEM_ALLOCATION_TYPE_PINNED));
  EXPECT_EQ(current, usual);
  CUmemoryPool of_card = nullptr;
  EXPECT_OK(cuDeviceGetDefaultMemPool(&of_card, 0));
  EXPECT_OK(cuMemGetDefaultMemPool(&current, &card, CU_MEM_ALLOCATION_TYPE_PINNED));
  EXPECT_EQ(current, of_card);
}

TEST_F(PoolPlaces, are_refused_where_there_are_none) {
  CUmemPoolProps properties{};
  CUmemoryPool pool = nullptr;
  properties.allocType = CU_MEM_ALLOCATION_TYPE_PINNED;
  for (const CUmemLocation& location : {nowhere, CUmemLocation{CU_MEM_LOCATION_TYPE_HOST_NUMA_CURRENT, 0},
                                        CUmemLocation{CU_MEM_LOCATION_TYPE_HOST_NUMA, 99}}) {
    properties.location = location;
    EXPECT_EQ(cuMemPoolCreate(&pool, &properties), CUDA_ERROR_INVALID_VALUE);
  }
  properties.location = {CU_MEM_LOCATION_TYPE_DEVICE, 99};
  EXPECT_EQ(cuMemPoolCreate(&pool, &properties), CUDA_ERROR_INVALID_DEVICE);
  properties.location = host;
  properties.handleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
  EXPECT_EQ(cuMemPoolCreate(&pool, &properties), CUDA_ERROR_NOT_SUPPORTED);
  properties.allocType = CU_MEM_ALLOCATION_TYPE_MANAGED;
  EXPECT_EQ(cuMemPoolCreate(&pool, &properties), CUDA_ERROR_INVALID_VALUE);
}

}  // namespace tensor_fusion::sim::cuda
