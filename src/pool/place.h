#pragma once
// Where a request goes on one node. What is promised never exceeds a card: the sum of compute requests stays within
// 100 %, the sum of memory limits (and what strangers use) within the card; compute limits may add up to more, for idle
// time is lent. The tightest fit wins, then the lowest index: the same input always gives the same answer. A refusal
// says for every device what was short. Pure.
//
// A missing half follows the other (docs/guide/requests.md): a compute limit alone is also the request; a compute
// request alone has the whole card as its limit; memory without a figure is the request's part of the card, or, where
// no request was made either, all that is not promised yet.
#include <cstdint>
#include <expected>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/quantity.h"

namespace tensor_fusion::pool {

inline constexpr std::uint32_t kWholeDevice = 10000;             // basis points
inline constexpr std::uint64_t kLeastMemoryBytes = 64ull << 20;  // below this no driver makes a context

struct PlaceDevice {
  std::string uuid;  // canonical
  int index = 0;
  std::string model;
  std::uint64_t memory_bytes = 0;
  std::uint64_t outside_bytes = 0;  // used by processes of no tenant
  double tflops = 0;                // 0 = unknown
  std::string unusable;             // why nothing new may go there ("lost", "Xid 79"); empty = healthy
};

struct PlaceAllocation {
  std::string tenant;
  std::string uuid;
  std::uint64_t memory_bytes = 0;
  std::uint32_t request_share = 0;
  std::uint32_t limit_share = 0;
};

struct PlaceRequest {
  std::optional<base::Memory> memory;
  std::optional<base::Compute> compute;  // limit
  std::optional<base::Compute> compute_request;
  unsigned count = 1;
  std::vector<std::string> chosen;  // each an index, a UUID, or the beginning of one; empty = any
};

struct PlacedDevice {
  std::string uuid;
  std::uint64_t memory_bytes = 0;
  std::uint32_t request_share = 0;
  std::uint32_t limit_share = 0;
  bool operator==(const PlacedDevice&) const = default;
};

struct Placement {
  std::vector<PlacedDevice> devices;  // by index
};

struct Refusal {
  bool never = false;                // it would not fit an empty node either
  bool broken = false;               // only devices that are broken could take it: waiting does not help
  bool malformed = false;            // the request contradicts itself or names no device of this node
  std::string message;               // one sentence
  std::vector<std::string> reasons;  // one for each device looked at
};

// What a request means on one device, whatever else is there. Also used when the limits of a running tenant change.
std::expected<PlacedDevice, std::string> terms_on(const PlaceDevice& device, const PlaceRequest& request,
                                                  std::uint64_t memory_left);

std::expected<Placement, Refusal> place(std::span<const PlaceDevice> devices,
                                        std::span<const PlaceAllocation> allocations, const PlaceRequest& request);

}  // namespace tensor_fusion::pool
