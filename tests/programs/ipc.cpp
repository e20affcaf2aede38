// Memory and an event shared between two processes: the child opens what the parent made, waits for the parent's event
// in its own stream, adds to the shared word, and the parent sees it. Exit 0: all as it should be.
#include <sys/wait.h>
#include <unistd.h>

#include "driver.h"

using namespace tensor_fusion::programs;

namespace {

struct Message {
  CUipcMemHandle memory;
  CUipcEventHandle event;
};

int child(int in) {
  Message message{};
  if (::read(in, &message, sizeof message) != static_cast<ssize_t>(sizeof message)) return 1;
  Driver d;
  CUcontext context = nullptr;
  MUST(d.cuInit(0));
  MUST(d.cuCtxCreate_v2(&context, 0, 0));
  std::size_t free_before = 0, free_after = 0, total = 0;
  MUST(d.cuMemGetInfo_v2(&free_before, &total));
  CUdeviceptr word = 0, again = 0;
  MUST(d.cuIpcOpenMemHandle_v2(&word, message.memory, 1));
  MUST(d.cuIpcOpenMemHandle_v2(&again, message.memory, 1));
  MUST(d.cuMemGetInfo_v2(&free_after, &total));
  if (word != again || free_before != free_after)
    return std::fprintf(stderr, "opened twice or charged to the opener\n"), 1;
  CUevent event = nullptr;
  MUST(d.cuIpcOpenEventHandle(&event, message.event));
  CUmodule module = nullptr;
  CUfunction count = nullptr;
  MUST(d.cuModuleLoadData(&module, kKernels));
  MUST(d.cuModuleGetFunction(&count, module, "count"));
  MUST(d.cuStreamWaitEvent(nullptr, event, 0));
  void* params[] = {&word};
  MUST(d.cuLaunchKernel(count, 1, 1, 1, 32, 1, 1, 0, nullptr, params, nullptr));
  MUST(d.cuCtxSynchronize());
  MUST(d.cuEventQuery(event));  // what the stream has waited for is over
  std::uint32_t value = 0;
  MUST(d.cuMemcpyDtoH_v2(&value, word, 4));
  MUST(d.cuIpcCloseMemHandle(word));
  MUST(d.cuIpcCloseMemHandle(word));
  if (d.cuIpcCloseMemHandle(word) == CUDA_SUCCESS) return 1;
  return value == 1032 ? 0 : (std::fprintf(stderr, "the child saw %u\n", value), 1);
}

}  // namespace

int main() {
  int pipe[2];
  if (::pipe(pipe) != 0) return 1;
  const pid_t pid = ::fork();  // before CUDA is touched
  if (pid == 0) ::_exit(child(pipe[0]));
  Driver d;
  if (d.library == nullptr || d.cuInit(0) != CUDA_SUCCESS) return std::fprintf(stderr, "no CUDA device here\n"), 77;
  CUcontext context = nullptr;
  MUST(d.cuCtxCreate_v2(&context, 0, 0));
  CUdeviceptr pad = 0, word = 0;
  MUST(d.cuMemAlloc_v2(&pad, 1024));  // so that the shared one does not start the page
  MUST(d.cuMemAlloc_v2(&word, 4));
  MUST(d.cuMemsetD32_v2(word, 0, 1));
  CUmodule module = nullptr;
  CUfunction busy = nullptr;
  MUST(d.cuModuleLoadData(&module, kKernels));
  MUST(d.cuModuleGetFunction(&busy, module, "tensor_fusion_busy"));
  CUevent event = nullptr;
  MUST(d.cuEventCreate(&event, CU_EVENT_INTERPROCESS | CU_EVENT_DISABLE_TIMING));
  Message message{};
  MUST(d.cuIpcGetMemHandle(&message.memory, word));
  MUST(d.cuIpcGetEventHandle(&message.event, event));
  std::uint64_t ns = 30'000'000;
  void* params[] = {&ns};
  MUST(d.cuLaunchKernel(busy, 132, 1, 1, 1, 1, 1, 0, nullptr, params, nullptr));
  MUST(d.cuMemsetD32_v2(word, 1000, 1));
  MUST(d.cuEventRecord(event, nullptr));
  CUdeviceptr own = 0;
  if (d.cuIpcOpenMemHandle_v2(&own, message.memory, 1) == CUDA_SUCCESS)
    return std::fprintf(stderr, "a process opened its own handle\n"), 1;
  if (::write(pipe[1], &message, sizeof message) != static_cast<ssize_t>(sizeof message)) return 1;
  int status = 0;
  ::waitpid(pid, &status, 0);
  std::uint32_t value = 0;
  MUST(d.cuMemcpyDtoH_v2(&value, word, 4));
  const bool good = WIFEXITED(status) && WEXITSTATUS(status) == 0 && value == 1032;
  Line("ipc", good ? "ok" : "wrong")
      .number("value", value)
      .number("child", WIFEXITED(status) ? WEXITSTATUS(status) : -1);
  return good ? 0 : 1;
}
