// not a test by itself: needs a slice whose claim it can write; tests/e2e/test_memory.py calls it
// Processes of one slice that falsify each other's accounts in the claim page while they allocate: how much memory do
// they get together beyond the slice's limit, and for how long do they get more?
//   forge_ledger CLAIM LIMIT_BYTES [--processes N] [--piece BYTES] [--seconds S]
// One JSON line: most_bytes held at a time (contexts not counted), beyond_bytes of it above the limit, grew_ms: from
// the moment the limit was passed until nobody got any more. Exit 0 when it could attack at all.
#include <fcntl.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <vector>

#include "contract/claim.h"
#include "driver.h"

using namespace tensor_fusion::programs;
namespace contract = tensor_fusion::contract;

namespace {

constexpr int kMostProcesses = 16;
struct Board {
  std::atomic<int> ready;
  std::atomic<bool> go, stop;
  std::atomic<std::uint64_t> held[kMostProcesses];
};

[[noreturn]] void grab(Board& board, int number, std::uint64_t piece) {
  Driver d;
  CUcontext context = nullptr;
  if (d.library == nullptr || d.cuInit(0) != CUDA_SUCCESS || d.cuCtxCreate_v2(&context, 0, 0) != CUDA_SUCCESS)
    ::_exit(1);
  board.ready.fetch_add(1);
  while (!board.go) ::usleep(100);
  while (!board.stop) {
    CUdeviceptr p = 0;
    if (d.cuMemAlloc_v2(&p, piece) == CUDA_SUCCESS) {
      board.held[number].fetch_add(piece);
    } else {
      ::usleep(200);
    }
  }
  ::_exit(0);
}

[[noreturn]] void forge(contract::ClaimPage& page) {
  for (;;) {
    page.devices[0].used_bytes = 0;
    for (int slot = 0; slot < 2 * kMostProcesses; ++slot) page.processes[slot].devices[0].ledger_bytes = 0;
    page.process_high = 0;
    page.devices[0].lock = 0;
  }
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 3) return std::fprintf(stderr, "usage: forge_ledger CLAIM LIMIT_BYTES [--processes N] …\n"), 2;
  const std::uint64_t limit = std::strtoull(argv[2], nullptr, 10);
  int processes = 4;
  std::uint64_t piece = std::uint64_t{16} << 20;
  double seconds = 3;
  for (int i = 3; i + 1 < argc; i += 2) {
    const std::string word = argv[i];
    if (word == "--processes") processes = std::clamp(std::atoi(argv[i + 1]), 1, kMostProcesses);
    if (word == "--piece") piece = std::strtoull(argv[i + 1], nullptr, 10);
    if (word == "--seconds") seconds = std::strtod(argv[i + 1], nullptr);
  }
  const int file = ::open(argv[1], O_RDWR);
  void* pages[2] = {::mmap(nullptr, sizeof(contract::ClaimPage), PROT_READ | PROT_WRITE, MAP_SHARED, file, 0),
                    ::mmap(nullptr, sizeof(Board), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0)};
  if (file < 0 || pages[0] == MAP_FAILED || pages[1] == MAP_FAILED)
    return std::fprintf(stderr, "cannot write %s\n", argv[1]), 2;
  Board& board = *static_cast<Board*>(pages[1]);
  std::vector<pid_t> children;
  const auto start = [&](auto body) {
    const pid_t child = ::fork();
    if (child == 0) body();
    children.push_back(child);
  };
  for (int i = 0; i < processes; ++i) start([&, i] { grab(board, i, piece); });
  while (board.ready < processes) {
    ::usleep(1000);
    int status = 0;
    if (::waitpid(-1, &status, WNOHANG) > 0) return std::fprintf(stderr, "a process could not start\n"), 1;
  }
  start([&] { forge(*static_cast<contract::ClaimPage*>(pages[0])); });
  using Clock = std::chrono::steady_clock;
  const auto begin = Clock::now();
  auto passed = begin, grew = begin;
  std::uint64_t most = 0;
  board.go = true;
  while (Clock::now() - begin < std::chrono::duration<double>(seconds)) {
    std::uint64_t held = 0;
    for (int i = 0; i < processes; ++i) held += board.held[i];
    if (held > most) {
      if (most <= limit && held > limit) passed = Clock::now();
      grew = Clock::now();
      most = held;
    }
    ::usleep(50);
  }
  board.stop = true;
  for (const pid_t child : children) ::kill(child, SIGKILL);
  for (const pid_t child : children) ::waitpid(child, nullptr, 0);
  const auto beyond = most > limit ? most - limit : 0;
  Line("forge_ledger", "done")
      .number("most_bytes", static_cast<long long>(most))
      .number("beyond_bytes", static_cast<long long>(beyond))
      .number("grew_ms",
              beyond == 0 ? 0 : std::chrono::duration_cast<std::chrono::milliseconds>(grew - passed).count());
  return 0;
}
