// Memory that a program lets go while another process, or a descriptor, has it still: it is no room for anything else
// until nobody has it, and then it is. Exit 0: all as it should be.
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>

#include "driver.h"
#include "system/send_file.h"

using namespace tensor_fusion::programs;

namespace {

constexpr std::size_t kBytes = std::size_t{64} << 20;
constexpr unsigned kWord = 0xbeef;

// `bytes` by handle, mapped where they can be written.
CUresult map(const Driver& d, CUmemGenericAllocationHandle memory, CUdeviceptr& at) {
  CUmemAccessDesc access{};
  access.location = on_device().location;
  access.flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
  CUresult result = d.cuMemAddressReserve(&at, kBytes, 0, 0, 0);
  if (result == CUDA_SUCCESS) result = d.cuMemMap(at, kBytes, 0, memory, 0);
  return result == CUDA_SUCCESS ? d.cuMemSetAccess(at, kBytes, &access, 1) : result;
}

CUresult unmap(const Driver& d, CUdeviceptr at) {
  const CUresult result = d.cuMemUnmap(at, kBytes);
  return result == CUDA_SUCCESS ? d.cuMemAddressFree(at, kBytes) : result;
}

int create_and_export(const Driver& d, CUmemGenericAllocationHandle& memory, int& file) {
  const auto wanted = on_device();
  MUST(d.cuMemCreate(&memory, kBytes, &wanted, 0));
  MUST(d.cuMemExportToShareableHandle(&file, memory, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0));
  return 0;
}

// The memory is gone here and its descriptor is not: what counts, and what the bytes are when it comes back.
int only_a_descriptor(const Driver& d) {
  const std::size_t before = free_bytes(d);
  CUmemGenericAllocationHandle memory = 0, again = 0;
  CUdeviceptr at = 0;
  int file = -1;
  unsigned seen = 0;
  if (const int failed = create_and_export(d, memory, file)) return failed;
  MUST(map(d, memory, at));
  MUST(d.cuMemsetD32_v2(at, kWord, 1));
  MUST(d.cuCtxSynchronize());
  MUST(unmap(d, at));
  MUST(d.cuMemRelease(memory));
  if (free_bytes(d) != before - kBytes) return std::fprintf(stderr, "a released handle hid its memory\n"), 1;
  MUST(d.cuMemImportFromShareableHandle(&again, reinterpret_cast<void*>(static_cast<std::intptr_t>(file)),
                                        CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR));
  ::close(file);
  MUST(map(d, again, at));
  MUST(d.cuMemcpyDtoH_v2(&seen, at, sizeof seen));
  if (seen != kWord) return std::fprintf(stderr, "the memory that came back is another: %x\n", seen), 1;
  if (free_bytes(d) != before - kBytes) return std::fprintf(stderr, "an import is charged again, or not\n"), 1;
  MUST(unmap(d, at));
  MUST(d.cuMemRelease(again));
  if (!comes_back(d, before)) return std::fprintf(stderr, "memory that nobody has stayed charged\n"), 1;
  // Closed first, as most do.
  if (const int failed = create_and_export(d, memory, file)) return failed;
  ::close(file);
  MUST(d.cuMemRelease(memory));
  if (free_bytes(d) != before) return std::fprintf(stderr, "memory with closed descriptors stayed charged\n"), 1;
  return 0;
}

bool say(int line) { return ::write(line, "", 1) == 1; }
bool hear(int line) {
  char byte;
  return ::read(line, &byte, 1) == 1;
}

// The other process has what it is sent, and lets go of one after the other when told.
int other(int line) {
  CUipcMemHandle word{};
  const int file = tensor_fusion::system::receive_file(line, &word, sizeof word);
  Driver d;
  CUcontext context = nullptr;
  CUmemGenericAllocationHandle memory = 0;
  CUdeviceptr at = 0, pointer = 0;
  unsigned seen[2] = {};
  MUST(d.cuInit(0));
  MUST(d.cuCtxCreate_v2(&context, 0, 0));
  MUST(d.cuIpcOpenMemHandle_v2(&pointer, word, 1));
  MUST(d.cuMemImportFromShareableHandle(&memory, reinterpret_cast<void*>(static_cast<std::intptr_t>(file)),
                                        CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR));
  ::close(file);
  MUST(map(d, memory, at));
  if (!say(line) || !hear(line)) return 1;
  MUST(d.cuMemcpyDtoH_v2(&seen[0], at, sizeof seen[0]));
  MUST(d.cuMemcpyDtoH_v2(&seen[1], pointer, sizeof seen[1]));
  if (seen[0] != kWord || seen[1] != kWord)
    return std::fprintf(stderr, "what others let go has become %x and %x here\n", seen[0], seen[1]), 1;
  MUST(unmap(d, at));
  MUST(d.cuMemRelease(memory));
  if (!say(line) || !hear(line)) return 1;
  MUST(d.cuIpcCloseMemHandle(pointer));
  return say(line) && hear(line) ? 0 : 1;
}

int in_another_process(const Driver& d, int line) {
  CUmemGenericAllocationHandle memory = 0;
  CUdeviceptr at = 0, pointer = 0, next = 0;
  CUipcMemHandle word{};
  int file = -1;
  if (const int failed = create_and_export(d, memory, file)) return failed;
  MUST(map(d, memory, at));
  MUST(d.cuMemsetD32_v2(at, kWord, 1));
  MUST(d.cuMemAlloc_v2(&pointer, kBytes));
  MUST(d.cuMemsetD32_v2(pointer, kWord, 1));
  MUST(d.cuCtxSynchronize());
  MUST(d.cuIpcGetMemHandle(&word, pointer));
  if (!tensor_fusion::system::send_file(line, file, &word, sizeof word) || !hear(line)) return 1;
  ::close(file);
  const std::size_t free = free_bytes(d);  // the other's context is there by now
  MUST(unmap(d, at));
  MUST(d.cuMemRelease(memory));
  MUST(d.cuMemFree_v2(pointer));
  if (free_bytes(d) != free) return std::fprintf(stderr, "memory that another has open became free\n"), 1;
  MUST(d.cuMemAlloc_v2(&next, kBytes));  // not where the other looks
  MUST(d.cuMemsetD32_v2(next, ~kWord, 1));
  MUST(d.cuCtxSynchronize());
  MUST(d.cuMemFree_v2(next));
  if (!say(line) || !hear(line)) return 1;
  if (!comes_back(d, free + kBytes)) return std::fprintf(stderr, "an import that is gone still counts\n"), 1;
  if (!say(line) || !hear(line)) return 1;
  if (!comes_back(d, free + 2 * kBytes)) return std::fprintf(stderr, "a pointer that is closed still counts\n"), 1;
  return say(line) ? 0 : 1;
}

// Makes memory when it is told to, hands the descriptor on, and ends.
int maker(int line) {
  if (!hear(line)) return 1;
  Driver d;
  CUcontext context = nullptr;
  CUmemGenericAllocationHandle memory = 0;
  int file = -1;
  MUST(d.cuInit(0));
  MUST(d.cuCtxCreate_v2(&context, 0, 0));
  if (const int failed = create_and_export(d, memory, file)) return failed;
  const CUipcMemHandle none{};
  return tensor_fusion::system::send_file(line, file, &none, sizeof none) ? 0 : 1;
}

// Whoever has what a process left behind has it on its account, mapped or not, and once.
int left_by_the_dead(const Driver& d, int line, pid_t dying) {
  const std::size_t before = free_bytes(d);
  CUipcMemHandle word{};
  CUmemGenericAllocationHandle memory = 0;
  CUdeviceptr at = 0;
  int status = -1;
  if (!say(line)) return 1;
  const int file = tensor_fusion::system::receive_file(line, &word, sizeof word);
  if (::waitpid(dying, &status, 0) != dying || status != 0) return 1;
  MUST(d.cuMemImportFromShareableHandle(&memory, reinterpret_cast<void*>(static_cast<std::intptr_t>(file)),
                                        CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR));
  ::close(file);
  if (!comes_back(d, before - kBytes)) return std::fprintf(stderr, "what the dead left is had for nothing\n"), 1;
  MUST(map(d, memory, at));
  if (free_bytes(d) != before - kBytes) return std::fprintf(stderr, "it counts again when it is mapped\n"), 1;
  MUST(unmap(d, at));
  MUST(d.cuMemRelease(memory));
  if (!comes_back(d, before)) return std::fprintf(stderr, "what the dead left stayed charged\n"), 1;
  return 0;
}

}  // namespace

