// Memory that others have when the process that made it lets it go. The driver here is one whose imports do not hold
// the descriptor they came by.
#include "guest/limiter/core/sharing.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <cstring>
#include <functional>
#include <string>
#include <utility>

#include "guest/limiter/hooks/entry.h"
#include "guest/limiter/testing/fake_memory.h"
#include "system/send_file.h"

namespace tensor_fusion::guest::limiter {
namespace {

using system::receive_file;
using system::send_file;
using testing::FakeMemory;
constexpr std::uint64_t kMiB = 1 << 20;
constexpr std::uint64_t kGranule = 2 * kMiB;

int driver_file = -1;          // what all that is exported is an open file of
std::uint64_t physical_bytes;  // the size of all physical memory, as mapping shows it; 0: this driver maps nothing
int released = 0;              // handles

enum class File { memory, device };
class Shared : public ::testing::TestWithParam<File> {
 protected:
  Shared() {
    driver_file = GetParam() == File::device ? ::open("/dev/null", O_RDWR | O_CLOEXEC) : ::memfd_create("exported", 0);
    g_driver.cuMemExportToShareableHandle = [](void* out, CUmemGenericAllocationHandle handle,
                                               CUmemAllocationHandleType type, std::uint64_t) {
      if (type == CU_MEM_HANDLE_TYPE_FABRIC) {
        std::memset(out, static_cast<int>(handle & 0xff), 64);
      } else {
        *static_cast<int*>(out) = ::open(("/proc/self/fd/" + std::to_string(driver_file)).c_str(), O_RDWR | O_CLOEXEC);
      }
      return CUDA_SUCCESS;
    };
    g_driver.cuMemImportFromShareableHandle = [](CUmemGenericAllocationHandle* handle, void*,
                                                 CUmemAllocationHandleType) {
      *handle = FakeMemory::get().next_handle += 0x10;
      return CUDA_SUCCESS;
    };
    g_driver.cuMemGetAllocationPropertiesFromHandle = [](CUmemAllocationProp* prop, CUmemGenericAllocationHandle) {
      prop->location = {CU_MEM_LOCATION_TYPE_DEVICE, 0};
      return CUDA_SUCCESS;
    };
    physical_bytes = kGranule;
    released = 0;
    g_driver.cuMemMap = [](CUdeviceptr, std::size_t bytes, std::size_t offset, CUmemGenericAllocationHandle,
                           std::uint64_t) {
      return offset + bytes <= physical_bytes ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
    };
    g_driver.cuMemRelease = [](CUmemGenericAllocationHandle) {
      ++released;
      return CUDA_SUCCESS;
    };
    g_driver.cuMemAddressReserve = [](CUdeviceptr* at, std::size_t, std::size_t, CUdeviceptr, std::uint64_t) {
      *at = 0x1000000;
      return CUDA_SUCCESS;
    };
    g_driver.cuMemAddressFree = [](CUdeviceptr, std::size_t) { return CUDA_SUCCESS; };
    g_driver.cuMemUnmap = [](CUdeviceptr, std::size_t) { return CUDA_SUCCESS; };
    g_driver.cuMemAlloc_v2 = [](CUdeviceptr* pointer, std::size_t) {
      *pointer = FakeMemory::get().next_handle += 0x100;
      return CUDA_SUCCESS;
    };
    g_driver.cuMemFree_v2 = [](CUdeviceptr) { return CUDA_SUCCESS; };
    g_driver.cuIpcGetMemHandle = [](CUipcMemHandle* handle, CUdeviceptr pointer) {
      *handle = {};
      std::memcpy(handle, &pointer, sizeof pointer);
      return CUDA_SUCCESS;
    };
    g_driver.cuIpcOpenMemHandle_v2 = [](CUdeviceptr* pointer, CUipcMemHandle handle, unsigned) {
      std::memcpy(pointer, &handle, sizeof *pointer);
      return CUDA_SUCCESS;
    };
    g_driver.cuIpcOpenMemHandle = g_driver.cuIpcOpenMemHandle_v2;
    g_driver.cuIpcCloseMemHandle = [](CUdeviceptr) { return CUDA_SUCCESS; };
    EXPECT_EQ(fake.charged(), 0u);
  }
  ~Shared() override {
    EXPECT_TRUE(becomes(0));
    ::close(driver_file);
  }

