// not a test by itself: needs a slice; tests/e2e/test_hostile.py calls it
// Many children that each initialise the driver, make a context and allocate, and hold all that until every one of them
// has got an answer.
//   fork_storm CHILDREN PIECE_BYTES
// One JSON line: answered: how many children told the end of their attempts; of these refused_init (the driver would
// not start), refused_context, refused_memory and holding; lost: ended without a word, codes: other codes than those
// that a program knows how to handle; longest_ms: the longest that a child took to its end. Exit 0 when all answered.
#include <signal.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <vector>

#include "driver.h"

using namespace tensor_fusion::programs;

namespace {

using Clock = std::chrono::steady_clock;

struct Board {
  std::atomic<int> answered, refused_init, refused_context, refused_memory, holding, strange, lost;
  std::atomic<std::uint64_t> longest_ms;
  std::atomic<bool> stop;
};

bool known(CUresult result) { return result == CUDA_ERROR_OUT_OF_MEMORY || result == CUDA_ERROR_SYSTEM_NOT_READY; }

[[noreturn]] void attempt(Board& board, std::size_t piece) {
  const auto begin = Clock::now();
  Driver d;
  CUcontext context = nullptr;
  CUdeviceptr pointer = 0;
  std::atomic<int>* outcome = &board.holding;
  CUresult result = d.library == nullptr ? CUDA_ERROR_NO_DEVICE : d.cuInit(0);
  if (result != CUDA_SUCCESS) {
    outcome = &board.refused_init;
  } else if (result = d.cuCtxCreate_v2(&context, 0, 0); result != CUDA_SUCCESS) {
    outcome = &board.refused_context;
  } else if (result = d.cuMemAlloc_v2(&pointer, piece); result != CUDA_SUCCESS) {
    outcome = &board.refused_memory;
  }
  outcome->fetch_add(1);
  if (result != CUDA_SUCCESS && !known(result)) board.strange.fetch_add(1);
  const auto took =
      static_cast<std::uint64_t>(std::chrono::duration_cast<std::chrono::milliseconds>(Clock::now() - begin).count());
  std::uint64_t longest = board.longest_ms;
  while (took > longest && !board.longest_ms.compare_exchange_weak(longest, took)) continue;
  board.answered.fetch_add(1);
  while (!board.stop) ::usleep(50'000);
  ::_exit(0);
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 3) return std::fprintf(stderr, "usage: fork_storm CHILDREN PIECE_BYTES\n"), 2;
  const int wanted = std::atoi(argv[1]);
  const std::size_t piece = std::strtoull(argv[2], nullptr, 10);
  void* page = ::mmap(nullptr, sizeof(Board), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (page == MAP_FAILED) return 2;
  Board& board = *static_cast<Board*>(page);
  std::vector<pid_t> children;
  for (int i = 0; i < wanted; ++i) {
    const pid_t child = ::fork();
    if (child == 0) {
      ::prctl(PR_SET_PDEATHSIG, SIGKILL);
      attempt(board, piece);
    }
    if (child < 0) break;
    children.push_back(child);
  }
  const int started = static_cast<int>(children.size());
  const auto end = Clock::now() + std::chrono::seconds(60);
  while (board.answered + board.lost < started && Clock::now() < end) {
    ::usleep(2000);
    while (::waitpid(-1, nullptr, WNOHANG) > 0) board.lost.fetch_add(1);
  }
  Line("fork_storm", "done")
      .number("children", started)
      .number("answered", board.answered)
      .number("refused_init", board.refused_init)
      .number("refused_context", board.refused_context)
      .number("refused_memory", board.refused_memory)
      .number("holding", board.holding)
      .number("strange", board.strange)
      .number("lost", board.lost)
      .number("longest_ms", static_cast<long long>(board.longest_ms));
  char letter = 0;
  (void)!::read(0, &letter, 1);  // all hold what they have until standard input says so or ends
  board.stop = true;
  for (const pid_t child : children) ::waitpid(child, nullptr, 0);
  return board.answered == started && started == wanted ? 0 : 1;
}
