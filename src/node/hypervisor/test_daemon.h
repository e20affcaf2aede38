#pragma once
// A daemon in a process of its own, with the provider library that a text file steers, for tests and benchmarks.
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <functional>
#include <string>

#include "contract/claim.h"
#include "node/hypervisor/client.h"
#include "node/hypervisor/hypervisor.h"
#include "system/eventually.h"
#include "system/page.h"
#include "system/process.h"
#include "system/scratch_directory.h"

namespace tensor_fusion::node::hypervisor {

inline constexpr std::uint64_t kTestGi = 1ull << 30;

using system::eventually;

class TestDaemon {
 public:
  explicit TestDaemon(int devices = 2) : devices_(devices) {
    ::setenv("FAKE_ACCELERATOR", scratch_.path("world").c_str(), 1);
    world("");
    options.state = scratch_.path("s");
    options.accelerator_library = FAKE_ACCELERATOR_LIBRARY;
    options.log_events = std::getenv("TEST_VERBOSE") != nullptr;
    options.measure_ms = 50;
    options.measure_idle_ms = 50;
    options.deadlines.first_pause_ns = 10'000'000;
    options.deadlines.call_ns = 10'000'000'000;  // a busy machine is no hanging driver
  }
  ~TestDaemon() { kill(); }
  TestDaemon(const TestDaemon&) = delete;
  TestDaemon& operator=(const TestDaemon&) = delete;

  // Lines of the provider's world beside the devices: GPU-0000… of 80 GiB and 1000 TFLOPS.
  void world(const std::string& lines) {
    std::string text;
    for (int i = 0; i < devices_; ++i) text += "device " + uuid(i) + " " + std::to_string(80 * kTestGi) + " 1000\n";
    static_cast<void>(system::replace_file(scratch_.path("world"), text + lines));
  }
  static std::string uuid(int index) { return "GPU-000" + std::to_string(index); }

  bool start() {
    pid_ = ::fork();
    if (pid_ == 0) {
      auto daemon = Hypervisor::make(options);
      if (!daemon) {
        std::fprintf(stderr, "%s\n", daemon.error().message.c_str());
        std::_Exit(1);
      }
      static_cast<void>((*daemon)->run());
      daemon->reset();
      std::_Exit(0);
    }
    return eventually([&] {  // a child of the one before may have its door open still
      auto client = Client::connect(options.state);
      return client && client->version();
    });
  }
  void kill(int signal_number = SIGKILL) {
    if (pid_ <= 0) return;
    ::kill(pid_, signal_number);
    ::waitpid(pid_, nullptr, 0);
    pid_ = -1;
  }
  bool alive() const { return pid_ > 0 && system::process_stat(pid_) && !system::process_stat(pid_)->dead(); }
  pid_t pid() const { return pid_; }
  Client client() const { return *Client::connect(options.state); }
  const std::string& state() const { return options.state; }
  std::string scratch(const std::string& name) const { return scratch_.path(name); }
  bool has_event(const std::string& kind, const std::string& part) const {
    const auto events = client().events();
    if (!events) return false;
    for (const base::Json& event : (*events)["events"].items())
      if (event["kind"].as_string() == kind && event["message"].as_string().find(part) != std::string::npos)
        return true;
    return false;
  }
  base::Json tenant(const std::string& name) const {
    const auto list = client().list();
    if (list)
      for (const base::Json& one : (*list)["tenants"].items())
        if (one["name"].as_string() == name) return one;
    return {};
  }

  HypervisorOptions options;

 private:
  system::ScratchDirectory scratch_;
  int devices_;
  pid_t pid_ = -1;
};

// A process of a tenant as the limiter would make it: holds a slot in the claim page, does nothing else.
class TestProcess {
 public:
  // `body` runs in the child after its slot is live; then the child waits to be killed.
  TestProcess(const std::string& slice, std::uint64_t ledger_bytes,
              const std::function<void(contract::ClaimPage&, std::uint32_t slot)>& body = {}) {
    int ready[2];
    if (::pipe(ready) != 0) std::abort();
    pid_ = ::fork();
    if (pid_ == 0) {
      auto page = system::MappedPage::attach(slice + "/claim", sizeof(contract::ClaimPage), true);
      if (!page) std::_Exit(1);
      const std::uint32_t slot = take_slot(*page->as<contract::ClaimPage>(), ledger_bytes);
      if (body) body(*page->as<contract::ClaimPage>(), slot);
      if (::write(ready[1], &slot, sizeof slot) < 0) std::_Exit(1);
      for (;;) ::pause();
    }
    ::close(ready[1]);
    if (::read(ready[0], &slot_, sizeof slot_) != sizeof slot_) std::abort();
    ::close(ready[0]);
  }
  ~TestProcess() { kill(); }
  TestProcess(const TestProcess&) = delete;
  TestProcess& operator=(const TestProcess&) = delete;
  void kill() {
    if (pid_ <= 0) return;
    ::kill(pid_, SIGKILL);
    ::waitpid(pid_, nullptr, 0);
    pid_ = -1;
  }
  pid_t pid() const { return pid_; }
  std::uint32_t slot() const { return slot_; }

  static std::uint32_t take_slot(contract::ClaimPage& page, std::uint64_t ledger_bytes) {
    for (std::uint32_t slot = 0; slot < contract::kMaxProcesses; ++slot) {
      contract::ClaimProcess& process = page.processes[slot];
      std::uint32_t state = contract::kSlotFree;
      if (!process.state.compare_exchange_strong(state, contract::kSlotClaimed)) continue;
      process.pid.store(static_cast<std::uint32_t>(::getpid()));
      process.start_ticks.store(*system::start_ticks(::getpid()));
      process.pid_namespace.store(system::namespace_inode(::getpid(), "pid"));
      std::uint32_t high = page.process_high.load();
      while (high <= slot && !page.process_high.compare_exchange_weak(high, slot + 1)) {
      }
      process.devices[0].ledger_bytes.store(ledger_bytes);
      page.devices[0].used_bytes.fetch_add(ledger_bytes);
      process.devices[0].contexts.store(1);
      process.state.store(contract::kSlotLive, std::memory_order_release);
      return slot;
    }
    return contract::kMaxProcesses;
  }

 private:
  pid_t pid_ = -1;
  std::uint32_t slot_ = 0;
};

}  // namespace tensor_fusion::node::hypervisor
