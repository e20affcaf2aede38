#pragma once
// Handles given to programs. A handle is a number with kind, generation and index in it, never an address, so that a
// stale, foreign or made-up one is told apart from a live one without touching memory it may point to. Looking one up
// takes no lock. Objects are shared: queued work keeps what it uses alive after the program destroyed its handle.
#include <array>
#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <vector>

namespace tensor_fusion::sim::cuda {

enum class HandleKind : std::uint64_t {
  context = 1,
  stream,
  event,
  module,
  function,
  library,
  kernel,
  graph,
  graph_node,
  graph_exec,
  pool,
  array,
  mipmap,
  link,
  texture,
  surface,
  physical,
  user_object,
  green_context,
  resource_description,
  external_memory,
  graph_condition,
};

template <typename T>
class HandleTable {
 public:
  // 0 when the table is full.
  std::uint64_t insert(std::shared_ptr<T> object) {
    const std::lock_guard lock(mutex_);
    std::uint64_t index = 0;
    if (!free_.empty()) {
      index = free_.back();
      free_.pop_back();
    } else {
      if (next_ == kMaxObjects) return 0;
      index = next_++;
      auto& chunk = chunks_[index / kChunk];
      if (chunk.load(std::memory_order_relaxed) == nullptr) chunk.store(new Chunk, std::memory_order_release);
    }
    Slot& slot = slot_at(index);
    const std::uint64_t generation = (slot.last_generation % kMaxGeneration) + 1;
    slot.last_generation = generation;
    slot.raw.store(object.get(), std::memory_order_relaxed);
    slot.owner = std::move(object);
    slot.generation.store(generation, std::memory_order_release);
    return encode(index, generation);
  }

  [[nodiscard]] T* find(std::uint64_t handle) const {
    const std::uint64_t index = (handle >> kIndexShift) & (kMaxObjects - 1);
    if ((handle >> kKindShift) != static_cast<std::uint64_t>(T::kHandleKind) || (handle & 15U) != 0) return nullptr;
    Chunk* chunk = chunks_[index / kChunk].load(std::memory_order_acquire);
    if (chunk == nullptr) return nullptr;
    Slot& slot = (*chunk)[index % kChunk];
    if (slot.generation.load(std::memory_order_acquire) != ((handle >> kGenerationShift) & kMaxGeneration))
      return nullptr;
    return slot.raw.load(std::memory_order_relaxed);
  }
  template <typename Handle>
  [[nodiscard]] T* find(Handle* handle) const {
    return find(reinterpret_cast<std::uintptr_t>(handle));
  }

  [[nodiscard]] std::shared_ptr<T> share(std::uint64_t handle) const {
    const std::lock_guard lock(mutex_);
    return find(handle) != nullptr ? slot_at((handle >> kIndexShift) & (kMaxObjects - 1)).owner : nullptr;
  }
  template <typename Handle>
  [[nodiscard]] std::shared_ptr<T> share(Handle* handle) const {
    return share(reinterpret_cast<std::uintptr_t>(handle));
  }

  // The object, which the handle no longer names; nothing if it did not.
  std::shared_ptr<T> remove(std::uint64_t handle) {
    const std::lock_guard lock(mutex_);
    if (find(handle) == nullptr) return nullptr;
    const std::uint64_t index = (handle >> kIndexShift) & (kMaxObjects - 1);
    Slot& slot = slot_at(index);
    slot.generation.store(0, std::memory_order_release);
    free_.push_back(index);
    return std::move(slot.owner);
  }
  template <typename Handle>
  std::shared_ptr<T> remove(Handle* handle) {
    return remove(reinterpret_cast<std::uintptr_t>(handle));
  }

  // For an object that comes back under the handle it had: until restore() the handle names nothing, and nobody else
  // gets it.
  std::shared_ptr<T> withdraw(std::uint64_t handle) {
    const std::lock_guard lock(mutex_);
    if (find(handle) == nullptr) return nullptr;
    Slot& slot = slot_at((handle >> kIndexShift) & (kMaxObjects - 1));
    slot.generation.store(0, std::memory_order_release);
    return std::move(slot.owner);
  }
  void restore(std::uint64_t handle, std::shared_ptr<T> object) {
    const std::lock_guard lock(mutex_);
    Slot& slot = slot_at((handle >> kIndexShift) & (kMaxObjects - 1));
    slot.raw.store(object.get(), std::memory_order_relaxed);
    slot.owner = std::move(object);
    slot.generation.store((handle >> kGenerationShift) & kMaxGeneration, std::memory_order_release);
  }

  [[nodiscard]] std::vector<std::shared_ptr<T>> all() const {
    const std::lock_guard lock(mutex_);
    std::vector<std::shared_ptr<T>> live;
    for (std::uint64_t index = 0; index < next_; ++index)
      if (slot_at(index).generation.load(std::memory_order_relaxed) != 0) live.push_back(slot_at(index).owner);
    return live;
  }

  // All objects of which the caller says yes, out of the table. `wanted` must not come back here.
  template <typename Wanted>
  std::vector<std::shared_ptr<T>> remove_all(Wanted wanted) {
    const std::lock_guard lock(mutex_);
    std::vector<std::shared_ptr<T>> removed;
    for (std::uint64_t index = 0; index < next_; ++index) {
      Slot& slot = slot_at(index);
      if (slot.generation.load(std::memory_order_relaxed) == 0 || !wanted(*slot.owner)) continue;
      slot.generation.store(0, std::memory_order_release);
      free_.push_back(index);
      removed.push_back(std::move(slot.owner));
    }
    return removed;
  }

 private:
  static constexpr std::uint64_t kChunk = 1024;
  static constexpr std::uint64_t kMaxObjects = std::uint64_t{1} << 22;
  static constexpr std::uint64_t kMaxGeneration = (std::uint64_t{1} << 16) - 1;
  static constexpr int kIndexShift = 4, kGenerationShift = 26, kKindShift = 42;
  struct Slot {
    std::atomic<std::uint64_t> generation{0};  // 0 = free
    std::atomic<T*> raw{nullptr};
    std::uint64_t last_generation = 0;
    std::shared_ptr<T> owner;
  };
  using Chunk = std::array<Slot, kChunk>;

  static std::uint64_t encode(std::uint64_t index, std::uint64_t generation) {
    return (static_cast<std::uint64_t>(T::kHandleKind) << kKindShift) | (generation << kGenerationShift) |
           (index << kIndexShift);
  }
  Slot& slot_at(std::uint64_t index) const {
    return (*chunks_[index / kChunk].load(std::memory_order_relaxed))[index % kChunk];
  }

  mutable std::mutex mutex_;
  std::array<std::atomic<Chunk*>, kMaxObjects / kChunk> chunks_{};
  std::vector<std::uint64_t> free_;
  std::uint64_t next_ = 0;
};

template <typename Handle>
[[nodiscard]] Handle as_handle(std::uint64_t value) {
  return reinterpret_cast<Handle>(static_cast<std::uintptr_t>(value));
}

}  // namespace tensor_fusion::sim::cuda