  static CUmemGenericAllocationHandle created(std::uint64_t bytes = kMiB) {
    CUmemAllocationProp prop{};
    prop.type = CU_MEM_ALLOCATION_TYPE_PINNED;
    prop.location = {CU_MEM_LOCATION_TYPE_DEVICE, 0};
    CUmemGenericAllocationHandle memory = 0;
    EXPECT_EQ(cuMemCreate(&memory, bytes, &prop, 0), CUDA_SUCCESS);
    return memory;
  }
  static int exported(CUmemGenericAllocationHandle memory) {
    int file = -1;
    EXPECT_EQ(cuMemExportToShareableHandle(&file, memory, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0), CUDA_SUCCESS);
    return file;
  }
  static CUmemGenericAllocationHandle imported(int file) {
    CUmemGenericAllocationHandle memory = 0;
    EXPECT_EQ(cuMemImportFromShareableHandle(&memory, reinterpret_cast<void*>(static_cast<std::intptr_t>(file)),
                                             CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR),
              CUDA_SUCCESS);
    return memory;
  }
  // By itself: nobody asks for anything.
  bool becomes(std::uint64_t charged) {
    const auto until = std::chrono::steady_clock::now() + std::chrono::seconds(10);
    while (fake.charged() != charged && std::chrono::steady_clock::now() < until) {
#if defined(__SANITIZE_THREAD__)  // no thread but those it knows
      attachment()->sharing.settle(*attachment());
#endif
      ::usleep(1000);
    }
    return fake.charged() == charged;
  }

  // A process of the same slice: takes, says so, waits to be told, and lets go.
  class Other {
   public:
    Other(const std::function<void()>& take, const std::function<void()>& let_go) {
      int up[2], down[2];
      EXPECT_EQ(::pipe(up), 0);
      EXPECT_EQ(::pipe(down), 0);
      pid_ = ::fork();
      if (pid_ == 0) {
        char byte = 0;
        ::close(down[1]);
        ::close(up[0]);
        take();
        if (::write(up[1], &byte, 1) != 1 || ::read(down[0], &byte, 1) != 0) ::_exit(2);
        let_go();
        ::close(up[1]);
        ::pause();
      }
      ::close(up[1]);
      ::close(down[0]);
      up_ = up[0];
      down_ = down[1];
      char byte;
      EXPECT_EQ(::read(up_, &byte, 1), 1);
    }
    ~Other() {
      end();
      ::close(up_);
    }
    Other(const Other&) = delete;
    Other& operator=(const Other&) = delete;
    void lets_go() {
      ::close(std::exchange(down_, -1));
      char byte;
      EXPECT_EQ(::read(up_, &byte, 1), 0);
    }
    void end() {
      if (pid_ == 0) return;
      if (down_ >= 0) ::close(std::exchange(down_, -1));
      ::kill(pid_, SIGKILL);
      ::waitpid(std::exchange(pid_, 0), nullptr, 0);
    }

   private:
    pid_t pid_ = 0;
    int up_ = -1, down_ = -1;
  };

