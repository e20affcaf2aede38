#pragma once
// A slice for tests and benchmarks: a directory with grant, claim and bell, and a small stand-in for the hypervisor
// that keeps the heartbeat going, publishes readings of the driver's account and returns the slots of processes that
// have ended. Not part of the library.
#include <atomic>
#include <filesystem>
#include <functional>
#include <string>
#include <thread>
#include <vector>

#include "contract/claim.h"
#include "contract/grant.h"

namespace tensor_fusion::guest::limiter::testing {

struct GrantedDevice {
  std::string uuid;
  std::uint64_t memory_limit_bytes = 0;  // 0 = unlimited
  std::uint64_t context_overhead_bytes = 0;
  bool compute_unlimited = true;
  std::uint32_t limit_share = 10000;
};

class TestSlice {
 public:
  explicit TestSlice(const std::vector<GrantedDevice>& devices);
  ~TestSlice();
  TestSlice(const TestSlice&) = delete;
  TestSlice& operator=(const TestSlice&) = delete;

  std::string directory() const { return directory_; }
  contract::GrantPage& grant() { return *grant_; }
  contract::ClaimPage& claim() { return *claim_; }

  // What the driver shows of the tenant on the device of a row. Where there is no other account it is the ledger's own.
  using Account = std::function<std::uint64_t(std::uint32_t row)>;
  // Heartbeat, admission, readings and reaping, in a thread. Reaping looks at /proc, where the start of an emulated
  // process is not what the emulator tells it.
  void start_hypervisor(Account account = {}, bool reaps = true, bool lists = true);
  void stop_hypervisor();
  std::uint64_t reap_ms() const { return worst_reap_ms_; }  // longest time between a death and its slot being free

 private:
  void run();
  void reap();
  void list_processes();
  void read_account(std::uint32_t row);
  std::string directory_;
  Account account_;
  bool reaps_ = true;
  bool lists_ = true;  // the processes it sees
  std::uint32_t last_turn_[contract::kMaxDevices] = {};
  std::uint32_t seen_[contract::kMaxProcesses][contract::kMaxDevices] = {};  // settle requests that had their turn
  contract::GrantPage* grant_ = nullptr;
  contract::ClaimPage* claim_ = nullptr;
  std::thread thread_;
  std::atomic<bool> stop_{false};
  std::atomic<std::uint64_t> worst_reap_ms_{0};
};

// Runs a program with the limiter preloaded into it and returns its exit status and standard output.
struct Outcome {
  int status = -1;  // exit code, or 1000 + signal
  std::string out;
  std::string value(const std::string& key) const;  // of "key=value" in out, empty when absent
  std::uint64_t number(const std::string& key) const;
};
struct Job {
  std::vector<std::string> command;
  std::vector<std::string> environment;  // the whole of it
};
Outcome run(const Job& run);

}  // namespace tensor_fusion::guest::limiter::testing
