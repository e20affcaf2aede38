// Memory that goes out by descriptor and comes back as external memory; descriptors for other drivers.
#include "sim/cuda/external_memory.h"

#include <fcntl.h>
#include <unistd.h>

#include "sim/cuda/test_context.h"

namespace tensor_fusion::cuda {
extern "C" {
using namespace sim::cuda;
CUresult cuImportExternalMemory(CUexternalMemory*, const CUDA_EXTERNAL_MEMORY_HANDLE_DESC*);
CUresult cuExternalMemoryGetMappedBuffer(CUdeviceptr*, CUexternalMemory, const CUDA_EXTERNAL_MEMORY_BUFFER_DESC*);
CUresult cuDestroyExternalMemory(CUexternalMemory);
CUresult cuImportExternalSemaphore(CUexternalSemaphore*, const CUDA_EXTERNAL_SEMAPHORE_HANDLE_DESC*);
CUresult cuDestroyExternalSemaphore(CUexternalSemaphore);
CUresult cuSignalExternalSemaphoresAsync(const CUexternalSemaphore*, const void*, unsigned, CUstream);
CUresult cuMemGetHandleForAddressRange(void*, CUdeviceptr, std::size_t, CUmemRangeHandleType, unsigned long long);
}
}  // namespace tensor_fusion::cuda

namespace tensor_fusion::sim::cuda {
namespace {

constexpr std::size_t kUnit = std::size_t{2} << 20;

class External : public Cuda {
 protected:
  static int exported(CUmemGenericAllocationHandle& memory) {
    CUmemAllocationProp properties{};
    properties.type = CU_MEM_ALLOCATION_TYPE_PINNED;
    properties.location = {CU_MEM_LOCATION_TYPE_DEVICE, 0};
    properties.requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
    int fd = -1;
    EXPECT_OK(cuMemCreate(&memory, kUnit, &properties, 0));
    EXPECT_OK(cuMemExportToShareableHandle(&fd, memory, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0));
    return fd;
  }
  static CUDA_EXTERNAL_MEMORY_HANDLE_DESC opaque(int fd, std::size_t bytes) {
    CUDA_EXTERNAL_MEMORY_HANDLE_DESC what{};
    what.type = CU_EXTERNAL_MEMORY_HANDLE_TYPE_OPAQUE_FD;
    what.handle.fd = fd;
    what.size = bytes;
    return what;
  }
};

}  // namespace

TEST_F(External, memory_that_this_driver_exported_is_the_same_bytes_and_charged_once) {
  CUmemGenericAllocationHandle memory = 0;
  const std::size_t before = free_bytes();
  const int fd = exported(memory);
  const auto what = opaque(fd, kUnit);
  CUexternalMemory external = nullptr, again = nullptr;
  ASSERT_OK(cuImportExternalMemory(&external, &what));
  EXPECT_EQ(::fcntl(fd, F_GETFD), -1);  // the driver's now
  EXPECT_EQ(cuImportExternalMemory(&again, &what), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(free_bytes(), before - kUnit);

  CUdeviceptr all = 0, part = 0;
  CUDA_EXTERNAL_MEMORY_BUFFER_DESC range{};
  range.size = kUnit + 1;
  EXPECT_EQ(cuExternalMemoryGetMappedBuffer(&all, external, &range), CUDA_ERROR_INVALID_VALUE);
  range.size = kUnit;
  ASSERT_OK(cuExternalMemoryGetMappedBuffer(&all, external, &range));
  range.offset = 512;
  range.size = 1024;
  ASSERT_OK(cuExternalMemoryGetMappedBuffer(&part, external, &range));
  EXPECT_NE(part, all + 512);
  EXPECT_OK(cuMemsetD32_v2(all + 512, 77, 1));
  word = part;
  EXPECT_EQ(read_word(), 77U);
  EXPECT_OK(launch(add, 1));
  EXPECT_EQ(read_word(), 78U);
  EXPECT_OK(cuDestroyExternalMemory(external));
  EXPECT_EQ(cuDestroyExternalMemory(external), CUDA_ERROR_INVALID_HANDLE);
  EXPECT_EQ(cuExternalMemoryGetMappedBuffer(&all, external, &range), CUDA_ERROR_INVALID_HANDLE);
  EXPECT_EQ(read_word(), 78U);  // what is mapped stays until it is freed
  EXPECT_OK(cuMemFree_v2(part));
  EXPECT_OK(cuMemFree_v2(all));
  EXPECT_EQ(cuMemFree_v2(all), CUDA_ERROR_INVALID_VALUE);
  EXPECT_OK(cuMemRelease(memory));
  EXPECT_EQ(free_bytes(), before);
}

TEST_F(External, memory_of_others_is_refused_and_its_descriptor_left_alone) {
  const int other = ::open("/dev/null", O_RDWR);
  ASSERT_GE(other, 0);
  CUexternalMemory external = nullptr;
  auto what = opaque(other, 4096);
  EXPECT_EQ(cuImportExternalMemory(&external, &what), CUDA_ERROR_INVALID_VALUE);
  EXPECT_NE(::fcntl(other, F_GETFD), -1);
  what.type = static_cast<CUexternalMemoryHandleType>(2);  // of another system
  EXPECT_EQ(cuImportExternalMemory(&external, &what), CUDA_ERROR_NOT_SUPPORTED);
  what.type = static_cast<CUexternalMemoryHandleType>(77);
  EXPECT_EQ(cuImportExternalMemory(&external, &what), CUDA_ERROR_INVALID_VALUE);
  ::close(other);
}

TEST_F(External, semaphores_need_somebody_who_makes_them) {
  CUexternalSemaphore semaphore = nullptr;
  CUDA_EXTERNAL_SEMAPHORE_HANDLE_DESC what{};
  what.type = 1;
  EXPECT_EQ(cuImportExternalSemaphore(&semaphore, &what), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(cuSignalExternalSemaphoresAsync(&semaphore, &what, 1, nullptr), CUDA_ERROR_INVALID_HANDLE);
  EXPECT_EQ(cuDestroyExternalSemaphore(semaphore), CUDA_ERROR_INVALID_HANDLE);
}

TEST_F(External, a_range_of_device_memory_has_a_descriptor_of_its_size) {
  CUdeviceptr memory = 0;
  ASSERT_OK(cuMemAlloc_v2(&memory, 4 * kUnit));
  const CUdeviceptr page = (memory + 4095) / 4096 * 4096;
  int supported = 0, fd = -1;
  EXPECT_OK(cuDeviceGetAttribute(&supported, CU_DEVICE_ATTRIBUTE_DMA_BUF_SUPPORTED, 0));
  EXPECT_EQ(supported, 1);
  EXPECT_OK(cuMemGetHandleForAddressRange(&fd, page, kUnit, CU_MEM_RANGE_HANDLE_TYPE_DMA_BUF_FD, 0));
  EXPECT_EQ(::lseek(fd, 0, SEEK_END), static_cast<off_t>(kUnit));
  EXPECT_EQ(::write(fd, "x", 1), -1);
  ::close(fd);
  EXPECT_EQ(cuMemGetHandleForAddressRange(&fd, page + 1, 4096, CU_MEM_RANGE_HANDLE_TYPE_DMA_BUF_FD, 0),
            CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(cuMemGetHandleForAddressRange(&fd, page, 64 * kUnit, CU_MEM_RANGE_HANDLE_TYPE_DMA_BUF_FD, 0),
            CUDA_ERROR_INVALID_VALUE);
  EXPECT_OK(cuMemFree_v2(memory));
}

}  // namespace tensor_fusion::sim::cuda
