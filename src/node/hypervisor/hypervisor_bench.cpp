// What the daemon costs on a full node: 8 devices, 32 tenants, each with work queued, every card shared by four. The
// tenants are processes that do what the limiter's gate does (wait on the futex, launch ahead by the window, write
// markers); their own time is not counted. The provider is the library that a text file steers, in its own process,
// and is counted. Exit status 1 when a bar was missed, which is named, or when not everybody worked.
#include <fcntl.h>
#include <linux/futex.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>

#include <cstring>
#include <deque>
#include <memory>
#include <vector>

#include "node/hypervisor/test_daemon.h"

using namespace tensor_fusion;
using namespace tensor_fusion::node::hypervisor;

namespace {

constexpr int kDevices = 8;
constexpr int kTenants = 32;
constexpr std::uint64_t kLaunchNs = 500'000;
constexpr double kMostCpuPercent = 5, kMostIdlePercent = 0.2, kMostRssMib = 30;

void wait_at(const std::atomic<std::uint32_t>& gate, std::uint32_t seen) {
  const timespec limit{0, 100'000'000};
  ::syscall(SYS_futex, &gate, FUTEX_WAIT, seen, &limit, nullptr, 0);
}

[[noreturn]] void work(const std::string& slice, int start_pipe) {
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  // A device is not slowed down by a busy host; neither should this stand-in for one be.
  ::setpriority(PRIO_PROCESS, 0, -15);
  char go = 0;
  if (::read(start_pipe, &go, 1) < 0) std::_Exit(1);
  auto claim_page = system::MappedPage::attach(slice + "/claim", sizeof(contract::ClaimPage), true).value();
  auto grant_page = system::MappedPage::attach(slice + "/grant", sizeof(contract::GrantPage), false).value();
  auto& page = *claim_page.as<contract::ClaimPage>();
  const auto& grant = grant_page.as<contract::GrantPage>()->devices[0];
  auto& row = page.processes[TestProcess::take_slot(page, 64 << 20)].devices[0];
  const int bell = ::open((slice + "/bell").c_str(), O_WRONLY | O_NONBLOCK);
  row.wanted_since_ns.store(system::monotonic_ns());
  row.streams.store(1);
  row.blocked.store(1);  // a thread with more to launch stands at the gate, admitted and ahead by the window or not
  std::deque<std::pair<std::uint64_t, std::uint64_t>> queued;  // start and end on the device, in order
  std::uint32_t rung_at = ~0u;                                 // one ring for one state of the gate
  for (;;) {
    const std::uint32_t gate = grant.gate.load(std::memory_order_acquire);
    const std::uint64_t now = system::monotonic_ns();
    for (; !queued.empty() && queued.front().second <= now; queued.pop_front()) {
      auto& marker = row.markers[row.marker_count.load() % contract::kMarkers];
      marker.start_ns.store(queued.front().first);
      marker.end_ns.store(queued.front().second);
      marker.estimated_ns.store(kLaunchNs);
      row.marker_count.fetch_add(1, std::memory_order_release);
      row.completed_ns.fetch_add(kLaunchNs);
    }
    if ((gate & contract::kGateAdmitted) == 0) {
      if ((gate & contract::kGateKnown) == 0 && rung_at != gate && ::write(bell, "r", 1) == 1) rung_at = gate;
      // While its own work is still under way a waiting process looks at it; then it sleeps until it is let in.
      if (queued.empty()) {
        wait_at(grant.gate, gate);
      } else {
        ::usleep(500);
      }
      continue;
    }
    const std::uint64_t window = grant.window_ns.load();
    std::uint64_t end = std::max(row.progress_ns.load(), now);
    while (end - now < window) {
      queued.emplace_back(end, end + kLaunchNs);
      end += kLaunchNs;
      row.launched_ns.fetch_add(kLaunchNs);
      row.launches.fetch_add(1);
      row.progress_ns.store(end);
    }
    ::usleep(500);
  }
}

bool held(const char* what, double value, double bar) {
  if (value <= bar) return true;
  std::printf("missed: %s: %.2f, the bar is at most %.2f\n", what, value, bar);
  return false;
}

double resident_mib(pid_t pid) { return static_cast<double>(system::resident_bytes(pid)) / (1 << 20); }

struct Cost {
  double cpu_percent;
  double provider_percent;
};

Cost measure(const TestDaemon& daemon, pid_t provider, double seconds) {
  const std::uint64_t begin = system::monotonic_ns();
  const std::uint64_t daemon_cpu = system::cpu_ns(daemon.pid()), provider_cpu = system::cpu_ns(provider);
  ::usleep(static_cast<useconds_t>(seconds * 1e6));
  const double elapsed = static_cast<double>(system::monotonic_ns() - begin);
  return {static_cast<double>(system::cpu_ns(daemon.pid()) - daemon_cpu) / elapsed * 100,
          static_cast<double>(system::cpu_ns(provider) - provider_cpu) / elapsed * 100};
}

}  // namespace

