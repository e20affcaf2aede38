#pragma once
// One device as this process numbers them: a whole card or a MIG device that it may open. Owns the address range its
// memory is cut from, and the primary context. allocate() takes from the machine-wide account first and then cuts the
// bytes, so that what is accounted never lags what is held. Thread-safe.
#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <vector>

#include "sim/cuda/abi.h"
#include "sim/cuda/context.h"
#include "sim/device/arena.h"
#include "sim/device/machine.h"

namespace tensor_fusion::sim::cuda {

class Pool;

inline constexpr std::uint64_t kAllocationUnit = 512;                 // size and alignment of cuMemAlloc
inline constexpr std::uint64_t kChunkBytes = std::uint64_t{2} << 20;  // of backing, pools and physical memory

[[nodiscard]] constexpr std::uint64_t round_up(std::uint64_t value, std::uint64_t unit) {
  return (value + unit - 1) / unit * unit;
}

// Free address ranges of one arena, best fit, with the backing committed in chunks while any byte of it is in use.
class Heap {
 public:
  explicit Heap(device::Arena arena);
  [[nodiscard]] std::optional<std::uint64_t> take(std::uint64_t bytes, std::uint64_t alignment);  // address
  void give(std::uint64_t address, std::uint64_t bytes);
  [[nodiscard]] const device::Arena& arena() const { return arena_; }

 private:
  bool retain(std::uint64_t offset, std::uint64_t bytes);
  void release(std::uint64_t offset, std::uint64_t bytes);
  void insert_free(std::uint64_t offset, std::uint64_t bytes);
  device::Arena arena_;
  std::map<std::uint64_t, std::uint64_t> free_by_offset_;
  std::set<std::pair<std::uint64_t, std::uint64_t>> free_by_size_;
  std::vector<std::uint32_t> users_;  // per chunk
  std::vector<bool> committed_;
  unsigned idle_committed_ = 0;
};

class Device {
 public:
  Device(CUdevice number, const device::EngineInfo& engine_info, const device::DeviceInfo& device_info);

  const CUdevice ordinal;
  const device::EngineInfo engine;
  const device::DeviceInfo& card;
  [[nodiscard]] const device::Profile& profile() const { return card.profile; }
  [[nodiscard]] bool is_mig() const { return engine.gpu_instance >= 0; }

  // Charges and cuts `bytes` rounded up to kAllocationUnit. OUT_OF_MEMORY leaves nothing behind.
  CUresult allocate(std::uint64_t bytes, std::uint64_t& address, std::uint64_t alignment = kAllocationUnit);
  // Once others may have it open it is theirs, too, until they have closed it.
  void release(std::uint64_t address, std::uint64_t bytes);
  void let_others_open() { others_may_open_ = true; }
  // Only the address range, charged by somebody else (pools).
  CUresult cut(std::uint64_t bytes, std::uint64_t& address, std::uint64_t alignment);
  void uncut(std::uint64_t address, std::uint64_t bytes);
  CUresult charge(std::uint64_t bytes);
  void uncharge(std::uint64_t bytes);
  [[nodiscard]] const device::Arena* arena();

  // Device time of n thread-instructions on `blocks` blocks.
  [[nodiscard]] float width_of(std::uint64_t blocks) const;

  // The primary context. retain() makes it when needed; release() unmakes it at zero. Each has the handle of the first.
  CUresult retain_primary(std::shared_ptr<Context>& out);
  CUresult release_primary();
  CUresult reset_primary();
  [[nodiscard]] std::shared_ptr<Context> primary() const;
  CUresult set_primary_flags(unsigned flags);
  [[nodiscard]] unsigned primary_flags() const;

  std::shared_ptr<Pool> default_pool();
  std::shared_ptr<Pool> current_pool();
  void set_current_pool(std::shared_ptr<Pool> pool);

 private:
  mutable std::mutex mutex_;
  std::optional<Heap> heap_;
  std::atomic<bool> others_may_open_ = false;
  mutable std::mutex primary_mutex_;
  std::shared_ptr<Context> primary_;
  std::uint64_t primary_handle_ = 0;
  unsigned primary_users_ = 0, primary_flags_ = 0;
  std::mutex pool_mutex_;
  std::shared_ptr<Pool> default_pool_, current_pool_;
};

// INVALID_DEVICE for an unknown ordinal.
CUresult find_device(CUdevice ordinal, Device*& out);

}  // namespace tensor_fusion::sim::cuda
