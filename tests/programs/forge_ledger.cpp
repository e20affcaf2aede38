// not a test by itself: needs a slice whose claim it can write; tests/e2e/test_memory.py calls it
// Processes of one slice that falsify each other's accounts in the claim page while they allocate: how much memory do
// they get together beyond the slice's limit, and for how long do they get more?
//   forge_ledger CLAIM LIMIT_BYTES [--processes N] [--piece BYTES] [--seconds S] [--mode wipe|free|mute|greedy|honest]
// wipe: no more than that. free: the first takes all there is, gives it back whenever a reading has begun and takes it
// again once it is published. mute: nobody's request for a reading gets through. greedy: nobody forges, all the same
// each takes what it gets. honest: nobody forges; each takes and frees its part of a quarter of the limit, a few of
// them a larger one, and nobody may be refused: `refused`, and the longest that one waited, `longest_ms`. One JSON
// line: most_bytes held at a time (contexts not counted), beyond_bytes of it above the limit, grew_ms: from the moment
// the limit was passed until nobody got any more. Exit 0 when it could attack at all.
#include <fcntl.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <vector>

#include "contract/claim.h"
#include "contract/grant.h"
#include "driver.h"

using namespace tensor_fusion::programs;
namespace contract = tensor_fusion::contract;

namespace {

constexpr int kMostProcesses = 128;
enum class Mode { wipe, free, mute, greedy, honest };
using Clock = std::chrono::steady_clock;
struct Board {
  std::atomic<int> ready;
  std::atomic<bool> go, stop;
  std::atomic<std::uint64_t> held[kMostProcesses];
  std::atomic<std::uint64_t> taken, refused, longest_us;
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

// Holds nothing while the driver is read, and everything in between.
[[noreturn]] void dodge(Board& board, int processes, std::uint64_t piece, const contract::GrantDevice& grant) {
  Driver d;
  CUcontext context = nullptr;
  if (d.library == nullptr || d.cuInit(0) != CUDA_SUCCESS || d.cuCtxCreate_v2(&context, 0, 0) != CUDA_SUCCESS)
    ::_exit(1);
  std::vector<CUdeviceptr> pieces;
  const auto take = [&] {
    for (CUdeviceptr p = 0; d.cuMemAlloc_v2(&p, piece) == CUDA_SUCCESS; board.held[0].fetch_add(piece))
      pieces.push_back(p);
  };
  board.ready.fetch_add(1);
  while (board.ready < processes) ::usleep(1000);  // theirs are contexts, too
  take();
  board.ready.fetch_add(1);
  std::uint32_t begun = grant.reading_begun;
  while (!board.stop) {
    if (grant.reading_begun == begun) continue;
    begun = grant.reading_begun;
    for (const CUdeviceptr p : pieces) {
      board.held[0].fetch_sub(piece);
      d.cuMemFree_v2(p);
    }
    pieces.clear();
    while (!board.stop && static_cast<std::int32_t>(grant.reading_done - begun) < 0) continue;
    take();
  }
  ::_exit(0);
}

[[noreturn]] void share(Board& board, int number, int processes, std::uint64_t limit) {
  constexpr int kLarge = 4;
  Driver d;
  CUcontext context = nullptr;
  if (d.library == nullptr || d.cuInit(0) != CUDA_SUCCESS || d.cuCtxCreate_v2(&context, 0, 0) != CUDA_SUCCESS)
    ::_exit(1);
  const std::uint64_t part = limit / 8 / static_cast<std::uint64_t>(number < kLarge ? kLarge : processes);
  board.ready.fetch_add(1);
  while (!board.go) ::usleep(100);
  while (!board.stop) {
    CUdeviceptr p = 0;
    const auto begin = Clock::now();
    const bool got = d.cuMemAlloc_v2(&p, part) == CUDA_SUCCESS;
    const auto took =
        static_cast<std::uint64_t>(std::chrono::duration_cast<std::chrono::microseconds>(Clock::now() - begin).count());
    std::uint64_t longest = board.longest_us;
    while (took > longest && !board.longest_us.compare_exchange_weak(longest, took)) continue;
    (got ? board.taken : board.refused).fetch_add(1);
    if (!got) continue;
    board.held[number] = part;
    ::usleep(static_cast<useconds_t>(1000 + 700 * (number % 7)));
    board.held[number] = 0;
    d.cuMemFree_v2(p);
  }
  ::_exit(0);
}

[[noreturn]] void forge(contract::ClaimPage& page, Mode mode) {
  for (;;) {
    page.devices[0].used_bytes = 0;
    for (int slot = 0; slot < 2 * kMostProcesses; ++slot) {
      page.processes[slot].devices[0].ledger_bytes = 0;
      if (mode == Mode::mute) page.processes[slot].devices[0].settle_request = 0;
    }
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
  Mode mode = Mode::wipe;
  for (int i = 3; i + 1 < argc; i += 2) {
    const std::string word = argv[i];
    if (word == "--processes") processes = std::clamp(std::atoi(argv[i + 1]), 1, kMostProcesses);
    if (word == "--piece") piece = std::strtoull(argv[i + 1], nullptr, 10);
    if (word == "--seconds") seconds = std::strtod(argv[i + 1], nullptr);
    if (word == "--mode") {
      const std::string name = argv[i + 1];
      mode = name == "free"     ? Mode::free
             : name == "mute"   ? Mode::mute
             : name == "greedy" ? Mode::greedy
             : name == "honest" ? Mode::honest
                                : Mode::wipe;
    }
  }
  const int file = ::open(argv[1], O_RDWR);
  void* pages[2] = {::mmap(nullptr, sizeof(contract::ClaimPage), PROT_READ | PROT_WRITE, MAP_SHARED, file, 0),
                    ::mmap(nullptr, sizeof(Board), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0)};
  const std::string claim = argv[1];
  const int grant_file = ::open((claim.substr(0, claim.rfind('/') + 1) + contract::kGrantFile).c_str(), O_RDONLY);
  void* grant = ::mmap(nullptr, sizeof(contract::GrantPage), PROT_READ, MAP_SHARED, grant_file, 0);
  if (file < 0 || pages[0] == MAP_FAILED || pages[1] == MAP_FAILED || grant == MAP_FAILED)
    return std::fprintf(stderr, "cannot write %s\n", argv[1]), 2;
  Board& board = *static_cast<Board*>(pages[1]);
  std::vector<pid_t> children;
  const auto start = [&](auto body) {
    const pid_t child = ::fork();
    if (child == 0) {
      ::prctl(PR_SET_PDEATHSIG, SIGKILL);
      body();
    }
    children.push_back(child);
  };
  for (int i = 0; i < processes; ++i)
    start([&, i] {
      if (mode == Mode::honest) share(board, i, processes, limit);
      if (mode == Mode::free && i == 0)
        dodge(board, processes, piece, static_cast<const contract::GrantPage*>(grant)->devices[0]);
      grab(board, i, piece);
    });
  while (board.ready < processes + (mode == Mode::free ? 1 : 0)) {
    ::usleep(1000);
    int status = 0;
    if (::waitpid(-1, &status, WNOHANG) > 0) return std::fprintf(stderr, "a process could not start\n"), 1;
  }
  if (mode != Mode::honest && mode != Mode::greedy)
    start([&] { forge(*static_cast<contract::ClaimPage*>(pages[0]), mode); });
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
      .number("taken", static_cast<long long>(board.taken))
      .number("refused", static_cast<long long>(board.refused))
      .number("longest_ms", static_cast<long long>(board.longest_us / 1000))
      .number("most_bytes", static_cast<long long>(most))
      .number("beyond_bytes", static_cast<long long>(beyond))
      .number("grew_ms",
              beyond == 0 ? 0 : std::chrono::duration_cast<std::chrono::milliseconds>(grew - passed).count());
  return 0;
}