int main(int argc, char** argv) {
  const double seconds = argc > 1 ? std::strtod(argv[1], nullptr) : 10;
  TestDaemon daemon(kDevices);
  daemon.options.measure_ms = HypervisorOptions{}.measure_ms;
  daemon.options.measure_idle_ms = HypervisorOptions{}.measure_idle_ms;
  if (!daemon.start()) return 1;
  std::vector<Client> clients;
  std::vector<pid_t> children;
  std::vector<std::string> slices;
  std::string world;
  int start[2];
  if (::pipe(start) != 0) return 1;
  for (int i = 0; i < kTenants; ++i) {
    RunRequest request;
    request.name = "t" + std::to_string(i);
    request.vram = base::Bytes{kTestGi};
    request.compute = base::Percent{i % 4 == 3 ? 10000u : 3000u};
    request.compute_request = base::Percent{2000};
    request.gpu = std::to_string(i % kDevices);
    auto client = daemon.client();
    const auto reply = client.run(request);
    if (!reply) {
      std::fprintf(stderr, "%s\n", reply.error().message.c_str());
      return 1;
    }
    slices.push_back(reply->slice_directory);
    const pid_t child = ::fork();
    if (child == 0) work(reply->slice_directory, start[0]);
    children.push_back(child);
    if (!client.started(reply->id, child)) return 1;
    world += "process " + std::to_string(child) + " " + TestDaemon::uuid(i % kDevices) + " " +
             std::to_string(300 << 20) + " 25\n";
  }
  const auto version = daemon.client().version();
  const pid_t provider = static_cast<pid_t>((*version)["provider"]["pid"].as_int());
  ::usleep(1'000'000);
  const Cost idle = measure(daemon, provider, seconds);
  std::printf("idle, %d tenants without a process on a GPU: cpu_percent=%.2f provider_cpu_percent=%.2f\n", kTenants,
              idle.cpu_percent, idle.provider_percent);
  daemon.world(world);
  const std::string go(kTenants, 'g');
  if (::write(start[1], go.data(), go.size()) < 0) return 1;
  ::usleep(2'000'000);
  const auto gate_changes = [&] {
    std::uint64_t sum = 0;
    for (const std::string& slice : slices)
      if (const auto grant = system::MappedPage::attach(slice + "/grant", sizeof(contract::GrantPage), false))
        sum += grant->as<contract::GrantPage>()->devices[0].gate.load() / contract::kGateStep;
    return static_cast<double>(sum);
  };
  const double changes = gate_changes();
  const Cost busy = measure(daemon, provider, seconds);
  std::printf("gate changes a second and device: %.0f\n", (gate_changes() - changes) / seconds / kDevices);
  const auto list = daemon.client().list();
  int working = 0, registered = 0;
  for (const base::Json& tenant : (*list)["tenants"].items()) {
    registered += tenant["processes"].size() == 1 ? 1 : 0;
    working += tenant["devices"].at(0)["used_share"].as_int() > 0 ? 1 : 0;
  }
  std::printf("busy: %d of %d tenants registered, %d used their device in the last second; provider_cpu_percent=%.2f\n",
              registered, kTenants, working, busy.provider_percent);
  const double provider_rss = resident_mib(provider), rss = resident_mib(daemon.pid()) + provider_rss;
  std::printf("resident: %.1f MiB, of it the provider's process %.1f (pages they share counted twice)\n", rss,
              provider_rss);
  for (const pid_t child : children) {
    ::kill(child, SIGKILL);
    ::waitpid(child, nullptr, 0);
  }
  const double busy_cpu = busy.cpu_percent + busy.provider_percent;
  const double idle_cpu = idle.cpu_percent + idle.provider_percent;
  bool good = held("CPU, all contended, percent", busy_cpu, kMostCpuPercent);
  good = held("CPU, idle, percent", idle_cpu, kMostIdlePercent) && good;
  good = held("resident memory, MiB", rss, kMostRssMib) && good;
  std::printf("bench hypervisor: cpu_percent=%.2f rss_mib=%.1f idle_cpu_percent=%.2f\n", busy_cpu, rss, idle_cpu);
  return good && registered == kTenants && working == kTenants ? 0 : 1;
}
