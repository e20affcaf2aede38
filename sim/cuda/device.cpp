#include "sim/cuda/device.h"

#include <algorithm>
#include <utility>

#include "sim/cuda/driver.h"
#include "sim/cuda/physical_account.h"
#include "sim/cuda/pool.h"
#include "sim/device/memory.h"

namespace tensor_fusion::sim::cuda {

Device::Device(CUdevice number, const device::EngineInfo& engine_info, const device::DeviceInfo& device_info)
    : ordinal(number), engine(engine_info), card(device_info) {}

CUresult Device::charge(std::uint64_t bytes) {
  auto& machine = Driver::get().machine();
  if (device::reserve_memory(machine, engine.memory_domain, bytes)) return CUDA_SUCCESS;
  return collect_payments() && device::reserve_memory(machine, engine.memory_domain, bytes) ? CUDA_SUCCESS
                                                                                            : CUDA_ERROR_OUT_OF_MEMORY;
}

void Device::uncharge(std::uint64_t bytes) {
  (void)device::release_memory(Driver::get().machine(), engine.memory_domain, bytes);
}

CUresult Device::cut(std::uint64_t bytes, std::uint64_t& address, std::uint64_t alignment) {
  const std::lock_guard lock(mutex_);
  if (!heap_) {
    // Twice the memory: room for fragments.
    auto arena = device::Arena::reserve(round_up(engine.memory_bytes * 2, kChunkBytes));
    if (!arena) return CUDA_ERROR_OUT_OF_MEMORY;
    heap_.emplace(std::move(*arena));
  }
  const auto taken = heap_->take(bytes, alignment);
  if (!taken) return CUDA_ERROR_OUT_OF_MEMORY;
  address = *taken;
  return CUDA_SUCCESS;
}

void Device::uncut(std::uint64_t address, std::uint64_t bytes) {
  const std::lock_guard lock(mutex_);
  heap_->give(address, bytes);
}

CUresult Device::allocate(std::uint64_t bytes, std::uint64_t& address, std::uint64_t alignment) {
  if (bytes > engine.memory_bytes) return CUDA_ERROR_OUT_OF_MEMORY;
  const std::uint64_t rounded = round_up(bytes, kAllocationUnit);
  TF_TRY(charge(rounded));
  if (const CUresult result = cut(rounded, address, alignment); result != CUDA_SUCCESS) {
    uncharge(rounded);
    return result;
  }
  return CUDA_SUCCESS;
}

void Device::release(std::uint64_t address, std::uint64_t bytes) {
  const std::uint64_t rounded = round_up(bytes, kAllocationUnit);
  const auto give_back = [this, address, rounded] {
    if (!device::release_memory(Driver::get().machine(), engine.memory_domain, rounded)) return false;
    uncut(address, rounded);
    return true;
  };
  if (others_may_open_) {
    const auto* from = arena();
    const auto offset = address - reinterpret_cast<std::uint64_t>(from->base());
    const auto held = [from, offset, bytes] { return device::is_range_held(from->fd(), offset, bytes); };
    if (held()) return keep_until_let_go(held, give_back);
  }
  uncut(address, rounded);
  uncharge(rounded);
}

const device::Arena* Device::arena() {
  const std::lock_guard lock(mutex_);
  return heap_ ? &heap_->arena() : nullptr;
}

float Device::width_of(std::uint64_t blocks) const {
  const auto sms = std::max<std::uint64_t>(engine.sm_count, 1);
  return blocks >= sms ? 1.0F : static_cast<float>(std::max<std::uint64_t>(blocks, 1)) / static_cast<float>(sms);
}

CUresult Device::retain_primary(std::shared_ptr<Context>& out) {
  const std::lock_guard lock(primary_mutex_);
  if (!primary_) {
    TF_TRY(Context::create(*this, primary_flags_, true, primary_handle_, primary_));
    primary_handle_ = reinterpret_cast<std::uintptr_t>(primary_->handle());
  }
  ++primary_users_;
  out = primary_;
  return CUDA_SUCCESS;
}

CUresult Device::release_primary() {
  const std::lock_guard lock(primary_mutex_);  // to the end: its successor takes over the handle
  if (primary_users_ == 0) return CUDA_ERROR_INVALID_CONTEXT;
  if (--primary_users_ == 0) std::exchange(primary_, nullptr)->destroy();
  return CUDA_SUCCESS;
}

CUresult Device::reset_primary() {
  const std::lock_guard lock(primary_mutex_);
  if (const auto last = std::exchange(primary_, nullptr)) last->destroy();
  primary_users_ = 0;
  primary_flags_ = 0;
  return CUDA_SUCCESS;
}

std::shared_ptr<Context> Device::primary() const {
  const std::lock_guard lock(primary_mutex_);
  return primary_;
}

CUresult Device::set_primary_flags(unsigned flags) {
  const std::lock_guard lock(primary_mutex_);
  primary_flags_ = flags;
  if (primary_) primary_->flags = flags;
  return CUDA_SUCCESS;
}

unsigned Device::primary_flags() const {
  const std::lock_guard lock(primary_mutex_);
  return primary_flags_;
}

std::shared_ptr<Pool> Device::default_pool() {
  const std::lock_guard lock(pool_mutex_);
  if (!default_pool_) default_pool_ = Pool::make_default(*this);
  return default_pool_;
}

std::shared_ptr<Pool> Device::current_pool() {
  {
    const std::lock_guard lock(pool_mutex_);
    if (current_pool_) return current_pool_;
  }
  return default_pool();
}

void Device::set_current_pool(std::shared_ptr<Pool> pool) {
  const std::lock_guard lock(pool_mutex_);
  current_pool_ = std::move(pool);
}

CUresult find_device(CUdevice ordinal, Device*& out) {
  out = Driver::get().device(ordinal);
  return out != nullptr ? CUDA_SUCCESS : CUDA_ERROR_INVALID_DEVICE;
}

}  // namespace tensor_fusion::sim::cuda
