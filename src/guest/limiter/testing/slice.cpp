#include "guest/limiter/testing/slice.h"

#include <fcntl.h>
#include <linux/futex.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <stdexcept>

#include "guest/limiter/core/ledger.h"
#include "guest/limiter/core/os.h"
#include "guest/limiter/core/process.h"
#include "guest/limiter/testing/scratch.h"

namespace tensor_fusion::guest::limiter::testing {
namespace {

template <class Page>
Page* make_page(const std::string& path, std::uint64_t magic, std::uint32_t abi) {
  const int file = open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0666);
  if (file < 0 || ftruncate(file, sizeof(Page)) != 0) throw std::runtime_error("cannot make " + path);
  void* memory = mmap(nullptr, sizeof(Page), PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
  close(file);
  if (memory == MAP_FAILED) throw std::runtime_error("cannot map " + path);
  auto* page = static_cast<Page*>(memory);
  page->magic = magic;
  page->abi = abi;
  page->size_bytes = sizeof(Page);
  return page;
}

}  // namespace

TestSlice::TestSlice(const std::vector<GrantedDevice>& devices) {
  std::string name = scratch_base() + "/tensor-fusion-test-XXXXXX";
  if (mkdtemp(name.data()) == nullptr) throw std::runtime_error("cannot make the directory " + name);
  directory_ = name;
  grant_ = make_page<contract::GrantPage>(directory_ + "/grant", contract::kGrantMagic, contract::kGrantAbi);
  claim_ = make_page<contract::ClaimPage>(directory_ + "/claim", contract::kClaimMagic, contract::kClaimAbi);
  mkfifo((directory_ + "/bell").c_str(), 0666);
  grant_->device_count = static_cast<std::uint32_t>(devices.size());
  for (std::size_t i = 0; i < devices.size(); ++i) {
    contract::GrantDevice& device = grant_->devices[i];
    std::strncpy(device.uuid, devices[i].uuid.c_str(), sizeof device.uuid - 1);
    device.memory_limit_bytes = devices[i].memory_limit_bytes;
    device.context_overhead_bytes = devices[i].context_overhead_bytes;
    std::uint32_t flags = 0;
    if (devices[i].compute_unlimited) flags |= contract::kComputeUnlimited;
    if (devices[i].memory_limit_bytes == 0) flags |= contract::kMemoryUnlimited;
    device.flags = flags;
    device.request_share = devices[i].limit_share;
    device.limit_share = devices[i].limit_share;
    device.fallback_share = devices[i].limit_share;
    device.estimate_scale = 1 << 16;
    device.window_ns = 2'000'000;
    device.device_index = static_cast<std::uint32_t>(i);
  }
}

TestSlice::~TestSlice() {
  stop_hypervisor();
  munmap(grant_, sizeof *grant_);
  munmap(claim_, sizeof *claim_);
  std::filesystem::remove_all(directory_);
}

void TestSlice::start_hypervisor(Account account, bool reaps, bool lists) {
  stop_ = false;
  lists_ = lists;
  reaps_ = reaps;
  account_ = std::move(account);
  thread_ = std::thread([this] { run(); });
}
void TestSlice::stop_hypervisor() {
  stop_ = true;
  if (thread_.joinable()) thread_.join();
}

void TestSlice::run() {
  const int bell = open((directory_ + "/bell").c_str(), O_RDWR | O_NONBLOCK | O_CLOEXEC);
  while (!stop_) {
    grant_->heartbeat_ns.store(os::monotonic_ns());
    if (reaps_) reap();
    char bytes[64];
    while (read(bell, bytes, sizeof bytes) > 0) {
    }
    const std::uint32_t list = grant_->process_sequence.load();
    if (lists_) list_processes();
    for (std::uint32_t i = 0; i < grant_->device_count; ++i) {
      contract::GrantDevice& device = grant_->devices[i];
      std::uint32_t asked = 0;
      for (std::uint32_t slot = 0; slot < claim_->process_high && slot < contract::kMaxProcesses; ++slot)
        if (claim_->processes[slot].devices[i].settle_request.load() != seen_[slot][i]) asked = 1;
      if (asked != 0 || device.reading_done.load() == 0 || grant_->process_sequence.load() != list) {
        read_account(i);
        device.settled.fetch_add(1);
        os::futex_wake(&device.settled, 1 << 20, true);
      }
      if ((device.gate.load() & contract::kGateAdmitted) == 0) {
        device.gate.fetch_or(contract::kGateAdmitted | contract::kGateKnown);
        os::futex_wake(&device.gate, 1 << 20, true);
      }
    }
    pollfd ring{bell, POLLIN, 0};
    poll(&ring, 1, 5);  // the period of this stand-in when nobody rings
  }
  close(bell);
}

void TestSlice::list_processes() {
  std::vector<std::uint32_t> pids;
  for (std::uint32_t slot = 0; slot < claim_->process_high && slot < contract::kMaxProcesses; ++slot)
    if (claim_->processes[slot].state.load() == contract::kSlotLive) pids.push_back(claim_->processes[slot].pid.load());
  bool same = grant_->process_count.load() == pids.size();
  for (std::size_t i = 0; same && i < pids.size(); ++i) same = grant_->processes[i].tenant_pid.load() == pids[i];
  if (same) return;
  grant_->process_sequence.fetch_add(1);
  for (std::size_t i = 0; i < pids.size(); ++i) {
    grant_->processes[i].host_pid.store(pids[i]);
    grant_->processes[i].tenant_pid.store(pids[i]);
  }
  grant_->process_count.store(static_cast<std::uint32_t>(pids.size()));
  grant_->process_sequence.fetch_add(1);
}

// As the hypervisor does it, but for the turn: whoever comes next gets it at every reading.
void TestSlice::read_account(std::uint32_t row) {
  contract::GrantDevice& device = grant_->devices[row];
  const std::uint32_t reading = device.reading_begun.fetch_add(1) + 1;
  const std::uint32_t high = std::min<std::uint32_t>(claim_->process_high.load(), contract::kMaxProcesses);
  std::vector<std::uint32_t> requests;  // those made before the account is looked at
  for (std::uint32_t slot = 0; slot < high; ++slot)
    requests.push_back(claim_->processes[slot].devices[row].settle_request.load());
  std::uint64_t shown = account_ ? account_(row) : claim_->devices[row].used_bytes.load();
  for (std::uint32_t slot = 0; slot < high && !account_; ++slot)  // whose contexts cost nothing
    shown -= std::min<std::uint64_t>(shown, claim_->processes[slot].devices[row].guessed_bytes.load());
  device.reading_mark.store(reading);
  device.observed_bytes.store(shown == 0 ? 1 : shown);
  std::uint32_t turn = 0;
  for (std::uint32_t step = 0; lists_ && step < high && turn == 0; ++step) {
    const std::uint32_t slot = (last_turn_[row] + step) % high;
    const std::uint32_t asked = requests[slot];
    if (asked == seen_[slot][row] || claim_->processes[slot].state.load() != contract::kSlotLive) continue;
    turn = last_turn_[row] = slot + 1;
  }
  for (std::uint32_t slot = 0; slot < high; ++slot) seen_[slot][row] = requests[slot];
  device.turn.store(turn);
  device.reading_list.store(grant_->process_sequence.load());
  device.reading_done.store(reading);
}

void TestSlice::reap() {
  static std::uint64_t first_seen_dead[contract::kMaxProcesses];
  const Ledger sweeper(claim_, contract::kMaxProcesses, os::pid_namespace());
  const std::uint64_t now = os::monotonic_ns();
  for (std::uint32_t slot = 0; slot < claim_->process_high && slot < contract::kMaxProcesses; ++slot) {
    contract::ClaimProcess& process = claim_->processes[slot];
    const bool dead =
        process.state.load() == contract::kSlotLive && !may_be_alive(process.pid.load(), process.start_ticks.load());
    if (!dead) {
      first_seen_dead[slot] = 0;
    } else if (first_seen_dead[slot] == 0) {
      first_seen_dead[slot] = now;
    }
  }
  Ledger(claim_, contract::kMaxProcesses, os::pid_namespace()).sweep();
  const std::uint64_t after = os::monotonic_ns();
  for (std::uint32_t slot = 0; slot < contract::kMaxProcesses; ++slot)
    if (first_seen_dead[slot] != 0 && claim_->processes[slot].state.load() == contract::kSlotFree) {
      const std::uint64_t took = (after - first_seen_dead[slot]) / 1'000'000;
      if (took > worst_reap_ms_) worst_reap_ms_ = took;
      first_seen_dead[slot] = 0;
    }
}

std::string Outcome::value(const std::string& key) const {
  std::size_t at = 0;
  while ((at = out.find(key + "=", at)) != std::string::npos) {
    if (at == 0 || out[at - 1] == ' ' || out[at - 1] == '\n') {
      const std::size_t start = at + key.size() + 1;
      return out.substr(start, out.find_first_of(" \n", start) - start);
    }
    ++at;
  }
  return {};
}
std::uint64_t Outcome::number(const std::string& key) const {
  const std::string text = value(key);
  if (text.empty()) throw std::runtime_error("no " + key + " in: " + out);
  return std::strtoull(text.c_str(), nullptr, 0);
}

Outcome run(const Job& asked) {
  int pipe_ends[2];
  if (pipe2(pipe_ends, O_CLOEXEC) != 0) throw std::runtime_error("no pipe");
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_adddup2(&actions, pipe_ends[1], 1);
  std::vector<char*> arguments;
  std::vector<char*> environment;
  for (const std::string& part : asked.command) arguments.push_back(const_cast<char*>(part.c_str()));
  for (const std::string& part : asked.environment) environment.push_back(const_cast<char*>(part.c_str()));
  arguments.push_back(nullptr);
  environment.push_back(nullptr);
  pid_t child = -1;
  const int failed = posix_spawnp(&child, arguments[0], &actions, nullptr, arguments.data(), environment.data());
  posix_spawn_file_actions_destroy(&actions);
  close(pipe_ends[1]);
  Outcome outcome;
  if (failed == 0) {
    char bytes[4096];
    for (ssize_t count; (count = read(pipe_ends[0], bytes, sizeof bytes)) > 0;)
      outcome.out.append(bytes, static_cast<std::size_t>(count));
    int status = 0;
    waitpid(child, &status, 0);
    outcome.status = WIFEXITED(status) ? WEXITSTATUS(status) : 1000 + WTERMSIG(status);
  }
  close(pipe_ends[0]);
  return outcome;
}

}  // namespace tensor_fusion::guest::limiter::testing
