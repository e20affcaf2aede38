// What the clock costs the processor: one submission, one simulated event, one advance with nothing to do.
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <string>
#include <vector>

#include "sim/device/account.h"
#include "sim/device/context.h"
#include "sim/device/machine.h"

namespace {

using namespace tensor_fusion::sim::device;

// Processor time of this thread: what others do on the machine does not count, though their caches do.
std::uint64_t cpu_ns() {
  timespec t{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
  return static_cast<std::uint64_t>(t.tv_sec) * 1'000'000'000 + static_cast<std::uint64_t>(t.tv_nsec);
}

double median(std::vector<double>& values) {
  std::sort(values.begin(), values.end());
  return values.empty() ? 0 : values[values.size() / 2];
}

}  // namespace

int main() {
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
    constexpr int kItems = 500;
    std::vector<double> submit, event, idle;
    for (int round = 0; round < 400; ++round) {
      const std::uint64_t a = cpu_ns();
      for (int i = 0; i < kItems; ++i) (void)context->try_submit(0, work);
      const std::uint64_t b = cpu_ns();
      const Ticket last = context->last(0);
      const std::uint64_t past = now_ns() + 70'000;
      while (now_ns() < past) {
      }  // all of it is over then
      const std::uint64_t c = cpu_ns();
      (*machine)->advance(0);
      const std::uint64_t d = cpu_ns();
      if (context->done(last)) {
        submit.push_back(static_cast<double>(b - a) / kItems);
        event.push_back(static_cast<double>(d - c) / kItems);
      }
      (void)context->wait(last);
      const std::uint64_t e = cpu_ns();
      for (int i = 0; i < 100; ++i) (*machine)->advance(0);
      idle.push_back(static_cast<double>(cpu_ns() - e) / 100);
    }
    std::printf("bench clock: submit_ns=%.1f advance_event_ns=%.1f advance_idle_ns=%.1f\n", median(submit),
                median(event), median(idle));
  }
  return std::system((std::string("rm -rf ") + directory).c_str()) == 0 ? 0 : 1;
}
