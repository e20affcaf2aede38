#include "sim/nvml/session.h"

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <map>
#include <mutex>
#include <tuple>

namespace tensor_fusion::sim::nvml {
namespace {

constexpr std::uint32_t kDeviceMagic = 0x4e56444d, kGpuInstanceMagic = 0x4e564749, kComputeInstanceMagic = 0x4e564349;

struct Library {
  std::mutex mutex;
  unsigned count = 0;
  std::shared_ptr<device::Machine> machine;
  std::vector<unsigned> enumerated;
  abi::DeviceHandle devices[device::kMaxMachineDevices][device::kEnginesPerDevice];
  std::map<std::pair<unsigned, unsigned>, std::unique_ptr<abi::GpuInstanceHandle>> gpu_instances;
  std::map<std::tuple<unsigned, unsigned, unsigned>, std::unique_ptr<abi::ComputeInstanceHandle>> compute_instances;
};
Library& library() {
  static Library* only = [] {
    auto* made = new Library;
    for (unsigned d = 0; d < device::kMaxMachineDevices; ++d) {
      for (unsigned e = 0; e < device::kEnginesPerDevice; ++e) made->devices[d][e] = {kDeviceMagic, d, e};
    }
    return made;
  }();
  return *only;
}

}  // namespace

Return from_error(const device::Error& error) {
  switch (error.code) {
    case device::Errc::no_device:
      return abi::kDriverNotLoaded;
    case device::Errc::exhausted:
    case device::Errc::out_of_memory:
      return abi::kInsufficientResources;
    case device::Errc::invalid:
      return abi::kInvalidArgument;
    case device::Errc::not_found:
      return abi::kNotFound;
    case device::Errc::in_use:
      return abi::kInUse;
    case device::Errc::not_supported:
      return abi::kNotSupported;
    case device::Errc::no_permission:
      return abi::kNoPermission;
    case device::Errc::lost:
      return abi::kGpuIsLost;
    default:
      return abi::kUnknown;
  }
}

Return start() {
  Library& l = library();
  const std::lock_guard guard(l.mutex);
  if (l.machine && !l.machine->same_process()) {  // a forked child starts over
    l.machine.reset();
    l.count = 0;
  }
  if (l.count == 0) {
    auto machine = device::Machine::attach_from_environment();
    if (!machine) {
      std::fprintf(stderr, "simulated NVML: %s\n", machine.error().message.c_str());
      return abi::kDriverNotLoaded;
    }
    l.machine = std::move(*machine);
    l.enumerated = l.machine->visible_devices();
  }
  ++l.count;
  return abi::kSuccess;
}

Return stop() {
  Library& l = library();
  std::shared_ptr<device::Machine> last;  // let go outside the lock
  const std::lock_guard guard(l.mutex);
  if (l.count == 0) return abi::kUninitialized;
  if (--l.count == 0) last = std::move(l.machine);
  return abi::kSuccess;
}

std::shared_ptr<device::Machine> session() {
  Library& l = library();
  const std::lock_guard guard(l.mutex);
  return l.machine;
}

std::vector<unsigned> enumerated() {
  Library& l = library();
  const std::lock_guard guard(l.mutex);
  return l.enumerated;
}

abi::Device device_handle(unsigned device, unsigned engine) { return &library().devices[device][engine]; }

abi::GpuInstance gpu_instance_handle(unsigned device, unsigned id) {
  Library& l = library();
  const std::lock_guard guard(l.mutex);
  auto& slot = l.gpu_instances[{device, id}];
  if (!slot) slot = std::make_unique<abi::GpuInstanceHandle>(abi::GpuInstanceHandle{kGpuInstanceMagic, device, id});
  return slot.get();
}

abi::ComputeInstance compute_instance_handle(unsigned device, unsigned gpu_instance, unsigned id) {
  Library& l = library();
  const std::lock_guard guard(l.mutex);
  auto& slot = l.compute_instances[{device, gpu_instance, id}];
  if (!slot) {
    slot = std::make_unique<abi::ComputeInstanceHandle>(
        abi::ComputeInstanceHandle{kComputeInstanceMagic, device, gpu_instance, id});
  }
  return slot.get();
}

bool valid_handle(abi::Device handle) {
  const auto* first = &library().devices[0][0];
  const auto* end = first + device::kMaxMachineDevices * device::kEnginesPerDevice;
  return handle >= first && handle < end && handle->magic == kDeviceMagic;
}

Return target_error(device::Machine& machine, abi::Device handle) {
  if (handle == nullptr || !valid_handle(handle) || handle->device >= machine.device_count())
    return abi::kInvalidArgument;
  if (machine.lost(handle->device)) return abi::kGpuIsLost;
  if (handle->engine != 0 && !machine.engine(handle->device * device::kEnginesPerDevice + handle->engine))
    return abi::kNotFound;
  return abi::kSuccess;
}

Target make_target(device::Machine& machine, abi::Device handle) {
  const device::DeviceInfo& card = machine.device(handle->device);
  Target target{machine, handle->device, handle->engine, card, card.profile, {}};
  if (handle->engine != 0) {
    for (const device::ComputeInstance& ci : device::compute_instances(machine, handle->device)) {
      if (ci.engine == target.engine_id()) target.mig = ci;
    }
  }
  return target;
}

Return put_text(const char* text, char* out, unsigned length) {
  if (out == nullptr) return abi::kInvalidArgument;
  const std::size_t size = std::strlen(text) + 1;
  if (size > length) return abi::kInsufficientSize;
  std::memcpy(out, text, size);
  return abi::kSuccess;
}

}  // namespace tensor_fusion::sim::nvml
