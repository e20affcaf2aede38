// What the clock costs the processor: one submission, one simulated event, one advance with nothing to do.
#include <cstdio>
#include <cstdlib>
#include <string>

#include "sim/device/account.h"
#include "sim/device/context.h"
#include "sim/device/machine.h"

int main() {
  using namespace tensor_fusion::sim::device;
  char directory[] = "/dev/shm/tensor-fusion-sim-bench-XXXXXX";
  if (mkdtemp(directory) == nullptr) return 1;
  {
    auto machine = Machine::attach({directory, "h100", ""});
    if (!machine) {
      std::fprintf(stderr, "%s\n", machine.error().message.c_str());
      return 1;
    }
    auto context = Context::create(**machine, 0);
    if (!context) return 1;
    Work work;
    work.kind = WorkKind::compute;
    work.duration_ns = 100;
    std::uint64_t submit_ns = 0, advance_ns = 0, items = 0;
    for (int round = 0; round < 400; ++round) {
      const std::uint64_t a = now_ns();
      for (int i = 0; i < 500; ++i) (void)context->try_submit(0, work);
      const std::uint64_t b = now_ns();
      const Ticket last = context->last(0);
      while (now_ns() < b + 70'000) {}  // all of it is in the past then
      const std::uint64_t c = now_ns();
      (*machine)->advance(0);
      const std::uint64_t d = now_ns();
      if (!context->done(last)) continue;
      submit_ns += b - a;
      advance_ns += d - c;
      items += 500;
    }
    const std::uint64_t e = now_ns();
    for (int i = 0; i < 100'000; ++i) (*machine)->advance(0);
    const std::uint64_t f = now_ns();
    std::printf("bench clock: submit_ns=%.1f advance_event_ns=%.1f advance_idle_ns=%.1f\n",
                static_cast<double>(submit_ns) / static_cast<double>(items),
                static_cast<double>(advance_ns) / static_cast<double>(items), static_cast<double>(f - e) / 1e5);
  }
  return std::system((std::string("rm -rf ") + directory).c_str()) == 0 ? 0 : 1;
}
