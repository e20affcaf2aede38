#include "sim/cuda/driver.h"

#include <pthread.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <mutex>
#include <string>
#include <thread>

#include "sim/cuda/device.h"
#include "sim/device/description.h"
#include "sim/device/faults.h"
#include "sim/device/health.h"
#include "sim/device/process_state.h"

namespace tensor_fusion::sim::cuda {
namespace {

std::mutex init_mutex;

std::string_view next_word(std::string_view& list) {
  const auto comma = list.find(',');
  auto word = list.substr(0, comma);
  list = comma == std::string_view::npos ? std::string_view{} : list.substr(comma + 1);
  while (!word.empty() && word.front() == ' ') word.remove_prefix(1);
  while (!word.empty() && word.back() == ' ') word.remove_suffix(1);
  return word;
}

// CUDA_VISIBLE_DEVICES: ordinals or beginnings of UUIDs, in the order wanted; the first word that names nothing ends
// it.
std::vector<device::EngineInfo> chosen(const std::vector<device::EngineInfo>& all) {
  const char* variable = std::getenv("CUDA_VISIBLE_DEVICES");
  if (variable == nullptr) return all;
  std::vector<device::EngineInfo> result;
  std::string_view list = variable;
  while (!list.empty()) {
    const auto word = next_word(list);
    const device::EngineInfo* found = nullptr;
    if (!word.empty() && word.find_first_not_of("0123456789") == std::string_view::npos && word.size() < 6) {
      const auto number = static_cast<std::size_t>(std::atoi(std::string(word).c_str()));
      if (number < all.size()) found = &all[number];
    } else if (word.starts_with("GPU-") || word.starts_with("MIG-")) {
      for (const auto& engine : all) {
        if (!std::string_view(engine.uuid).starts_with(word)) continue;
        if (found != nullptr) return result;  // ambiguous
        found = &engine;
      }
    }
    if (found == nullptr) break;
    for (const auto& engine : result)
      if (engine.id == found->id) return {};  // a device named twice: none at all, as real drivers do
    result.push_back(*found);
  }
  return result;
}

CUresult result_of(const device::Error& error) {
  switch (error.code) {
    case device::Errc::no_device:
      return CUDA_ERROR_NO_DEVICE;
    case device::Errc::no_permission:
      return CUDA_ERROR_NO_DEVICE;
    case device::Errc::out_of_memory:
      return CUDA_ERROR_OUT_OF_MEMORY;
    case device::Errc::lost:
      return CUDA_ERROR_UNKNOWN;
    default:
      return CUDA_ERROR_SYSTEM_NOT_READY;
  }
}

}  // namespace

Driver& Driver::get() {
  static Driver* driver = new Driver;  // immortal
  return *driver;
}

int Driver::version() {
  if (ready()) return static_cast<int>(machine_->cuda_version());
  static const int asked_for = [] {
    const char* text = std::getenv("TENSOR_FUSION_SIM");
    const auto description = device::read_description(text != nullptr ? text : "");
    return static_cast<int>(description.value_or(device::Description{}).cuda_version);
  }();
  return asked_for;
}

CUresult Driver::init() {
  const std::lock_guard lock(init_mutex);
  const State state = state_.load();
  if (state == State::ready) return CUDA_SUCCESS;
  if (state == State::forked) return CUDA_ERROR_NOT_INITIALIZED;
  auto machine = device::Machine::attach_from_environment();
  if (!machine) {
    if (machine.error().code != device::Errc::no_device)
      std::fprintf(stderr, "libcuda (simulated): %s\n", machine.error().message.c_str());
    log_line("cuInit: " + machine.error().message);
    return result_of(machine.error());
  }
  machine_ = std::move(*machine);
  for (const auto& engine : chosen(machine_->visible_engines()))
    devices_.push_back(
        std::make_unique<Device>(static_cast<CUdevice>(devices_.size()), engine, machine_->device(engine.device)));
  if (devices_.empty()) {
    static_cast<void>(machine_.release());  // keeps its place for the life of the process, as its header asks
    return CUDA_ERROR_NO_DEVICE;
  }
  pthread_atfork(nullptr, nullptr, [] { Driver::get().state_.store(State::forked); });
  state_.store(State::ready, std::memory_order_release);
  return CUDA_SUCCESS;
}

Device* Driver::device(CUdevice ordinal) const {
  return ordinal >= 0 && static_cast<std::size_t>(ordinal) < devices_.size()
             ? devices_[static_cast<std::size_t>(ordinal)].get()
             : nullptr;
}

CUresult Driver::enter(std::string_view symbol, std::string_view site) {
  if (state_.load(std::memory_order_acquire) != State::ready) [[unlikely]]
    return CUDA_ERROR_NOT_INITIALIZED;
  if (inside_callback()) [[unlikely]]
    return CUDA_ERROR_NOT_PERMITTED;
  device::await_running(*machine_);
  const device::Fault fault = device::fault_at(symbol, site);
  switch (fault.kind) {
    case device::FaultKind::none:
      return CUDA_SUCCESS;
    case device::FaultKind::oom:
      return CUDA_ERROR_OUT_OF_MEMORY;
    case device::FaultKind::error:
      return static_cast<CUresult>(fault.code);
    case device::FaultKind::xid:
      break;
  }
  Context* context = current_context();
  const Device& device = context != nullptr ? context->device() : *devices_.front();
  device::report_xid(*machine_, device.engine.device, fault.code, static_cast<std::uint32_t>(::getpid()),
                     device.engine.gpu_instance, device.engine.compute_instance);
  if (context != nullptr) context->poison(CUDA_ERROR_LAUNCH_FAILED);
  return CUDA_ERROR_LAUNCH_FAILED;
}

CUresult check_context(Context& context) {
  if (context.destroyed()) [[unlikely]]
    return CUDA_ERROR_CONTEXT_IS_DESTROYED;
  if (const CUresult sticky = context.sticky(); sticky != CUDA_SUCCESS) [[unlikely]]
    return sticky;
  if (Driver::get().machine().lost(context.device().engine.device)) [[unlikely]] {
    context.poison(CUDA_ERROR_UNKNOWN);
    return CUDA_ERROR_UNKNOWN;
  }
  return CUDA_SUCCESS;
}

CUresult enter(std::string_view symbol, std::string_view site, Context*& context) {
  TF_TRY(Driver::get().enter(symbol, site));
  context = current_context();
  if (context == nullptr) [[unlikely]]
    return current_handle() != nullptr ? CUDA_ERROR_CONTEXT_IS_DESTROYED : CUDA_ERROR_INVALID_CONTEXT;
  return check_context(*context);
}

void log_line(std::string_view text) {
  static const char* const where = std::getenv("TENSOR_FUSION_SIM_LOG");
  if (where == nullptr || *where == '\0') return;
  const bool to_stderr = std::strcmp(where, "1") == 0 || std::strcmp(where, "stderr") == 0;
  std::FILE* out = to_stderr ? stderr : std::fopen(where, "ae");
  if (out == nullptr) return;
  std::fprintf(out, "libcuda[%d]: %.*s\n", static_cast<int>(::getpid()), static_cast<int>(text.size()), text.data());
  if (!to_stderr) std::fclose(out);
}

}  // namespace tensor_fusion::sim::cuda
