#include <cstring>
#include <numeric>
#include <thread>
#include <vector>

#include "sim/cuda/test_context.h"

namespace tensor_fusion::sim::cuda {

using Memory = Cuda;

TEST_F(Memory, is_charged_while_held_and_no_longer) {
  const std::size_t before = free_bytes();
  CUdeviceptr p = 0;
  ASSERT_OK(cuMemAlloc_v2(&p, 1'000'000));
  EXPECT_EQ(before - free_bytes(), 1'000'448U);  // in units of 512
  EXPECT_EQ(p % 512, 0U);
  EXPECT_OK(cuMemFree_v2(p));
  EXPECT_EQ(free_bytes(), before);
  EXPECT_EQ(cuMemFree_v2(p), CUDA_ERROR_INVALID_VALUE);
}

TEST_F(Memory, beyond_the_card_is_out_of_memory_and_leaves_nothing) {
  const std::size_t before = free_bytes();
  CUdeviceptr p = 0;
  EXPECT_EQ(cuMemAlloc_v2(&p, before + 4096), CUDA_ERROR_OUT_OF_MEMORY);
  EXPECT_EQ(cuMemAlloc_v2(&p, ~std::size_t{0} - 100), CUDA_ERROR_OUT_OF_MEMORY);
  EXPECT_EQ(free_bytes(), before);
  EXPECT_EQ(cuMemAlloc_v2(&p, 0), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(cuMemAlloc_v2(nullptr, 4), CUDA_ERROR_INVALID_VALUE);
}

TEST_F(Memory, of_a_destroyed_context_comes_back) {
  const std::size_t before = free_bytes();
  CUcontext other = nullptr;
  ASSERT_OK(cuCtxCreate_v2(&other, 0, 0));
  CUdeviceptr p = 0;
  ASSERT_OK(cuMemAlloc_v2(&p, 100 << 20));
  EXPECT_OK(cuCtxDestroy_v2(other));
  EXPECT_EQ(free_bytes(), before);
}

TEST_F(Memory, copies_carry_every_byte_in_all_shapes) {
  std::vector<std::uint16_t> from(64 * 32), to(from.size());
  std::iota(from.begin(), from.end(), std::uint16_t{1});
  CUdeviceptr a = 0, b = 0;
  std::size_t pitch = 0;
  ASSERT_OK(cuMemAllocPitch_v2(&a, &pitch, 128, 32, 4));
  ASSERT_OK(cuMemAlloc_v2(&b, from.size() * 2));
  EXPECT_GE(pitch, 128U);
  CUDA_MEMCPY2D in{};
  in.srcMemoryType = CU_MEMORYTYPE_HOST, in.srcHost = from.data(), in.srcPitch = 128;
  in.dstMemoryType = CU_MEMORYTYPE_DEVICE, in.dstDevice = a, in.dstPitch = pitch;
  in.WidthInBytes = 128, in.Height = 32;
  EXPECT_OK(cuMemcpy2D_v2(&in));
  CUDA_MEMCPY2D across{};
  across.srcMemoryType = across.dstMemoryType = CU_MEMORYTYPE_DEVICE;
  across.srcDevice = a, across.srcPitch = pitch, across.dstDevice = b, across.dstPitch = 128;
  across.WidthInBytes = 128, across.Height = 32;
  EXPECT_OK(cuMemcpy2D_v2(&across));
  EXPECT_OK(cuMemcpyDtoH_v2(to.data(), b, to.size() * 2));
  EXPECT_EQ(from, to);
  EXPECT_EQ(cuMemcpyDtoH_v2(to.data(), b, from.size() * 2 + 4096), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(cuMemcpyHtoD_v2(b + (1 << 30), from.data(), 4), CUDA_ERROR_INVALID_VALUE);
}

TEST_F(Memory, asynchronous_copies_take_pageable_bytes_before_they_return) {
  CUstream s = nullptr;
  ASSERT_OK(cuStreamCreate(&s, CU_STREAM_NON_BLOCKING));
  EXPECT_OK(launch_busy(5000, s));
  EXPECT_OK(launch(store, 1, s));  // something in front that must be executed
  std::vector<char> source(4096, 'a'), back(4096);
  CUdeviceptr p = 0;
  ASSERT_OK(cuMemAlloc_v2(&p, 4096));
  EXPECT_OK(cuMemcpyHtoDAsync_v2(p, source.data(), 4096, s));
  std::memset(source.data(), 'b', 4096);
  EXPECT_OK(cuStreamSynchronize(s));
  EXPECT_OK(cuMemcpyDtoH_v2(back.data(), p, 4096));
  EXPECT_EQ(back, std::vector<char>(4096, 'a'));
}

TEST_F(Memory, fills_by_element_and_row) {
  CUdeviceptr p = 0;
  ASSERT_OK(cuMemAlloc_v2(&p, 64));
  EXPECT_OK(cuMemsetD32_v2(p, 0, 16));
  EXPECT_OK(cuMemsetD2D16_v2(p, 16, 0xabcd, 2, 4));
  std::uint16_t back[32];
  EXPECT_OK(cuMemcpyDtoH_v2(back, p, 64));
  for (int i = 0; i < 32; ++i) EXPECT_EQ(back[i], i % 8 < 2 ? 0xabcd : 0) << i;
  EXPECT_EQ(cuMemsetD2D16_v2(p + 1, 16, 1, 1, 1), CUDA_ERROR_INVALID_VALUE);
}

TEST_F(Memory, pinned_on_the_host_can_be_used_by_kernels) {
  void* pinned = nullptr;
  ASSERT_OK(cuMemHostAlloc(&pinned, 64, CU_MEMHOSTALLOC_DEVICEMAP));
  *static_cast<std::uint32_t*>(pinned) = 40;
  CUdeviceptr address = reinterpret_cast<CUdeviceptr>(pinned);
  std::uint32_t two = 2;
  void* params[] = {&address, &two};
  EXPECT_OK(cuLaunchKernel(add, 1, 1, 1, 1, 1, 1, 0, nullptr, params, nullptr));
  EXPECT_OK(cuCtxSynchronize());
  EXPECT_EQ(*static_cast<std::uint32_t*>(pinned), 42U);
  unsigned type = 0;
  EXPECT_OK(cuPointerGetAttribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, address));
  EXPECT_EQ(type, static_cast<unsigned>(CU_MEMORYTYPE_HOST));
  EXPECT_OK(cuMemFreeHost(pinned));
  int local = 0;
  EXPECT_OK(cuMemHostRegister_v2(&local, sizeof local, 0));
  EXPECT_EQ(cuMemHostRegister_v2(&local, sizeof local, 0), CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED);
  EXPECT_OK(cuMemHostUnregister(&local));
  EXPECT_EQ(cuMemHostUnregister(&local), CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED);
}

TEST_F(Memory, from_pools_is_reserved_in_chunks_and_given_back_when_trimmed) {
  CUmemoryPool pool = nullptr;
  ASSERT_OK(cuDeviceGetDefaultMemPool(&pool, 0));
  EXPECT_OK(cuCtxSynchronize());
  EXPECT_OK(cuMemPoolTrimTo(pool, 0));
  const std::size_t before = free_bytes();
  CUdeviceptr p = 0, q = 0;
  ASSERT_OK(cuMemAllocAsync(&p, 1000, nullptr));
  std::uint64_t reserved = 0, used = 0;
  EXPECT_OK(cuMemPoolGetAttribute(pool, CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT, &reserved));
  EXPECT_OK(cuMemPoolGetAttribute(pool, CU_MEMPOOL_ATTR_USED_MEM_CURRENT, &used));
  EXPECT_EQ(reserved, std::uint64_t{32} << 20);
  EXPECT_EQ(used, 1024U);
  EXPECT_EQ(before - free_bytes(), reserved);
  EXPECT_OK(cuMemFreeAsync(p, nullptr));
  ASSERT_OK(cuMemAllocAsync(&q, 1000, nullptr));
  EXPECT_EQ(q, p);  // at once, by the stream that freed it
  EXPECT_OK(cuMemFreeAsync(q, nullptr));
  EXPECT_EQ(cuMemFreeAsync(q, nullptr), CUDA_ERROR_INVALID_VALUE);
  std::uint64_t keep = ~std::uint64_t{0};
  EXPECT_OK(cuMemPoolSetAttribute(pool, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, &keep));
  EXPECT_OK(cuCtxSynchronize());
  EXPECT_EQ(before - free_bytes(), reserved);
  keep = 0;
  EXPECT_OK(cuMemPoolSetAttribute(pool, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, &keep));
  EXPECT_OK(cuCtxSynchronize());
  EXPECT_EQ(free_bytes(), before);
}

TEST_F(Memory, of_a_pool_still_serves_a_kernel_queued_before_its_free) {
  CUstream s = nullptr;
  ASSERT_OK(cuStreamCreate(&s, CU_STREAM_NON_BLOCKING));
  CUdeviceptr p = 0;
  ASSERT_OK(cuMemAllocAsync(&p, 4, s));
  std::uint32_t value = 1;
  void* params[] = {&p, &value};
  for (int i = 0; i < 20; ++i) EXPECT_OK(cuLaunchKernel(store, 1, 1, 1, 1, 1, 1, 0, s, params, nullptr));
  EXPECT_OK(cuMemFreeAsync(p, s));
  EXPECT_OK(cuStreamSynchronize(s));
}

TEST_F(Memory, mapped_by_hand_obeys_its_access) {
  CUmemAllocationProp properties{};
  properties.type = CU_MEM_ALLOCATION_TYPE_PINNED;
  properties.location = {CU_MEM_LOCATION_TYPE_DEVICE, 0};
  properties.requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
  std::size_t unit = 0;
  ASSERT_OK(cuMemGetAllocationGranularity(&unit, &properties, CU_MEM_ALLOC_GRANULARITY_MINIMUM));
  const std::size_t before = free_bytes();
  CUmemGenericAllocationHandle memory = 0;
  EXPECT_EQ(cuMemCreate(&memory, unit + 1, &properties, 0), CUDA_ERROR_INVALID_VALUE);
  ASSERT_OK(cuMemCreate(&memory, unit, &properties, 0));
  EXPECT_EQ(before - free_bytes(), unit);
  CUdeviceptr at = 0;
  ASSERT_OK(cuMemAddressReserve(&at, 2 * unit, 0, 0, 0));
  ASSERT_OK(cuMemMap(at, unit, 0, memory, 0));
  EXPECT_EQ(cuMemMap(at, unit, 0, memory, 0), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(cuMemMap(at + 2 * unit, unit, 0, memory, 0), CUDA_ERROR_INVALID_VALUE);
  const CUmemAccessDesc all{{CU_MEM_LOCATION_TYPE_DEVICE, 0}, CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
  ASSERT_OK(cuMemSetAccess(at, unit, &all, 1));
  ASSERT_OK(cuMemMap(at + unit, unit, 0, memory, 0));  // the same bytes twice
  ASSERT_OK(cuMemSetAccess(at + unit, unit, &all, 1));
  EXPECT_OK(cuMemsetD32_v2(at, 0x1234, unit / 4));
  std::uint32_t seen = 0;
  EXPECT_OK(cuMemcpyDtoH_v2(&seen, at + unit + 8, 4));
  EXPECT_EQ(seen, 0x1234U);
  EXPECT_OK(cuMemRelease(memory));
  EXPECT_EQ(cuMemRelease(memory), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(before - free_bytes(), unit);  // the mappings hold it
  EXPECT_EQ(cuMemAddressFree(at, 2 * unit), CUDA_ERROR_INVALID_VALUE);
  EXPECT_OK(cuMemUnmap(at, 2 * unit));
  EXPECT_EQ(free_bytes(), before);
  EXPECT_OK(cuMemAddressFree(at, 2 * unit));
}

TEST_F(Memory, moves_between_two_cards) {
  int can = 0;
  ASSERT_OK(cuDeviceCanAccessPeer(&can, 0, 1));
  EXPECT_EQ(can, 1);
  CUcontext second = nullptr;
  ASSERT_OK(cuCtxCreate_v2(&second, 0, 1));
  CUdeviceptr there = 0;
  ASSERT_OK(cuMemAlloc_v2(&there, 4));
  ASSERT_OK(cuCtxSetCurrent(context));
  EXPECT_OK(launch(store, 77));
  EXPECT_OK(cuMemcpyPeer(there, second, word, context, 4));
  std::uint32_t seen = 0;
  EXPECT_OK(cuMemcpyDtoH_v2(&seen, there, 4));
  EXPECT_EQ(seen, 77U);
  EXPECT_OK(cuCtxEnablePeerAccess(second, 0));
  EXPECT_EQ(cuCtxEnablePeerAccess(second, 0), CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED);
  std::uint32_t one = 1;
  void* params[] = {&there, &one};
  EXPECT_OK(cuLaunchKernel(add, 1, 1, 1, 1, 1, 1, 0, nullptr, params, nullptr));
  EXPECT_OK(cuMemcpyDtoH_v2(&seen, there, 4));
  EXPECT_EQ(seen, 78U);
  EXPECT_OK(cuCtxDestroy_v2(second));
}

TEST_F(Memory, goes_and_comes_with_a_checkpoint) {
  CUdeviceptr p = 0;
  ASSERT_OK(cuMemAlloc_v2(&p, 1 << 20));
  EXPECT_OK(launch(store, 5));
  const std::size_t held = free_bytes();
  const int self = static_cast<int>(::getpid());
  CUprocessState state{};
  EXPECT_EQ(cuCheckpointProcessUnlock(self, nullptr), CUDA_ERROR_ILLEGAL_STATE);
  EXPECT_OK(cuCheckpointProcessLock(self, nullptr));
  EXPECT_OK(cuCheckpointProcessGetState(self, &state));
  EXPECT_EQ(state, CU_PROCESS_STATE_LOCKED);
  EXPECT_OK(cuCheckpointProcessCheckpoint(self, nullptr));
  EXPECT_EQ(cuCheckpointProcessCheckpoint(self, nullptr), CUDA_ERROR_ILLEGAL_STATE);
  EXPECT_OK(cuCheckpointProcessRestore(self, nullptr));
  EXPECT_OK(cuCheckpointProcessUnlock(self, nullptr));
  EXPECT_EQ(free_bytes(), held);
  EXPECT_EQ(read_word(), 5U);
}

TEST_F(Memory, waits_for_a_checkpoint_without_holding_up_who_ends_the_wait) {
  const int self = static_cast<int>(::getpid());
  CUstream stream = nullptr;
  CUdeviceptr flag = 0;
  ASSERT_OK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
  ASSERT_OK(cuMemAlloc_v2(&flag, 4));
  ASSERT_OK(cuMemsetD32_v2(flag, 0, 1));
  ASSERT_OK(cuStreamWaitValue32_v2(stream, flag, 1, CU_STREAM_WAIT_VALUE_EQ));
  std::thread locker([&] { EXPECT_EQ(cuCheckpointProcessLock(self, nullptr), CUDA_ERROR_ILLEGAL_STATE); });
  CUprocessState state{};
  while (state != CU_PROCESS_STATE_LOCKED) {
    ASSERT_OK(cuCheckpointProcessGetState(self, &state));
    std::this_thread::yield();
  }
  EXPECT_EQ(cuCheckpointProcessCheckpoint(self, nullptr), CUDA_ERROR_ILLEGAL_STATE) << "its work is not over";
  EXPECT_OK(cuCheckpointProcessUnlock(self, nullptr));
  locker.join();
  EXPECT_OK(cuMemsetD32_v2(flag, 1, 1));
  EXPECT_OK(cuStreamSynchronize(stream));
  EXPECT_OK(cuMemFree_v2(flag));
}

}  // namespace tensor_fusion::sim::cuda
