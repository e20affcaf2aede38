#include "tests/bench/share/scene.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <map>
#include <new>

#include "node/hypervisor/share_loop.h"
#include "sim/device/account.h"

namespace tensor_fusion::bench::share {

using node::hypervisor::ShareLoop;

void wait_ns(std::uint64_t ns) {
  timespec time{static_cast<time_t>(ns / 1'000'000'000), static_cast<long>(ns % 1'000'000'000)};
  while (::nanosleep(&time, &time) != 0) {
  }
}

namespace {

void* map_file(const std::string& path, std::size_t size) {
  const int file = ::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600);
  if (file < 0 || ::ftruncate(file, static_cast<off_t>(size)) != 0) return nullptr;
  void* page = ::mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
  ::close(file);
  return page == MAP_FAILED ? nullptr : page;
}

std::uint64_t cpu_ticks(pid_t pid) {
  std::ifstream file("/proc/" + std::to_string(pid) + "/stat");
  std::string text((std::istreambuf_iterator<char>(file)), {});
  const auto end = text.rfind(')');
  if (end == std::string::npos) return 0;
  unsigned long user = 0, system = 0;
  std::sscanf(text.c_str() + end + 1, " %*c %*d %*d %*d %*d %*d %*u %*u %*u %*u %*u %lu %lu", &user, &system);
  return user + system;
}

}  // namespace

struct Scene::Slice {
  std::string directory;
  contract::GrantPage* grant = nullptr;
  contract::ClaimPage* claim = nullptr;
  int bell = -1;
  ~Slice() {
    if (grant != nullptr) ::munmap(grant, sizeof *grant);
    if (claim != nullptr) ::munmap(claim, sizeof *claim);
    if (bell >= 0) ::close(bell);
  }
};

Scene::Scene(const Paths& paths, const std::string& description, std::vector<Part> parts, Limiter limiter)
    : paths_(paths), parts_(std::move(parts)), limiter_(limiter), workers_(parts_.size()), description_(description) {}

Scene::~Scene() {
  for (auto& copies : workers_) {
    for (Worker& worker : copies) {
      if (worker.pid > 0) ::kill(worker.pid, SIGKILL);
    }
  }
  kill_daemon();
  product_.reset();
  for (auto& copies : workers_) {
    for (Worker& worker : copies) {
      if (worker.pid > 0) ::waitpid(worker.pid, nullptr, 0);
      if (worker.report != nullptr) ::munmap(worker.report, sizeof(Report));
    }
  }
  std::error_code ignored;
  const std::string remove = "rm -rf '" + paths_.directory + "/slices'";
  static_cast<void>(!std::system(remove.c_str()));
}

bool Scene::make_slice(Slice& slice, std::size_t index) {
  const Part& part = parts_[index];
  slice.directory = paths_.directory + "/slices/" + std::to_string(index);
  ::mkdir((paths_.directory + "/slices").c_str(), 0700);
  ::mkdir(slice.directory.c_str(), 0700);
  void* grant = map_file(slice.directory + "/" + contract::kGrantFile, sizeof(contract::GrantPage));
  void* claim = map_file(slice.directory + "/" + contract::kClaimFile, sizeof(contract::ClaimPage));
  const std::string bell = slice.directory + "/" + contract::kBellFile;
  if (grant == nullptr || claim == nullptr || ::mkfifo(bell.c_str(), 0600) != 0) return false;
  slice.bell = ::open(bell.c_str(), O_RDWR | O_NONBLOCK | O_CLOEXEC);
  slice.grant = new (grant) contract::GrantPage{};
  slice.claim = static_cast<contract::ClaimPage*>(claim);
  contract::GrantPage& page = *slice.grant;
  page.magic = contract::kGrantMagic;
  page.abi = contract::kGrantAbi;
  page.size_bytes = sizeof page;
  page.device_count = 1;
  page.generation = 1;
  std::snprintf(page.tenant, sizeof page.tenant, "%s-%zu", part.program.c_str(), index);
  contract::GrantDevice& device = page.devices[0];
  const auto& info = machine_->device(part.device);
  std::snprintf(device.uuid, sizeof device.uuid, "%s", info.uuid);
  device.memory_limit_bytes = info.profile.memory_bytes;
  device.device_memory_bytes = info.profile.memory_bytes;
  device.context_overhead_bytes = info.profile.context_overhead_bytes;
  device.flags = contract::kMemoryUnlimited;
  device.request_share = static_cast<std::uint32_t>(part.request * 100);
  device.limit_share = static_cast<std::uint32_t>(part.limit * 100);
  device.fallback_share = device.request_share.load();
  device.estimate_scale = 1 << 16;
  device.window_ns = 2'000'000;
  device.device_index = part.device;
  slice.claim->magic = contract::kClaimMagic;
  slice.claim->abi = contract::kClaimAbi;
  slice.claim->size_bytes = sizeof(contract::ClaimPage);
  return slice.bell >= 0;
}

