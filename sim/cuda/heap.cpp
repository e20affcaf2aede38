#include <algorithm>

#include "sim/cuda/device.h"

namespace tensor_fusion::sim::cuda {
namespace {
constexpr unsigned kIdleChunks = 32;  // committed chunks kept although empty, so that a free and alloc pair stays cheap
}

Heap::Heap(device::Arena arena) : arena_(std::move(arena)) {
  const std::uint64_t chunks = arena_.size() / kChunkBytes;
  users_.resize(chunks);
  committed_.resize(chunks);
  insert_free(0, chunks * kChunkBytes);
}

void Heap::insert_free(std::uint64_t offset, std::uint64_t bytes) {
  free_by_offset_.emplace(offset, bytes);
  free_by_size_.emplace(bytes, offset);
}

std::optional<std::uint64_t> Heap::take(std::uint64_t bytes, std::uint64_t alignment) {
  for (auto it = free_by_size_.lower_bound({bytes, 0}); it != free_by_size_.end(); ++it) {
    const auto [size, offset] = *it;
    const auto base = reinterpret_cast<std::uint64_t>(arena_.base());
    const std::uint64_t start = round_up(base + offset, alignment) - base;
    if (start + bytes > offset + size) continue;
    free_by_size_.erase(it);
    free_by_offset_.erase(offset);
    if (start > offset) insert_free(offset, start - offset);
    if (start + bytes < offset + size) insert_free(start + bytes, offset + size - start - bytes);
    if (!retain(start, bytes)) {
      insert_free(start, bytes);
      return std::nullopt;
    }
    return base + start;
  }
  return std::nullopt;
}

void Heap::give(std::uint64_t address, std::uint64_t bytes) {
  if (bytes == 0) return;
  std::uint64_t offset = address - reinterpret_cast<std::uint64_t>(arena_.base());
  release(offset, bytes);
  auto next = free_by_offset_.lower_bound(offset);
  if (next != free_by_offset_.end() && next->first == offset + bytes) {
    bytes += next->second;
    free_by_size_.erase({next->second, next->first});
    next = free_by_offset_.erase(next);
  }
  if (next != free_by_offset_.begin()) {
    const auto before = std::prev(next);
    if (before->first + before->second == offset) {
      offset = before->first;
      bytes += before->second;
      free_by_size_.erase({before->second, before->first});
      free_by_offset_.erase(before);
    }
  }
  insert_free(offset, bytes);
}

bool Heap::retain(std::uint64_t offset, std::uint64_t bytes) {
  const std::uint64_t first = offset / kChunkBytes, last = (offset + bytes - 1) / kChunkBytes;
  for (std::uint64_t chunk = first; chunk <= last;) {
    std::uint64_t end = chunk;
    while (end <= last && !committed_[end]) ++end;
    if (end > chunk) {
      if (!arena_.commit(chunk * kChunkBytes, (end - chunk) * kChunkBytes)) return false;
      std::fill(committed_.begin() + static_cast<std::ptrdiff_t>(chunk),
                committed_.begin() + static_cast<std::ptrdiff_t>(end), true);
      idle_committed_ += static_cast<unsigned>(end - chunk);  // until the loop below counts its users
    }
    chunk = end + 1;
  }
  for (std::uint64_t chunk = first; chunk <= last; ++chunk)
    if (users_[chunk]++ == 0) --idle_committed_;
  return true;
}

void Heap::release(std::uint64_t offset, std::uint64_t bytes) {
  const std::uint64_t first = offset / kChunkBytes, last = (offset + bytes - 1) / kChunkBytes;
  std::uint64_t run = last + 1;  // start of a run of chunks to give back
  for (std::uint64_t chunk = first; chunk <= last + 1; ++chunk) {
    const bool empty = chunk <= last && --users_[chunk] == 0;
    if (empty && idle_committed_ < kIdleChunks) {
      ++idle_committed_;
      continue;
    }
    if (empty) {
      committed_[chunk] = false;
      run = std::min(run, chunk);
      continue;
    }
    if (run < chunk) (void)arena_.decommit(run * kChunkBytes, (chunk - run) * kChunkBytes);
    run = last + 1;
  }
}

}  // namespace tensor_fusion::sim::cuda