int main() {
  int line[2], last[2];
  if (::socketpair(AF_UNIX, SOCK_STREAM, 0, line) != 0 || ::socketpair(AF_UNIX, SOCK_STREAM, 0, last) != 0) return 1;
  const pid_t dying = ::fork();
  if (dying == 0) {
    ::close(last[0]);
    ::_exit(maker(last[1]));
  }
  ::close(last[1]);
  const pid_t pid = ::fork();  // before CUDA is touched
  if (pid == 0) {
    ::close(line[0]);
    ::close(last[0]);
    ::_exit(other(line[1]));
  }
  ::close(line[1]);
  Driver d;
  if (d.library == nullptr || d.cuInit(0) != CUDA_SUCCESS) return std::fprintf(stderr, "no CUDA device here\n"), 77;
  CUcontext context = nullptr;
  MUST(d.cuCtxCreate_v2(&context, 0, 0));
  int failed = left_by_the_dead(d, last[0], dying);  // first, since the end of any other gives memory back, too
  if (failed == 0) failed = only_a_descriptor(d);
  if (failed == 0) failed = in_another_process(d, line[0]);
  ::close(line[0]);
  int status = 0;
  ::waitpid(pid, &status, 0);
  const int child = WIFEXITED(status) ? WEXITSTATUS(status) : -1;
  const bool good = failed == 0 && child == 0;
  Line("held_by_others", good ? "ok" : "wrong").number("parent", failed).number("child", child);
  return good ? 0 : 1;
}
