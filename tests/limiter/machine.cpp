#include "tests/limiter/machine.h"

#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <stdexcept>

#include "guest/limiter/testing/build_folder.h"
#include "guest/limiter/testing/scratch.h"

namespace tensor_fusion::tests {

using guest::limiter::testing::Job;
using guest::limiter::testing::TestSlice;

LimitedMachine::LimitedMachine(std::uint64_t limit_bytes, const std::string& description, unsigned cards) {
  std::string name = guest::limiter::testing::scratch_base() + "/tensor-fusion-machine-XXXXXX";
  if (mkdtemp(name.data()) == nullptr) throw std::runtime_error("cannot make the directory " + name);
  state_ = name;
  auto machine = sim::device::Machine::attach({state_ + "/sim", description, ""});
  if (!machine) throw std::runtime_error(machine.error().message);
  machine_ = std::move(*machine);
  overhead_ = machine_->device(0).profile.context_overhead_bytes;
  std::vector<guest::limiter::testing::GrantedDevice> granted;
  for (unsigned card = 0; card < cards; ++card)
    granted.push_back({machine_->device(card).uuid, limit_bytes, overhead_, true, 10000});
  slice_ = std::make_unique<TestSlice>(granted);
  slice_->start_hypervisor([this](std::uint32_t card) { return tenants_real_bytes(card); });
}
LimitedMachine::~LimitedMachine() {
  slice_.reset();
  machine_.reset();
  std::filesystem::remove_all(state_);
}

std::string LimitedMachine::bus(unsigned card) const {
  const auto& device = machine_->device(card);
  char text[32];
  std::snprintf(text, sizeof text, "%08X:%02X:%02X.0", device.pci_domain, device.pci_bus, device.pci_device);
  return text;
}
sim::device::MemoryInfo LimitedMachine::memory() const {
  machine_->reap();
  return sim::device::memory_info(*machine_, machine_->engines_of(0).front().memory_domain);
}
std::uint64_t LimitedMachine::tenants_real_bytes(unsigned card) const {
  machine_->reap();
  std::uint64_t bytes = 0;
  for (const auto& process :
       sim::device::memory_by_process(*machine_, machine_->engines_of(card).front().memory_domain))
    bytes += process.used_bytes;
  return bytes;
}
void LimitedMachine::reset_peak() {
  machine_->reap();
  sim::device::reset_memory_peak(*machine_, machine_->engines_of(0).front().memory_domain);
}

Job LimitedMachine::tenant(std::vector<std::string> arguments, bool limited) const {
  const std::string build = guest::limiter::testing::build_folder();
  Job job;
  job.command = {build + "/programs/limiter_tenant"};
  job.command.insert(job.command.end(), arguments.begin(), arguments.end());
  job.environment = {"LD_LIBRARY_PATH=" + build + "/sim", "TENSOR_FUSION_SIM_DIR=" + state_ + "/sim", "HOME=/tmp"};
  if (limited) {
    job.environment.push_back("LD_PRELOAD=" + build + "/lib/libtensor_fusion_limiter.so");
    job.environment.push_back("TENSOR_FUSION_SLICE=" + slice_->directory());
  }
  return job;
}

Talk::Talk(const Job& job) {
  signal(SIGPIPE, SIG_IGN);  // one that has ended is told nothing, and says so by an empty line
  int to[2];
  int from[2];
  if (pipe2(to, O_CLOEXEC) != 0 || pipe2(from, O_CLOEXEC) != 0) throw std::runtime_error("no pipe");
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_adddup2(&actions, to[0], 0);
  posix_spawn_file_actions_adddup2(&actions, from[1], 1);
  std::vector<char*> arguments;
  std::vector<char*> environment;
  for (const std::string& part : job.command) arguments.push_back(const_cast<char*>(part.c_str()));
  for (const std::string& part : job.environment) environment.push_back(const_cast<char*>(part.c_str()));
  arguments.push_back(nullptr);
  environment.push_back(nullptr);
  if (posix_spawn(&pid_, arguments[0], &actions, nullptr, arguments.data(), environment.data()) != 0)
    throw std::runtime_error("cannot start " + job.command[0]);
  posix_spawn_file_actions_destroy(&actions);
  close(to[0]);
  close(from[1]);
  in_ = to[1];
  out_ = from[0];
}
Talk::~Talk() {
  close(in_);
  close(out_);
  int status = 0;
  waitpid(pid_, &status, 0);
}
std::string Talk::line() {
  for (;;) {
    if (const std::size_t end = buffered_.find('\n'); end != std::string::npos) {
      std::string found = buffered_.substr(0, end);
      buffered_.erase(0, end + 1);
      return found;
    }
    char bytes[512];
    const ssize_t count = read(out_, bytes, sizeof bytes);
    if (count <= 0) return {};
    buffered_.append(bytes, static_cast<std::size_t>(count));
  }
}
void Talk::go() { (void)!write(in_, "\n", 1); }
void Talk::kill() { ::kill(pid_, SIGKILL); }

}  // namespace tensor_fusion::tests
