// not a test by itself: needs a slice whose claim it can write, and no limiter; tests/e2e/test_membership.py calls it
// Takes a slot in the slice's claim as a limiter would, allocates past any limit and stays until its input ends.
//   forge_slot CLAIM
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdint>

#include "contract/claim.h"
#include "driver.h"

using namespace tensor_fusion::programs;
namespace contract = tensor_fusion::contract;

namespace {

std::uint64_t start_ticks() {
  char text[4096] = {};
  const int file = ::open("/proc/self/stat", O_RDONLY);
  if (::read(file, text, sizeof text - 1) <= 0) return 0;
  ::close(file);
  const char* at = std::strrchr(text, ')');
  constexpr int kFieldsBetween = 20;  // from the name to it
  for (int field = 0; at != nullptr && field < kFieldsBetween; ++field) at = std::strchr(at + 1, ' ');
  return at != nullptr ? std::strtoull(at, nullptr, 10) : 0;
}

bool take_slot(contract::ClaimPage& page) {
  for (std::uint32_t slot = 0; slot < contract::kMaxProcesses; ++slot) {
    contract::ClaimProcess& own = page.processes[slot];
    std::uint32_t state = contract::kSlotFree;
    if (!own.state.compare_exchange_strong(state, contract::kSlotClaimed)) continue;
    struct stat space{};
    if (::stat("/proc/self/ns/pid", &space) != 0) return false;
    own.pid = static_cast<std::uint32_t>(::getpid());
    own.start_ticks = start_ticks();
    own.pid_namespace = space.st_ino;
    if (page.process_high <= slot) page.process_high = slot + 1;
    own.state = contract::kSlotLive;
    return true;
  }
  return false;
}

}  // namespace

int main(int argc, char** argv) {
  const int claim = argc > 1 ? ::open(argv[1], O_RDWR) : -1;
  void* page = ::mmap(nullptr, sizeof(contract::ClaimPage), PROT_READ | PROT_WRITE, MAP_SHARED, claim, 0);
  if (page == MAP_FAILED || !take_slot(*static_cast<contract::ClaimPage*>(page)))
    return std::fprintf(stderr, "there is no claim to write\n"), 2;
  Driver d;
  CUcontext context = nullptr;
  CUdeviceptr p = 0;
  if (d.library == nullptr || d.cuInit(0) != CUDA_SUCCESS || d.cuCtxCreate_v2(&context, 0, 0) != CUDA_SUCCESS ||
      d.cuMemAlloc_v2(&p, 1 << 20) != CUDA_SUCCESS)
    return 1;
  char letter = 0;
  while (::read(0, &letter, 1) > 0) continue;
  return 0;
}
