// not a test by itself: needs as many cards as it is told of; tests/e2e/test_symptoms.py calls it
// One process for each card, as servers of large models are: each counts the cards, takes one, shares its buffer with
// the others by a handle, and adds up what it reads from all of theirs, round after round.
//   tensor_parallel CARDS
// Processes beyond the number of cards that there are share them. Exit 0: every sum was right.
#include <signal.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <vector>

#include "driver.h"

using namespace tensor_fusion::programs;

namespace {

constexpr int kMost = 16;
constexpr int kRounds = 20;
struct Board {
  std::atomic<int> arrived;
  std::atomic<bool> failed;
  CUipcMemHandle handles[kMost];
};

// Everybody waits for everybody; false when one of them has failed.
bool meet(Board& board, int count, int& phase) {
  board.arrived.fetch_add(1);
  ++phase;
  while (board.arrived < phase * count && !board.failed) ::usleep(100);
  return !board.failed;
}

int work(Board& board, int rank, int count) {
  Driver d;
  int cards = 0, phase = 0;
  if (d.library == nullptr) return 1;
  MUST(d.cuInit(0));
  MUST(d.cuDeviceGetCount(&cards));
  if (cards < 1) return 1;
  CUcontext context = nullptr;
  CUmodule module = nullptr;
  CUfunction nothing = nullptr;
  CUdeviceptr own = 0, sum = 0;
  MUST(d.cuCtxCreate_v2(&context, 0, rank % cards));
  MUST(d.cuModuleLoadData(&module, kKernels));
  MUST(d.cuModuleGetFunction(&nothing, module, "nothing"));
  MUST(d.cuMemAlloc_v2(&own, 4 << 20));
  MUST(d.cuMemAlloc_v2(&sum, 4 << 20));
  MUST(d.cuIpcGetMemHandle(&board.handles[rank], own));
  if (!meet(board, count, phase)) return 1;
  std::vector<CUdeviceptr> buffers(static_cast<std::size_t>(count), own);
  for (int other = 0; other < count; ++other)
    if (other != rank)
      MUST(d.cuIpcOpenMemHandle_v2(&buffers[static_cast<std::size_t>(other)], board.handles[other], 1));
  for (int round = 1; round <= kRounds; ++round) {
    MUST(d.cuMemsetD32_v2(own, static_cast<unsigned>(1000 * round + rank), 1 << 20));
    MUST(d.cuLaunchKernel(nothing, 1, 1, 1, 32, 1, 1, 0, nullptr, nullptr, nullptr));
    MUST(d.cuCtxSynchronize());
    if (!meet(board, count, phase)) return 1;
    for (int other = 0; other < count; ++other) {
      std::uint32_t last = 0;
      MUST(d.cuMemcpyDtoD_v2(sum, buffers[static_cast<std::size_t>(other)], 4 << 20));
      MUST(d.cuMemcpyDtoH_v2(&last, sum + (4 << 20) - 4, 4));
      if (last != static_cast<std::uint32_t>(1000 * round + other))
        return std::fprintf(stderr, "%d read %u of %d in round %d\n", rank, last, other, round), 1;
    }
    if (!meet(board, count, phase)) return 1;
  }
  for (int other = 0; other < count; ++other)
    if (other != rank) MUST(d.cuIpcCloseMemHandle(buffers[static_cast<std::size_t>(other)]));
  MUST(d.cuMemFree_v2(sum));
  MUST(d.cuMemFree_v2(own));
  return meet(board, count, phase) ? 0 : 1;
}

}  // namespace

int main(int argc, char** argv) {
  const int count = argc == 2 ? std::atoi(argv[1]) : 0;
  if (count < 1 || count > kMost) return std::fprintf(stderr, "usage: tensor_parallel CARDS\n"), 2;
  void* page = ::mmap(nullptr, sizeof(Board), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (page == MAP_FAILED) return 2;
  Board& board = *static_cast<Board*>(page);
  for (int rank = 0; rank < count; ++rank) {
    if (::fork() != 0) continue;
    ::prctl(PR_SET_PDEATHSIG, SIGKILL);
    ::_exit(work(board, rank, count));
  }
  int wrong = 0, status = 0;
  while (::wait(&status) > 0)
    if (status != 0) {
      board.failed = true;
      ++wrong;
      std::fprintf(stderr, "a process ended with %#x\n", static_cast<unsigned>(status));
    }
  return wrong == 0 ? 0 : 1;
}
