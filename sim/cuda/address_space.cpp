#include "sim/cuda/address_space.h"

#include <mutex>

namespace tensor_fusion::sim::cuda {

bool AddressSpace::add(const std::shared_ptr<Allocation>& allocation) {
  const std::unique_lock lock(mutex_);
  const auto next = by_base_.lower_bound(allocation->base);
  if (next != by_base_.end() && next->first < allocation->base + allocation->extent) return false;
  if (next != by_base_.begin()) {
    const auto& before = *std::prev(next)->second;
    if (before.base + before.extent > allocation->base) return false;
  }
  by_base_.emplace_hint(next, allocation->base, allocation);
  return true;
}

std::shared_ptr<Allocation> AddressSpace::find(std::uint64_t address) const {
  const std::shared_lock lock(mutex_);
  auto next = by_base_.upper_bound(address);
  if (next == by_base_.begin()) return nullptr;
  const auto& candidate = std::prev(next)->second;
  return address - candidate->base < candidate->extent ? candidate : nullptr;
}

std::shared_ptr<Allocation> AddressSpace::exact(std::uint64_t base) const {
  const std::shared_lock lock(mutex_);
  const auto found = by_base_.find(base);
  return found != by_base_.end() ? found->second : nullptr;
}

std::shared_ptr<Allocation> AddressSpace::remove(std::uint64_t base) {
  const std::unique_lock lock(mutex_);
  const auto found = by_base_.find(base);
  if (found == by_base_.end()) return nullptr;
  auto allocation = std::move(found->second);
  by_base_.erase(found);
  return allocation;
}

bool AddressSpace::overlaps(std::uint64_t base, std::uint64_t bytes) const {
  const std::shared_lock lock(mutex_);
  auto next = by_base_.lower_bound(base);
  if (next != by_base_.end() && next->first < base + bytes) return true;
  return next != by_base_.begin() && std::prev(next)->second->base + std::prev(next)->second->extent > base;
}

std::vector<std::shared_ptr<Allocation>> AddressSpace::of_context(std::uint64_t context_id) const {
  const std::shared_lock lock(mutex_);
  std::vector<std::shared_ptr<Allocation>> found;
  for (const auto& [base, allocation] : by_base_)
    if (allocation->context_id == context_id) found.push_back(allocation);
  return found;
}

std::vector<std::shared_ptr<Allocation>> AddressSpace::all() const {
  const std::shared_lock lock(mutex_);
  std::vector<std::shared_ptr<Allocation>> found;
  for (const auto& [base, allocation] : by_base_) found.push_back(allocation);
  return found;
}

}  // namespace tensor_fusion::sim::cuda
