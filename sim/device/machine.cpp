#include "sim/device/machine.h"

#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <string_view>

#include "sim/device/clock.h"
#include "sim/device/device_file.h"
#include "sim/device/faults.h"
#include "sim/device/local.h"
#include "sim/device/machine_file.h"
#include "sim/device/reaper.h"

namespace tensor_fusion::sim::device {
namespace {

[[nodiscard]] std::string environment(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? "" : value;
}

[[nodiscard]] std::uint64_t to_ns(double ns) { return ns <= 0 ? 0 : static_cast<std::uint64_t>(ns); }

}  // namespace

Machine::Machine() : local_(std::make_unique<Local>()) {}

std::expected<std::unique_ptr<Machine>, Error> Machine::attach_from_environment() {
  return attach(
      {environment("TENSOR_FUSION_SIM_DIR"), environment("TENSOR_FUSION_SIM"), environment("TENSOR_FUSION_SIM_FAULT")});
}

std::expected<std::unique_ptr<Machine>, Error> Machine::attach(const Options& options) {
  std::unique_ptr<Machine> machine(new Machine);
  machine->directory_ = options.directory.empty() ? default_directory() : options.directory;
  if (const std::string wrong = configure_faults(options.faults, machine->directory_); !wrong.empty()) {
    return std::unexpected(Error{Errc::bad_spec, wrong});
  }
  auto opened = open_machine(machine->directory_, options.description);
  if (!opened) return std::unexpected(opened.error());
  machine->state_ = opened->state;
  machine->process_slot_ = opened->process_slot;
  machine->live_fd_ = opened->live_fd;
  machine->pid_ = static_cast<std::uint32_t>(::getpid());
  if (const std::string wrong = check_fault_cards(machine->device_count()); !wrong.empty()) {
    return std::unexpected(Error{Errc::bad_spec, wrong});
  }
  machine->reap();
  return machine;
}

Machine::~Machine() {
  if (state_ == nullptr) return;
  if (same_process()) {
    reap_process(*this, process_slot_, true);
    unlock_slot(live_fd_, process_slot_);
  }
  unmap_machine(state_);
}

bool Machine::same_process() const { return static_cast<std::uint32_t>(::getpid()) == pid_; }
unsigned Machine::device_count() const { return state_->device_count; }
const DeviceInfo& Machine::device(unsigned index) const { return state_->devices[index].info; }
const char* Machine::driver_version() const { return state_->driver_version; }
std::uint32_t Machine::cuda_version() const { return state_->cuda_version; }

bool Machine::may_open(const char* file) const {
  if (!opens_as(directory_, kControlFile, kControlText)) return false;
  for (EngineId id = 0; id < state_->device_count * kEnginesPerDevice; ++id) {
    const EngineInfo& info = state_->engines[id].info;
    if (std::string_view(info.file) != file) continue;
    if (!opens_as(directory_, info.file, info.uuid)) return false;
    return info.gpu_instance < 0 || may_open(state_->engines[info.device * kEnginesPerDevice].info.file);
  }
  return false;
}

std::vector<unsigned> Machine::visible_devices() const {
  std::vector<unsigned> list;
  for (unsigned d = 0; d < device_count(); ++d) {
    if (may_open(state_->engines[d * kEnginesPerDevice].info.file)) list.push_back(d);
  }
  return list;
}

std::vector<EngineInfo> Machine::engines_of(unsigned device) const {
  std::vector<EngineInfo> list;
  for (unsigned k = 0; k < kEnginesPerDevice; ++k) {
    const EngineRecord& engine = state_->engines[device * kEnginesPerDevice + k];
    if (engine.exists.load(std::memory_order_acquire) != 0) list.push_back(engine.info);
  }
  return list;
}

std::vector<EngineInfo> Machine::visible_engines() const {
  std::vector<EngineInfo> list;
  for (const unsigned d : visible_devices()) {
    for (const EngineInfo& info : engines_of(d)) {
      if (info.gpu_instance < 0 || may_open(info.file)) list.push_back(info);
    }
  }
  return list;
}

std::expected<EngineInfo, Error> Machine::engine(EngineId id) const {
  if (id >= kMaxEngines || state_->engines[id].exists.load(std::memory_order_acquire) == 0) {
    return std::unexpected(Error{Errc::not_found, "there is no such device or instance"});
  }
  return state_->engines[id].info;
}

std::uint64_t Machine::advance(EngineId engine, std::uint64_t now) {
  return advance_and_reap(*this, engine, now).clock_ns;
}
void Machine::reap() { reap_dead(*this); }
bool Machine::process_alive(std::uint32_t slot) const { return slot_alive(*state_, slot, live_fd_); }

bool Machine::lost(unsigned device) const {
  return state_->devices[device].lost.load(std::memory_order_relaxed) != 0 || fault_lost(device);
}

void Machine::set_lost(unsigned device, bool lost) {
  state_->devices[device].lost.store(lost ? 1 : 0);
  for (unsigned k = 0; k < kEnginesPerDevice; ++k) stir(state_->engines[device * kEnginesPerDevice + k]);
}

std::uint64_t Machine::copy_duration_ns(EngineId engine, WorkKind direction, std::uint64_t bytes) const {
  const EngineInfo& info = state_->engines[engine].info;
  const Profile& profile = state_->devices[engine / kEnginesPerDevice].info.profile;
  // A copy within the card reads and writes each byte.
  const double gb_per_s = direction == WorkKind::d2d ? info.memory_gb_per_s / 2 : profile.pcie_gb_per_s * profile.speed;
  return to_ns((profile.copy_latency_us * 1e3 + static_cast<double>(bytes) / gb_per_s) * slow_copy_factor());
}

std::uint64_t Machine::peer_copy_duration_ns(EngineId from, EngineId to, std::uint64_t bytes) const {
  if (from / kEnginesPerDevice == to / kEnginesPerDevice) return copy_duration_ns(from, WorkKind::d2d, bytes);
  const Profile& a = state_->devices[from / kEnginesPerDevice].info.profile;
  const Profile& b = state_->devices[to / kEnginesPerDevice].info.profile;
  const bool linked =
      a.link_kind != LinkKind::none && a.link_kind == b.link_kind && a.nvlink_gb_per_s > 0 && b.nvlink_gb_per_s > 0;
  const double gb_per_s = linked ? std::min(a.nvlink_gb_per_s * a.speed, b.nvlink_gb_per_s * b.speed)
                                 : std::min(a.pcie_gb_per_s * a.speed, b.pcie_gb_per_s * b.speed);
  return to_ns((a.copy_latency_us * 1e3 + static_cast<double>(bytes) / gb_per_s) * slow_copy_factor());
}

std::uint64_t Machine::kernel_duration_ns(EngineId engine, std::uint64_t thread_instructions, double width) const {
  const EngineInfo& info = state_->engines[engine].info;
  const Profile& profile = state_->devices[engine / kEnginesPerDevice].info.profile;
  const double rate = info.instructions_per_s * std::clamp(width, 1e-3, 1.0);
  return to_ns(std::max(profile.min_kernel_us * 1e3, static_cast<double>(thread_instructions) / rate * 1e9));
}

}  // namespace tensor_fusion::sim::device
