// A stream-ordered pool shared between two processes: the child imports the pool and one allocation of it, adds to the
// word that lies there, and gives it back; nothing is charged to it. Exit 0: all as it should be.
#include <fcntl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "driver.h"

using namespace tensor_fusion::programs;

namespace {

struct Message {
  int pool_fd;  // of the parent's
  CUmemPoolPtrExportData pointer;
};

constexpr std::uint32_t kStart = 1000;

int child(int in, pid_t parent) {
  Message message{};
  if (::read(in, &message, sizeof message) != static_cast<ssize_t>(sizeof message)) return 1;
  const std::string path = "/proc/" + std::to_string(parent) + "/fd/" + std::to_string(message.pool_fd);
  const int fd = ::open(path.c_str(), O_RDWR | O_CLOEXEC);
  if (fd < 0) return std::fprintf(stderr, "the pool's descriptor cannot be had\n"), 1;
  Driver d;
  CUcontext context = nullptr;
  MUST(d.cuInit(0));
  MUST(d.cuCtxCreate_v2(&context, 0, 0));
  std::size_t free_before = 0, free_after = 0, total = 0;
  MUST(d.cuMemGetInfo_v2(&free_before, &total));
  CUmemoryPool pool = nullptr;
  MUST(d.cuMemPoolImportFromShareableHandle(&pool, reinterpret_cast<void*>(static_cast<std::intptr_t>(fd)),
                                            CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0));
  CUdeviceptr word = 0, none = 0;
  if (d.cuMemAllocFromPoolAsync(&none, 64, pool, nullptr) == CUDA_SUCCESS)
    return std::fprintf(stderr, "an imported pool gave something out\n"), 1;
  MUST(d.cuMemPoolImportPointer(&word, pool, &message.pointer));
  MUST(d.cuMemGetInfo_v2(&free_after, &total));
  if (free_before != free_after) return std::fprintf(stderr, "charged to the importer\n"), 1;
  CUmodule module = nullptr;
  CUfunction count = nullptr;
  MUST(d.cuModuleLoadData(&module, kKernels));
  MUST(d.cuModuleGetFunction(&count, module, "count"));
  void* params[] = {&word};
  MUST(d.cuLaunchKernel(count, 1, 1, 1, 32, 1, 1, 0, nullptr, params, nullptr));
  std::uint32_t value = 0;
  MUST(d.cuMemcpyDtoH_v2(&value, word, 4));
  MUST(d.cuMemFreeAsync(word, nullptr));
  if (d.cuMemFreeAsync(word, nullptr) == CUDA_SUCCESS) return std::fprintf(stderr, "freed twice\n"), 1;
  CUmemPoolPtrExportData forged = message.pointer;
  forged.reserved[8] ^= 1;
  if (d.cuMemPoolImportPointer(&word, pool, &forged) == CUDA_SUCCESS) return std::fprintf(stderr, "forged\n"), 1;
  return value == kStart + 32 ? 0 : (std::fprintf(stderr, "the child saw %u\n", value), 1);
}

}  // namespace

int main() {
  int pipe[2];
  if (::pipe(pipe) != 0) return 1;
  const pid_t self = ::getpid();
  const pid_t pid = ::fork();  // before CUDA is touched
  if (pid == 0) ::_exit(child(pipe[0], self));
  Driver d;
  if (d.library == nullptr || d.cuInit(0) != CUDA_SUCCESS) return std::fprintf(stderr, "no CUDA device here\n"), 77;
  CUcontext context = nullptr;
  MUST(d.cuCtxCreate_v2(&context, 0, 0));
  CUmemPoolProps properties{};
  properties.allocType = CU_MEM_ALLOCATION_TYPE_PINNED;
  properties.location = {CU_MEM_LOCATION_TYPE_DEVICE, 0};
  CUmemoryPool own = nullptr, pool = nullptr;
  int fd = -1;
  MUST(d.cuMemPoolCreate(&own, &properties));
  if (d.cuMemPoolExportToShareableHandle(&fd, own, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0) == CUDA_SUCCESS)
    return std::fprintf(stderr, "a pool that was not made for it can be exported\n"), 1;
  properties.handleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
  MUST(d.cuMemPoolCreate(&pool, &properties));
  CUdeviceptr pad = 0, word = 0;
  MUST(d.cuMemAllocFromPoolAsync(&pad, 1024, pool, nullptr));  // so that the shared one does not start the page
  MUST(d.cuMemAllocFromPoolAsync(&word, 4, pool, nullptr));
  MUST(d.cuMemsetD32_v2(word, kStart, 1));
  MUST(d.cuCtxSynchronize());
  Message message{};
  MUST(d.cuMemPoolExportToShareableHandle(&message.pool_fd, pool, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0));
  MUST(d.cuMemPoolExportPointer(&message.pointer, word));
  if (::write(pipe[1], &message, sizeof message) != static_cast<ssize_t>(sizeof message)) return 1;
  int status = 0;
  ::waitpid(pid, &status, 0);
  std::uint32_t value = 0;
  MUST(d.cuMemcpyDtoH_v2(&value, word, 4));
  const bool good = WIFEXITED(status) && WEXITSTATUS(status) == 0 && value == kStart + 32;
  Line("pool_sharing", good ? "ok" : "wrong")
      .number("value", value)
      .number("child", WIFEXITED(status) ? WEXITSTATUS(status) : -1);
  return good ? 0 : 1;
}
