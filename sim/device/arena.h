#pragma once
// Backing of device memory by host memory. An Arena is one process's reserved address range of one device: untouchable
// until committed, committed parts readable and writable, backed by one memfd so that another process can map the same
// bytes (CUDA IPC). Physical is one exportable memfd of its own (virtual memory management). Neither counts against the
// device: reserve_memory() does. Any thread, for disjoint ranges. Move-only.
#include <cstddef>
#include <cstdint>
#include <expected>
#include <utility>

#include "sim/device/error.h"

namespace tensor_fusion::sim::device {

inline constexpr std::size_t kArenaPage = 4096;

class Arena {
 public:
  // Reserves `bytes` of address space (rounded up to 2 MiB), at least twice the device's capacity by advice.
  [[nodiscard]] static std::expected<Arena, Error> reserve(std::size_t bytes);
  Arena(Arena&& other) noexcept { swap(other); }
  Arena& operator=(Arena&& other) noexcept {
    swap(other);
    return *this;
  }
  Arena(const Arena&) = delete;
  Arena& operator=(const Arena&) = delete;
  ~Arena();

  [[nodiscard]] std::byte* base() const { return base_; }
  [[nodiscard]] std::size_t size() const { return size_; }
  [[nodiscard]] int fd() const { return fd_; }  // another process maps /proc/<pid>/fd/<fd> at the same offset
  [[nodiscard]] bool contains(const void* p) const {
    const auto* b = static_cast<const std::byte*>(p);
    return b >= base_ && b < base_ + size_;
  }
  // Makes [offset, offset + bytes) readable and writable, zero where never committed since the last decommit.
  // Offsets and sizes are multiples of kArenaPage.
  [[nodiscard]] std::expected<void, Error> commit(std::size_t offset, std::size_t bytes);
  // Untouchable again, and its host memory returned (also under the maps of other processes).
  std::expected<void, Error> decommit(std::size_t offset, std::size_t bytes);

 private:
  Arena() = default;
  void swap(Arena& other) noexcept {
    std::swap(base_, other.base_);
    std::swap(size_, other.size_);
    std::swap(fd_, other.fd_);
  }
  std::byte* base_ = nullptr;
  std::size_t size_ = 0;
  int fd_ = -1;
};

// One allocation that can be mapped anywhere and handed to another process as a descriptor.
class Physical {
 public:
  [[nodiscard]] static std::expected<Physical, Error> create(std::size_t bytes);
  [[nodiscard]] static std::expected<Physical, Error> adopt(int fd);  // imported: takes ownership, size from the file
  Physical(Physical&& other) noexcept { swap(other); }
  Physical& operator=(Physical&& other) noexcept {
    swap(other);
    return *this;
  }
  Physical(const Physical&) = delete;
  Physical& operator=(const Physical&) = delete;
  ~Physical();
  [[nodiscard]] int fd() const { return fd_; }
  [[nodiscard]] std::size_t size() const { return size_; }

 private:
  Physical() = default;
  void swap(Physical& other) noexcept {
    std::swap(size_, other.size_);
    std::swap(fd_, other.fd_);
  }
  std::size_t size_ = 0;
  int fd_ = -1;
};

enum class Access : std::uint8_t { none, read, read_write };

[[nodiscard]] std::expected<std::byte*, Error> reserve_addresses(std::size_t bytes, std::size_t alignment,
                                                                 void* wish = nullptr);
void free_addresses(void* address, std::size_t bytes);
// Maps part of a file over reserved addresses (shared), without access until protect().
[[nodiscard]] std::expected<void, Error> map_at(void* address, std::size_t bytes, int fd, std::size_t offset);
// Back to reserved, untouchable.
std::expected<void, Error> unmap_at(void* address, std::size_t bytes);
std::expected<void, Error> protect(void* address, std::size_t bytes, Access access);
// An open file of a process that uses part of another's memory says so, for as long as it or a mapping of it is there.
bool hold_range(int fd, std::size_t offset, std::size_t bytes);
// Whether another open file of the same bytes says so of any part.
[[nodiscard]] bool is_range_held(int fd, std::size_t offset, std::size_t bytes);
// The same bytes as another process's arena: opens /proc/<pid>/fd/<fd>. The caller closes the descriptor.
[[nodiscard]] std::expected<int, Error> open_foreign(std::uint32_t pid, int fd);

}  // namespace tensor_fusion::sim::device