  FakeMemory& fake = FakeMemory::get();
};
INSTANTIATE_TEST_SUITE_P(Of, Shared, ::testing::Values(File::memory, File::device), [](const auto& file) {
  return file.param == File::memory ? "a_memory_file" : "a_device_file";
});

TEST_P(Shared, memory_stays_charged_until_the_last_descriptor_is_closed) {
  const auto memory = created(), neighbour = created();
  const int first = exported(memory), second = exported(memory);
  ::close(exported(neighbour));
  ASSERT_EQ(cuMemRelease(memory), CUDA_SUCCESS);
  EXPECT_EQ(fake.charged(), 2 * kMiB);
  ::close(first);
  attachment()->sharing.settle(*attachment());
  EXPECT_EQ(fake.charged(), 2 * kMiB);
  ASSERT_EQ(cuMemRelease(neighbour), CUDA_SUCCESS);
  EXPECT_EQ(fake.charged(), kMiB) << "nobody has the other";
  ::close(second);
  EXPECT_TRUE(becomes(0));
}

TEST_P(Shared, memory_goes_at_once_when_its_descriptors_have) {
  const auto memory = created();
  ::close(exported(memory));
  ::close(exported(memory));
  EXPECT_EQ(fake.charged(), kMiB);
  ASSERT_EQ(cuMemRelease(memory), CUDA_SUCCESS);
  EXPECT_EQ(fake.charged(), 0u);
}

TEST_P(Shared, memory_is_no_room_while_held_and_is_looked_after_when_room_is_wanted) {
  const auto memory = created(FakeMemory::kLimit);
  const int file = exported(memory);
  ASSERT_EQ(cuMemRelease(memory), CUDA_SUCCESS);
  CUdeviceptr pointer = 0;
  EXPECT_EQ(cuMemAlloc_v2(&pointer, kMiB), CUDA_ERROR_OUT_OF_MEMORY);
  ::close(file);
  EXPECT_EQ(cuMemAlloc_v2(&pointer, kMiB), CUDA_SUCCESS);
  EXPECT_EQ(cuMemFree_v2(pointer), CUDA_SUCCESS);
}

TEST_P(Shared, memory_is_held_by_an_import_without_a_descriptor) {
  const auto memory = created();
  const int file = exported(memory);
  CUmemGenericAllocationHandle theirs = 0;
  Other other(
      [&] {
        theirs = imported(file);
        ::close(file);
      },
      [&] { cuMemRelease(theirs); });
  ::close(file);
  ASSERT_EQ(cuMemRelease(memory), CUDA_SUCCESS);
  EXPECT_EQ(fake.charged(), kMiB) << "once, and still";
  other.lets_go();
  EXPECT_TRUE(becomes(0));
}

TEST_P(Shared, memory_is_given_back_when_who_imported_it_dies) {
  const auto memory = created();
  const int file = exported(memory);
  Other other([&] { imported(file); }, [] {});
  ::close(file);
  ASSERT_EQ(cuMemRelease(memory), CUDA_SUCCESS);
  EXPECT_EQ(fake.charged(), kMiB);
  other.end();
  EXPECT_TRUE(becomes(0));
}

TEST_P(Shared, memory_that_an_importer_hands_on_is_its_makers_still) {
  const auto memory = created();
  const int file = exported(memory);
  const auto again = imported(file);
  ::close(file);
  const int further = exported(again);
  ASSERT_EQ(cuMemRelease(again), CUDA_SUCCESS);
  ASSERT_EQ(cuMemRelease(memory), CUDA_SUCCESS);
  EXPECT_EQ(fake.charged(), kMiB);
  ::close(further);
  EXPECT_TRUE(becomes(0));
}

TEST_P(Shared, memory_of_a_maker_who_has_died_is_charged_to_who_imports_it_once) {
  physical_bytes = 3 * kGranule;
  int line[2];
  ASSERT_EQ(::socketpair(AF_UNIX, SOCK_STREAM, 0, line), 0);
  Other maker(
      [&] {
        const int file = exported(created(physical_bytes));
        EXPECT_TRUE(send_file(line[1], file));
      },
      [] {});
  const int file = receive_file(line[0]);
  ASSERT_GE(file, 0);
  const auto early = imported(file);
  EXPECT_EQ(cuMemMap(0x10000, kMiB, 0, early, 0), CUDA_SUCCESS);
  const std::uint64_t alive = fake.charged();  // the maker's
  EXPECT_EQ(alive, physical_bytes);
  EXPECT_EQ(cuMemUnmap(0x10000, kMiB), CUDA_SUCCESS);
  EXPECT_EQ(cuMemRelease(early), CUDA_SUCCESS);
  maker.end();
  EXPECT_TRUE(attachment()->ledger.sweep());
  EXPECT_EQ(fake.charged(), 0u);
  const auto late = imported(file);
  EXPECT_EQ(fake.charged(), physical_bytes) << "also unmapped";
  const auto again = imported(file);
  EXPECT_EQ(fake.charged(), physical_bytes) << "once in a slice";
  EXPECT_EQ(cuMemMap(0x10000, physical_bytes, 0, late, 0), CUDA_SUCCESS);
  EXPECT_EQ(cuMemMap(0x1000000, kMiB, 0, again, 0), CUDA_SUCCESS);
  EXPECT_EQ(fake.charged(), physical_bytes) << "and not again when it is mapped";
  EXPECT_EQ(cuMemUnmap(0x1000000, kMiB), CUDA_SUCCESS);
  EXPECT_EQ(cuMemRelease(again), CUDA_SUCCESS);
  EXPECT_EQ(cuMemUnmap(0x10000, physical_bytes), CUDA_SUCCESS);
  EXPECT_EQ(cuMemRelease(late), CUDA_SUCCESS);
  EXPECT_EQ(fake.charged(), physical_bytes) << "the descriptor is open";
  ::close(file);
  EXPECT_TRUE(becomes(0));
  ::close(line[0]);
  ::close(line[1]);
}

TEST_P(Shared, memory_of_another_slice_is_refused_where_it_does_not_fit_or_cannot_be_measured) {
  const int file = ::open(("/proc/self/fd/" + std::to_string(driver_file)).c_str(), O_RDWR | O_CLOEXEC);
  void* const word = reinterpret_cast<void*>(static_cast<std::intptr_t>(file));
  CUmemGenericAllocationHandle memory = 0;
  for (const std::uint64_t bytes : {FakeMemory::kLimit + kGranule, 100 * FakeMemory::kLimit, std::uint64_t{0}}) {
    physical_bytes = bytes;
    released = 0;
    EXPECT_EQ(cuMemImportFromShareableHandle(&memory, word, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR),
              CUDA_ERROR_OUT_OF_MEMORY)
        << bytes;
    EXPECT_EQ(released, 1) << "the card must not keep it for this process";
    EXPECT_EQ(fake.charged(), 0u);
  }
  unsigned char fabric[64] = {7};
  EXPECT_EQ(cuMemImportFromShareableHandle(&memory, fabric, CU_MEM_HANDLE_TYPE_FABRIC), CUDA_ERROR_OUT_OF_MEMORY);
  physical_bytes = FakeMemory::kLimit;
  ASSERT_EQ(cuMemImportFromShareableHandle(&memory, fabric, CU_MEM_HANDLE_TYPE_FABRIC), CUDA_SUCCESS);
  EXPECT_EQ(fake.charged(), physical_bytes);
  EXPECT_EQ(cuMemImportFromShareableHandle(&memory, word, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR),
            CUDA_ERROR_OUT_OF_MEMORY)
      << "there is room for one";
  EXPECT_EQ(cuMemRelease(FakeMemory::get().next_handle - 0x10), CUDA_SUCCESS);
  EXPECT_TRUE(becomes(0));
  ::close(file);
}

TEST_P(Shared, memory_that_went_out_by_a_word_is_held_by_imports_only) {
  const auto memory = created();
  unsigned char word[64];
  ASSERT_EQ(cuMemExportToShareableHandle(word, memory, CU_MEM_HANDLE_TYPE_FABRIC, 0), CUDA_SUCCESS);
  CUmemGenericAllocationHandle again = 0;
  ASSERT_EQ(cuMemImportFromShareableHandle(&again, word, CU_MEM_HANDLE_TYPE_FABRIC), CUDA_SUCCESS);
  ASSERT_EQ(cuMemRelease(memory), CUDA_SUCCESS);
  EXPECT_EQ(fake.charged(), kMiB);
  ASSERT_EQ(cuMemRelease(again), CUDA_SUCCESS);
  EXPECT_TRUE(becomes(0));
}

TEST_P(Shared, pointers_stay_charged_while_another_process_has_them_open) {
  CUdeviceptr pointer = 0, unopened = 0, theirs = 0;
  CUipcMemHandle word{}, other_word{};
  ASSERT_EQ(cuMemAlloc_v2(&pointer, kMiB), CUDA_SUCCESS);
  ASSERT_EQ(cuMemAlloc_v2(&unopened, kMiB), CUDA_SUCCESS);
  ASSERT_EQ(cuIpcGetMemHandle(&word, pointer), CUDA_SUCCESS);
  ASSERT_EQ(cuIpcGetMemHandle(&other_word, unopened), CUDA_SUCCESS);
  Other other(
      [&] {
        cuIpcOpenMemHandle_v2(&theirs, word, 1);
        cuIpcOpenMemHandle(&theirs, word, 1);
        cuIpcCloseMemHandle(theirs);
      },
      [&] { cuIpcCloseMemHandle(theirs); });
  ASSERT_EQ(cuMemFree_v2(unopened), CUDA_SUCCESS);
  EXPECT_EQ(fake.charged(), kMiB);
  ASSERT_EQ(cuMemFree_v2(pointer), CUDA_SUCCESS);
  EXPECT_EQ(fake.charged(), kMiB);
  other.lets_go();
  EXPECT_TRUE(becomes(0));
}

TEST_P(Shared, pointers_of_a_context_stay_charged_after_it_too) {
  CUcontext context = nullptr;
  ASSERT_EQ(cuCtxCreate_v2(&context, 0, 0), CUDA_SUCCESS);
  const std::uint64_t before = fake.charged();
  CUdeviceptr pointer = 0, theirs = 0;
  CUipcMemHandle word{};
  ASSERT_EQ(cuMemAlloc_v2(&pointer, kMiB), CUDA_SUCCESS);
  ASSERT_EQ(cuIpcGetMemHandle(&word, pointer), CUDA_SUCCESS);
  Other other([&] { cuIpcOpenMemHandle_v2(&theirs, word, 1); }, [&] { cuIpcCloseMemHandle(theirs); });
  EXPECT_EQ(fake.charged(), before + kMiB);
  ASSERT_EQ(cuCtxDestroy_v2(context), CUDA_SUCCESS);
  EXPECT_EQ(fake.charged(), kMiB);
  other.lets_go();
  EXPECT_TRUE(becomes(0));
}

}  // namespace
}  // namespace tensor_fusion::guest::limiter
