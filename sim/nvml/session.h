#pragma once
// What the simulated management library keeps in one process: how often it was initialised, the machine, and the
// handles it gave out. Handles stay valid addresses for the life of the process, so that a stale one is answered with
// an error. Any thread.
#include <memory>
#include <vector>

#include "contract/nvml.h"
#include "sim/device/machine.h"
#include "sim/device/mig.h"

namespace tensor_fusion::contract::nvml {

// A card (engine 0 of it) or a MIG device (one of its compute instances).
struct DeviceHandle {
  std::uint32_t magic;
  unsigned device;
  unsigned engine;  // within the device
};
struct GpuInstanceHandle {
  std::uint32_t magic;
  unsigned device, id;
};
struct ComputeInstanceHandle {
  std::uint32_t magic;
  unsigned device, gpu_instance, id;
};

}  // namespace tensor_fusion::contract::nvml

namespace tensor_fusion::sim::nvml {

namespace abi = contract::nvml;
using abi::Return;

[[nodiscard]] Return start();  // counts
[[nodiscard]] Return stop();

// The machine while initialised, else null. Holding it keeps it mapped.
[[nodiscard]] std::shared_ptr<device::Machine> session();
// Cards as the library enumerates them: those whose device file could be opened when it was initialised.
[[nodiscard]] std::vector<unsigned> enumerated();

[[nodiscard]] abi::Device device_handle(unsigned device, unsigned engine = 0);
[[nodiscard]] abi::GpuInstance gpu_instance_handle(unsigned device, unsigned id);
[[nodiscard]] abi::ComputeInstance compute_instance_handle(unsigned device, unsigned gpu_instance, unsigned id);

// A handle resolved: which card, which engine, and its facts.
struct Target {
  device::Machine& machine;
  unsigned device;
  unsigned engine;  // 0: the card
  const device::DeviceInfo& card;
  const device::Profile& profile;
  std::optional<device::ComputeInstance> mig;  // of a MIG device
  [[nodiscard]] device::EngineId engine_id() const { return device * device::kEnginesPerDevice + engine; }
  [[nodiscard]] bool is_mig() const { return engine != 0; }
};
[[nodiscard]] bool valid_handle(abi::Device handle);
[[nodiscard]] Return target_error(device::Machine& machine, abi::Device handle);
[[nodiscard]] Target make_target(device::Machine& machine, abi::Device handle);
[[nodiscard]] Return from_error(const device::Error& error);

// Runs body(Target&) for a good handle of a card that is there; answers the right error otherwise.
template <typename Body>
Return with_device(abi::Device handle, Body body) {
  const auto machine = session();
  if (!machine) return abi::kUninitialized;
  if (const Return wrong = target_error(*machine, handle); wrong != abi::kSuccess) return wrong;
  Target target = make_target(*machine, handle);
  return body(target);
}
// The same for facts that only a whole card has.
template <typename Body>
Return with_card(abi::Device handle, Body body) {
  return with_device(handle, [&](Target& t) -> Return { return t.is_mig() ? abi::kNotSupported : body(t); });
}
// One number of a card.
template <typename T, typename Body>
Return card_value(abi::Device handle, T* out, Body body) {
  return with_card(handle, [&](Target& t) -> Return {
    if (out == nullptr) return abi::kInvalidArgument;
    *out = static_cast<T>(body(t));
    return abi::kSuccess;
  });
}
[[nodiscard]] Return put_text(const char* text, char* out, unsigned length);

}  // namespace tensor_fusion::sim::nvml
