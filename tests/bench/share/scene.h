#pragma once
// One mix on the simulated machine: a slice directory per tenant, a daemon process that runs the share loop, workers
// under the limiter, and the device's own account of who had what. Everything it starts ends with it.
#include <sys/types.h>

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "sim/device/machine.h"
#include "tests/bench/share/mix.h"
#include "tests/bench/share/product.h"
#include "tests/bench/share/report.h"

namespace tensor_fusion::bench::share {

struct Paths {
  std::string self;       // this program: workers are it again
  std::string limiter;    // libtensor_fusion_limiter.so
  std::string program;    // tensor-fusion
  std::string driver;     // folder of the simulated libcuda.so.1
  std::string directory;  // for slices, reports and the machine
};

enum class Limiter {
  ours,     // our limiter, with the share loop in a process of this bench
  product,  // `tensor-fusion run`, and the hypervisor it starts
  none,
  feedback,  // block counts with utilisation feedback, in the worker
};

struct Worker {
  pid_t pid = 0;  // of what was started: the worker, or the first of a tenant's
  Report* report = nullptr;
  std::uint64_t service_ns = 0;  // by the device, at the last sample
};

class Scene {
 public:
  // `description` of the machine: the first scene of a directory makes it.
  Scene(const Paths& paths, const std::string& description, std::vector<Part> parts, Limiter limiter);
  ~Scene();
  Scene(const Scene&) = delete;
  Scene& operator=(const Scene&) = delete;

  bool start();  // false, with a word on stderr, when a worker cannot begin
  // Percent of its device that each part had since the last call.
  std::vector<double> sample();
  double busy_percent(unsigned device);  // of a device, since the last call for it
  void kill_daemon();
  double daemon_cpu_percent() const;              // since start
  std::uint64_t work_ns(std::size_t part) const;  // device time of kernels finished, as if each ran alone
  std::vector<double> steps_ms(std::size_t part) const;
  void forget_steps();
  const std::vector<Part>& parts() const { return parts_; }

 private:
  struct Slice;
  bool make_slice(Slice& slice, std::size_t index);
  bool start_daemon();
  bool start_worker(std::size_t part, unsigned copy);
  bool start_in_product(std::size_t part);
  bool add_report(std::size_t part, unsigned copy);
  std::string report_path(std::size_t part) const;
  void feed_utilisation();

  Paths paths_;
  std::vector<Part> parts_;
  Limiter limiter_;
  std::unique_ptr<sim::device::Machine> machine_;
  std::vector<std::unique_ptr<Slice>> slices_;
  std::unique_ptr<Product> product_;
  std::vector<std::vector<Worker>> workers_;
  pid_t daemon_ = 0;
  std::uint64_t started_ns_ = 0, sampled_ns_ = 0;
  std::vector<std::uint64_t> busy_ns_, busy_at_ns_;  // by device
  std::string description_;
};

void wait_ns(std::uint64_t ns);

}  // namespace tensor_fusion::bench::share
