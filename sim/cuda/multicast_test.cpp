// Multicast objects on two cards behind a switch, and where there is none.
#include "sim/cuda/multicast.h"

#include <unistd.h>

#include <chrono>
#include <future>

#include "sim/cuda/test_context.h"

namespace tensor_fusion::cuda {
extern "C" {
CUresult cuMulticastCreate(CUmemGenericAllocationHandle*, const sim::cuda::CUmulticastObjectProp*);
CUresult cuMulticastAddDevice(CUmemGenericAllocationHandle, CUdevice);
CUresult cuMulticastBindMem(CUmemGenericAllocationHandle, std::size_t, CUmemGenericAllocationHandle, std::size_t,
                            std::size_t, unsigned long long);
CUresult cuMulticastBindAddr(CUmemGenericAllocationHandle, std::size_t, CUdeviceptr, std::size_t, unsigned long long);
CUresult cuMulticastUnbind(CUmemGenericAllocationHandle, CUdevice, std::size_t, std::size_t);
CUresult cuMulticastGetGranularity(std::size_t*, const sim::cuda::CUmulticastObjectProp*,
                                   sim::cuda::CUmulticastGranularity_flags);
}
}  // namespace tensor_fusion::cuda

namespace tensor_fusion::sim::cuda {
namespace {

constexpr std::size_t kUnit = std::size_t{2} << 20;
constexpr CUmulticastObjectProp kPair{2, 2 * kUnit, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0};

class Multicast : public Cuda {
 protected:
  static CUmemGenericAllocationHandle memory_on(CUdevice device) {
    CUmemAllocationProp properties{};
    properties.type = CU_MEM_ALLOCATION_TYPE_PINNED;
    properties.location = {CU_MEM_LOCATION_TYPE_DEVICE, device};
    CUmemGenericAllocationHandle memory = 0;
    EXPECT_OK(cuMemCreate(&memory, kUnit, &properties, 0));
    return memory;
  }
  static CUdeviceptr mapped(CUmemGenericAllocationHandle memory, std::size_t bytes) {
    CUdeviceptr at = 0;
    const CUmemAccessDesc both[] = {{{CU_MEM_LOCATION_TYPE_DEVICE, 0}, CU_MEM_ACCESS_FLAGS_PROT_READWRITE},
                                    {{CU_MEM_LOCATION_TYPE_DEVICE, 1}, CU_MEM_ACCESS_FLAGS_PROT_READWRITE}};
    EXPECT_OK(cuMemAddressReserve(&at, bytes, 0, 0, 0));
    EXPECT_OK(cuMemMap(at, bytes, 0, memory, 0));
    EXPECT_OK(cuMemSetAccess(at, bytes, both, 2));
    return at;
  }
  static void unmap(CUdeviceptr at, std::size_t bytes) {
    EXPECT_OK(cuMemUnmap(at, bytes));
    EXPECT_OK(cuMemAddressFree(at, bytes));
  }
  static std::uint32_t word_at(CUdeviceptr at) {
    std::uint32_t value = 0;
    EXPECT_OK(cuMemcpyDtoH_v2(&value, at, 4));
    return value;
  }
};

}  // namespace

TEST_F(Multicast, is_there_on_cards_behind_a_switch) {
  int supported = 0;
  EXPECT_OK(cuDeviceGetAttribute(&supported, CU_DEVICE_ATTRIBUTE_MULTICAST_SUPPORTED, 0));
  EXPECT_EQ(supported, 1);
  std::size_t unit = 0;
  EXPECT_OK(cuMulticastGetGranularity(&unit, &kPair, CU_MULTICAST_GRANULARITY_MINIMUM));
  EXPECT_EQ(unit, kUnit);
}

TEST_F(Multicast, shows_what_the_team_has_bound_and_charges_nothing_for_it) {
  CUmemGenericAllocationHandle object = 0;
  ASSERT_OK(cuMulticastCreate(&object, &kPair));
  EXPECT_OK(cuMulticastAddDevice(object, 0));
  EXPECT_EQ(cuMulticastAddDevice(object, 0), CUDA_ERROR_INVALID_VALUE);
  EXPECT_OK(cuMulticastAddDevice(object, 1));
  const auto first = memory_on(0), second = memory_on(1);
  const CUdeviceptr plain = mapped(first, kUnit), other = mapped(second, kUnit);
  const std::size_t free = free_bytes();

  const CUdeviceptr all = mapped(object, 2 * kUnit);
  EXPECT_OK(cuMemsetD32_v2(plain, 7, 1));
  EXPECT_OK(cuMemsetD32_v2(other, 8, 1));
  EXPECT_EQ(cuMulticastBindMem(object, 0, first, 0, kUnit / 2, 0), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(cuMulticastBindMem(object, 2 * kUnit, first, 0, kUnit, 0), CUDA_ERROR_INVALID_VALUE);
  EXPECT_OK(cuMulticastBindMem(object, kUnit, first, 0, kUnit, 0));
  EXPECT_EQ(cuMulticastBindMem(object, kUnit, first, 0, kUnit, 0), CUDA_ERROR_INVALID_VALUE);  // there is some
  EXPECT_OK(cuMulticastBindAddr(object, kUnit, other, kUnit, 0));
  EXPECT_EQ(word_at(all), 0U);
  EXPECT_EQ(word_at(all + kUnit), 7U);
  EXPECT_OK(cuMemsetD32_v2(all + kUnit, 9, 1));
  EXPECT_EQ(word_at(plain), 9U);
  EXPECT_EQ(free_bytes(), free);

  EXPECT_EQ(cuMulticastUnbind(object, 0, 0, kUnit), CUDA_ERROR_INVALID_VALUE);
  EXPECT_OK(cuMulticastUnbind(object, 0, kUnit, kUnit));
  EXPECT_EQ(word_at(all + kUnit), 8U);  // the other card's
  unmap(plain, kUnit);
  unmap(other, kUnit);
  EXPECT_OK(cuMemRelease(first));
  EXPECT_OK(cuMemRelease(second));
  EXPECT_EQ(free_bytes(), free + kUnit);  // the first card's: nobody holds it
  EXPECT_EQ(word_at(all + kUnit), 8U);    // bound memory lives on
  EXPECT_OK(cuMulticastUnbind(object, 1, kUnit, kUnit));
  EXPECT_EQ(word_at(all + kUnit), 0U);
  unmap(all, 2 * kUnit);
  EXPECT_OK(cuMemRelease(object));
  EXPECT_EQ(cuMulticastAddDevice(object, 0), CUDA_ERROR_INVALID_VALUE);
}

TEST_F(Multicast, waits_for_the_whole_team_which_gathers_from_several_processes) {
  CUmemGenericAllocationHandle object = 0, same = 0;
  ASSERT_OK(cuMulticastCreate(&object, &kPair));
  int line = -1;
  ASSERT_OK(cuMemExportToShareableHandle(&line, object, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0));
  ASSERT_OK(cuMemImportFromShareableHandle(&same, reinterpret_cast<void*>(static_cast<std::intptr_t>(line)),
                                           CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR));
  ::close(line);
  EXPECT_OK(cuMulticastAddDevice(object, 0));
  EXPECT_EQ(cuMulticastAddDevice(same, 0), CUDA_ERROR_INVALID_VALUE);
  const auto memory = memory_on(0);
  auto bound = std::async(std::launch::async, [&] { return cuMulticastBindMem(object, 0, memory, 0, kUnit, 0); });
  EXPECT_EQ(bound.wait_for(std::chrono::milliseconds(20)), std::future_status::timeout);
  EXPECT_OK(cuMulticastAddDevice(same, 1));
  EXPECT_OK(bound.get());
  EXPECT_OK(cuMemRelease(object));
  EXPECT_OK(cuMemRelease(same));
  EXPECT_OK(cuMemRelease(memory));
}

}  // namespace tensor_fusion::sim::cuda
