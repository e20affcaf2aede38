// Who pays for physical memory while others may still have it, seen as what the card has free.
#include "sim/cuda/physical_account.h"

#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <cstring>
#include <memory>
#include <string>
#include <thread>

#include "sim/cuda/driver.h"
#include "sim/cuda/test_context.h"
#include "sim/device/machine.h"
#include "sim/device/memory.h"
#include "system/send_file.h"

namespace tensor_fusion::sim::cuda {
namespace {

constexpr std::size_t kUnit = std::size_t{2} << 20;

class PhysicalAccount : public Cuda {
 protected:
  static CUmemGenericAllocationHandle created(std::size_t bytes = kUnit) {
    CUmemAllocationProp properties{};
    properties.type = CU_MEM_ALLOCATION_TYPE_PINNED;
    properties.location = {CU_MEM_LOCATION_TYPE_DEVICE, 0};
    properties.requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
    CUmemGenericAllocationHandle memory = 0;
    EXPECT_OK(cuMemCreate(&memory, bytes, &properties, 0));
    return memory;
  }
  static int exported(CUmemGenericAllocationHandle memory) {
    int fd = -1;
    EXPECT_OK(cuMemExportToShareableHandle(&fd, memory, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0));
    return fd;
  }
  static CUmemGenericAllocationHandle imported(int fd) {
    CUmemGenericAllocationHandle memory = 0;
    EXPECT_OK(cuMemImportFromShareableHandle(&memory, reinterpret_cast<void*>(static_cast<std::intptr_t>(fd)),
                                             CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR));
    return memory;
  }
};

}  // namespace

TEST_F(PhysicalAccount, memory_stays_charged_while_a_descriptor_of_it_is_open) {
  const std::size_t before = free_bytes();
  const auto memory = created();
  const int first = exported(memory), second = exported(memory);
  EXPECT_OK(cuMemRelease(memory));
  EXPECT_EQ(free_bytes(), before - kUnit);
  ::close(first);
  EXPECT_EQ(free_bytes(), before - kUnit);
  const int copy = ::dup(second);
  ::close(second);
  EXPECT_EQ(free_bytes(), before - kUnit);
  ::close(copy);
  EXPECT_EQ(free_bytes(), before);
}

TEST_F(PhysicalAccount, memory_is_given_back_at_the_release_when_its_descriptors_are_closed) {
  const std::size_t before = free_bytes();
  const auto memory = created();
  ::close(exported(memory));
  EXPECT_EQ(free_bytes(), before - kUnit);
  EXPECT_OK(cuMemRelease(memory));
  EXPECT_EQ(free_bytes(), before);
}

TEST_F(PhysicalAccount, what_others_hold_is_no_room_and_what_they_let_go_is) {
  const std::size_t most = free_bytes() / kUnit * kUnit;
  const auto memory = created(most);
  const int fd = exported(memory);
  EXPECT_OK(cuMemRelease(memory));
  CUdeviceptr pointer = 0;
  EXPECT_EQ(cuMemAlloc_v2(&pointer, most), CUDA_ERROR_OUT_OF_MEMORY);
  ::close(fd);
  EXPECT_OK(cuMemAlloc_v2(&pointer, most));
  EXPECT_OK(cuMemFree_v2(pointer));
}

TEST_F(PhysicalAccount, the_machine_learns_of_a_closed_descriptor_from_nobody) {
  const auto used = [] { return device::memory_info(Driver::get().machine(), 0).used_bytes; };
  const std::uint64_t before = used();
  const auto memory = created();
  const int fd = exported(memory);
  EXPECT_OK(cuMemRelease(memory));
  EXPECT_EQ(used(), before + kUnit);
  ::close(fd);
  const auto until = std::chrono::steady_clock::now() + std::chrono::seconds(20);
  while (used() != before && std::chrono::steady_clock::now() < until) std::this_thread::yield();
  EXPECT_EQ(used(), before);
}

TEST_F(PhysicalAccount, memory_of_which_nobody_can_say_who_holds_it_stays_charged_until_somebody_can) {
#if defined(__SANITIZE_ADDRESS__)
  GTEST_SKIP() << "the undefined-behaviour sanitizer looks at memory through a pipe, and takes none for bad memory";
#endif
  const std::size_t before = free_bytes();
  const auto memory = created();
  const int fd = exported(memory);
  rlimit limit{};
  ASSERT_EQ(::getrlimit(RLIMIT_NOFILE, &limit), 0);
  const rlimit none{0, limit.rlim_max};
  ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &none), 0);  // as if all descriptors were taken
  EXPECT_OK(cuMemRelease(memory));
  EXPECT_EQ(free_bytes(), before - kUnit);
  ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &limit), 0);
  EXPECT_EQ(free_bytes(), before - kUnit) << "a descriptor of it is open";
  ::close(fd);
  EXPECT_EQ(free_bytes(), before);
}