bool Scene::start_daemon() {
  daemon_ = ::fork();
  if (daemon_ != 0) return daemon_ > 0;
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  ShareLoop loop;
  for (std::size_t i = 0; i < parts_.size(); ++i) {
    const Part& part = parts_[i];
    node::hypervisor::ShareTenant tenant;
    tenant.grant = slices_[i]->grant;
    tenant.claim = slices_[i]->claim;
    tenant.bell = slices_[i]->bell;
    tenant.devices.push_back({.slot = 0,
                              .device = part.device,
                              .request = static_cast<std::uint32_t>(part.request * 100),
                              .limit = static_cast<std::uint32_t>(part.limit * 100),
                              .latency = part.latency});
    loop.add_tenant(i + 1, tenant);
  }
  loop.start();
  for (;;) {
    wait_ns(1'000'000'000);
    if (std::getenv("SHARE_BENCH_TRACE") != nullptr) {
      for (std::size_t i = 0; i < parts_.size(); ++i) {
        const auto usage = loop.usage(i + 1, parts_[i].device);
        std::fprintf(stderr,
                     "    daemon: %-9s service %8.1f ms estimated %8.1f scale %.2f held %8.1f ms launches %llu passes "
                     "%llu doubt %u\n",
                     parts_[i].program.c_str(), static_cast<double>(usage.service_ns) / 1e6,
                     static_cast<double>(usage.estimated_ns) / 1e6, usage.scale,
                     static_cast<double>(usage.held_ns) / 1e6, static_cast<unsigned long long>(usage.launches),
                     static_cast<unsigned long long>(loop.passes()), usage.doubt);
      }
    }
  }
}

std::string Scene::report_path(std::size_t part) const {
  return paths_.directory + "/slices/report-" + std::to_string(part) + "-";
}

bool Scene::add_report(std::size_t part, unsigned copy) {
  ::mkdir((paths_.directory + "/slices").c_str(), 0700);
  Worker worker;
  worker.report = static_cast<Report*>(map_file(report_path(part) + std::to_string(copy), sizeof(Report)));
  workers_[part].push_back(worker);
  return worker.report != nullptr;
}

bool Scene::start_worker(std::size_t part, unsigned copy) {
  if (!add_report(part, copy)) return false;
  Worker& worker = workers_[part].back();
  if (limiter_ == Limiter::feedback) worker.report->feedback = static_cast<std::uint32_t>(parts_[part].limit);
  worker.pid = ::fork();
  if (worker.pid < 0) return false;
  if (worker.pid == 0) {
    ::prctl(PR_SET_PDEATHSIG, SIGKILL);
    ::setenv("LD_LIBRARY_PATH", paths_.driver.c_str(), 1);
    ::setenv("TENSOR_FUSION_SIM", description_.c_str(), 1);
    ::setenv("TENSOR_FUSION_SIM_DIR", (paths_.directory + "/machine").c_str(), 1);
    if (limiter_ == Limiter::ours) {
      ::setenv("LD_PRELOAD", paths_.limiter.c_str(), 1);
      ::setenv(contract::kSliceVariable, slices_[part]->directory.c_str(), 1);
    }
    // A slice shows its own devices only, so the one of ours is number 0 there.
    const std::string device = std::to_string(limiter_ == Limiter::ours ? 0 : parts_[part].device);
    const std::string report = report_path(part) + std::to_string(copy);
    ::execl(paths_.self.c_str(), paths_.self.c_str(), "--worker", parts_[part].program.c_str(), device.c_str(),
            report.c_str(), static_cast<char*>(nullptr));
    std::_Exit(127);
  }
  return true;
}

bool Scene::start_in_product(std::size_t part) {
  const Part& tenant = parts_[part];
  for (unsigned copy = 0; copy < tenant.processes; ++copy) {
    if (!add_report(part, copy)) return false;
  }
  Worker& first = workers_[part].front();
  first.pid = product_->run(
      tenant, tenant.program + "-" + std::to_string(part),
      {paths_.self, "--workers", tenant.program, "0", report_path(part), std::to_string(tenant.processes)});
  return first.pid > 0;
}

bool Scene::start() {
  auto machine = sim::device::Machine::attach({paths_.directory + "/machine", description_, ""});
  if (!machine) {
    std::fprintf(stderr, "share_bench: %s\n", machine.error().message.c_str());
    return false;
  }
  machine_ = std::move(*machine);
  busy_ns_.assign(machine_->device_count(), 0);
  busy_at_ns_ = busy_ns_;
  if (limiter_ == Limiter::ours) {
    if (::access(paths_.limiter.c_str(), R_OK) != 0) {
      std::fprintf(stderr, "share_bench: no limiter at %s\n", paths_.limiter.c_str());
      return false;
    }
    for (std::size_t i = 0; i < parts_.size(); ++i) {
      slices_.push_back(std::make_unique<Slice>());
      if (!make_slice(*slices_.back(), i)) return false;
    }
    if (!start_daemon()) return false;
  }
  if (limiter_ == Limiter::product) {
    product_ = std::make_unique<Product>(paths_.program, paths_.directory + "/slices/state",
                                         Product::Variables{{"LD_LIBRARY_PATH", paths_.driver},
                                                            {"TENSOR_FUSION_SIM", description_},
                                                            {"TENSOR_FUSION_SIM_DIR", paths_.directory + "/machine"}});
  }
  for (std::size_t i = 0; i < parts_.size(); ++i) {
    if (product_ != nullptr) {
      if (!start_in_product(i)) return false;
      continue;
    }
    for (unsigned copy = 0; copy < parts_[i].processes; ++copy) {
      if (!start_worker(i, copy)) return false;
    }
  }
  for (int turn = 0; turn < 2000; ++turn) {
    bool all = true;
    for (auto& copies : workers_) {
      for (Worker& worker : copies) {
        if (worker.report->failed.load() != 0) return false;
        if (worker.pid > 0 && ::waitpid(worker.pid, nullptr, WNOHANG) == worker.pid) {
          worker.pid = 0;
          std::fprintf(stderr, "share_bench: a worker ended at once\n");
          return false;
        }
        all = all && worker.report->ready.load() == 2;
      }
    }
    if (all) {
      started_ns_ = sim::device::now_ns();
      sample();
      return true;
    }
    wait_ns(5'000'000);
  }
  std::fprintf(stderr, "share_bench: a worker did not come up\n");
  return false;
}

std::vector<double> Scene::sample() {
  std::vector<double> shares(parts_.size(), 0);
  feed_utilisation();
  for (unsigned device = 0; device < machine_->device_count(); ++device) {
    const auto engine = machine_->engines_of(device).front().id;
    const auto account = sim::device::account(*machine_, engine);
    for (std::size_t i = 0; i < parts_.size(); ++i) {
      if (parts_[i].device != device) continue;
      for (Worker& worker : workers_[i]) {
        for (const auto& process : account.processes) {
          if (process.pid != worker.report->pid.load() || !process.alive) continue;
          shares[i] += static_cast<double>(process.service_ns - worker.service_ns);
          worker.service_ns = process.service_ns;
        }
      }
    }
  }
  const std::uint64_t now = sim::device::now_ns();
  for (double& share : shares) share = sampled_ns_ == 0 ? 0 : share / static_cast<double>(now - sampled_ns_) * 100;
  sampled_ns_ = now;
  return shares;
}

double Scene::busy_percent(unsigned device) {
  const auto account = sim::device::account(*machine_, machine_->engines_of(device).front().id);
  const double busy = static_cast<double>(account.busy_ns - busy_ns_[device]);
  const double passed = static_cast<double>(account.clock_ns - busy_at_ns_[device]);
  busy_ns_[device] = account.busy_ns;
  busy_at_ns_[device] = account.clock_ns;
  return busy / passed * 100;
}

// What the block-count limiter would read from NVML: whole percents of the same windows, summed over the tenant's
// processes; who has not used the device for a second uses none of it.
void Scene::feed_utilisation() {
  if (limiter_ != Limiter::feedback) return;
  timespec now{};
  ::clock_gettime(CLOCK_REALTIME, &now);
  const std::uint64_t second_ago_us =
      static_cast<std::uint64_t>(now.tv_sec - 1) * 1'000'000 + static_cast<std::uint64_t>(now.tv_nsec) / 1000;
  for (unsigned device = 0; device < machine_->device_count(); ++device) {
    const auto engine = machine_->engines_of(device).front().id;
    std::map<std::uint32_t, std::uint32_t> latest;  // by process
    for (const auto& sample : sim::device::process_utilisation(*machine_, engine, second_ago_us))
      latest[sample.pid] = sample.compute;
    for (std::size_t part = 0; part < parts_.size(); ++part) {
      if (parts_[part].device != device) continue;
      std::uint32_t sum = 0;
      for (const Worker& worker : workers_[part]) {
        const auto found = latest.find(worker.report->pid.load());
        if (found != latest.end()) sum += found->second;
      }
      for (Worker& worker : workers_[part]) worker.report->utilisation = sum;
    }
  }
}

void Scene::kill_daemon() {
  if (daemon_ <= 0) return;
  ::kill(daemon_, SIGKILL);
  ::waitpid(daemon_, nullptr, 0);
  daemon_ = 0;
}

double Scene::daemon_cpu_percent() const {
  if (daemon_ <= 0) return 0;
  const double seconds = static_cast<double>(sim::device::now_ns() - started_ns_) / 1e9;
  return static_cast<double>(cpu_ticks(daemon_)) / static_cast<double>(::sysconf(_SC_CLK_TCK)) / seconds * 100;
}

std::uint64_t Scene::work_ns(std::size_t part) const {
  std::uint64_t sum = 0;
  for (const Worker& worker : workers_[part]) sum += worker.report->kernel_ns.load();
  return sum;
}

std::vector<double> Scene::steps_ms(std::size_t part) const {
  std::vector<double> result;
  for (const Worker& worker : workers_[part]) {
    const std::uint64_t count = std::min<std::uint64_t>(worker.report->steps.load(), Report::kSteps);
    for (std::uint64_t i = 0; i < count; ++i) result.push_back(worker.report->step_ns[i] / 1e6);
  }
  return result;
}

void Scene::forget_steps() {
  for (auto& copies : workers_) {
    for (Worker& worker : copies) worker.report->steps = 0;
  }
}

}  // namespace tensor_fusion::bench::share
