#include "guest/limiter/hooks/loads.h"

namespace tensor_fusion::guest::limiter {
namespace {

constexpr std::uint64_t kSlack = 32ull << 20;   // what is had otherwise may round up to so much
constexpr std::uint64_t kUnread = 16ull << 20;  // after so much the account is read at once

bool is_over(const Device& device) {
  const Ledger::View view = Ledger::view(device);
  return !view.unlimited && Ledger::used(device) > view.limit + kSlack;
}

}  // namespace

std::uint64_t left_on_card() {
  std::size_t free_bytes = 0, total_bytes = 0;
  return TF_REAL(cuMemGetInfo_v2)(&free_bytes, &total_bytes) == CUDA_SUCCESS ? free_bytes : 0;
}

bool may_stay(Device& device, std::uint64_t grown) {
  Loads& loads = attachment()->loads[&device - attachment()->devices];
  if (loads.unread.fetch_add(grown, std::memory_order_relaxed) + grown >= kUnread) {
    loads.unread.store(0, std::memory_order_relaxed);
    ask_for_reading(device);
  }
  if (!is_over(device)) {
    loads.while_over.store(0, std::memory_order_relaxed);
    return true;
  }
  if (loads.while_over.fetch_add(grown, std::memory_order_relaxed) + grown <= kCode) return true;
  loads.while_over.fetch_sub(grown, std::memory_order_relaxed);
  ask_for_reading(device);  // it may have given something back since
  return !is_over(device);
}

}  // namespace tensor_fusion::guest::limiter