TEST_F(PhysicalAccount, memory_that_cannot_be_given_back_is_told_of_and_left) {
  ::testing::internal::CaptureStderr();
  auto closure = std::make_shared<int>(0);
  const std::weak_ptr<int> kept = closure;
  keep_until_let_go([] { return false; }, [closure = std::move(closure)] { return ++*closure == 0; });
  ASSERT_FALSE(kept.expired()) << "it may be better soon";
  const auto until = std::chrono::steady_clock::now() + std::chrono::seconds(20);
  while (!kept.expired() && std::chrono::steady_clock::now() < until) std::this_thread::yield();
  EXPECT_TRUE(kept.expired()) << "tried for ever";
  EXPECT_NE(::testing::internal::GetCapturedStderr().find("cannot be given back"), std::string::npos);
}

TEST_F(PhysicalAccount, an_import_holds_memory_like_its_descriptor) {
  const std::size_t before = free_bytes();
  const auto memory = created();
  const int fd = exported(memory);
  const auto again = imported(fd);
  ::close(fd);
  EXPECT_OK(cuMemRelease(memory));
  EXPECT_EQ(free_bytes(), before - kUnit);
  CUdeviceptr at = 0;
  ASSERT_OK(cuMemAddressReserve(&at, kUnit, 0, 0, 0));
  ASSERT_OK(cuMemMap(at, kUnit, 0, again, 0));
  EXPECT_OK(cuMemRelease(again));
  EXPECT_EQ(free_bytes(), before - kUnit);  // the mapping holds it
  EXPECT_OK(cuMemUnmap(at, kUnit));
  EXPECT_EQ(free_bytes(), before);
  EXPECT_OK(cuMemAddressFree(at, kUnit));
}

TEST_F(PhysicalAccount, a_descriptor_in_another_process_or_on_its_way_there_counts) {
  const std::size_t before = free_bytes();
  const auto memory = created();
  const int fd = exported(memory);
  EXPECT_OK(cuMemRelease(memory));
  int line[2];
  ASSERT_EQ(::pipe(line), 0);
  const pid_t child = ::fork();  // inherits it, and ends when told
  if (child == 0) {
    char byte;
    ::close(line[1]);
    ::_exit(::read(line[0], &byte, 1) == 0 ? 0 : 1);
  }
  int ends[2];
  ASSERT_EQ(::socketpair(AF_UNIX, SOCK_STREAM, 0, ends), 0);
  ASSERT_TRUE(system::send_file(ends[0], fd));
  ::close(fd);
  ::close(line[0]);
  ::close(line[1]);
  int status = -1;
  EXPECT_EQ(free_bytes(), before - kUnit);
  EXPECT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
  EXPECT_EQ(free_bytes(), before - kUnit);  // nobody has received it
  ::close(ends[0]);
  ::close(ends[1]);
  EXPECT_EQ(free_bytes(), before);
}

}  // namespace tensor_fusion::sim::cuda
