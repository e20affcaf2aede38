#include "pool/place.h"

#include <algorithm>
#include <cmath>

#include "base/id.h"
#include "base/text.h"

namespace tensor_fusion::pool {
namespace {

struct Room {
  std::uint64_t memory_left = 0;
  std::uint32_t share_left = 0;
  std::uint64_t outside_bytes = 0;
  struct Held {
    std::string tenant;
    std::uint64_t memory_bytes;
    std::uint32_t request_share;
  };
  std::vector<Held> held;
};

Room room_on(const PlaceDevice& device, std::span<const PlaceAllocation> allocations) {
  std::uint64_t memory = device.outside_bytes;
  std::uint64_t share = 0;
  Room room;
  room.outside_bytes = device.outside_bytes;
  for (const PlaceAllocation& allocation : allocations) {
    if (allocation.uuid != device.uuid) continue;
    memory += allocation.memory_bytes;
    share += allocation.request_share;
    room.held.push_back({allocation.tenant, allocation.memory_bytes, allocation.request_share});
  }
  room.memory_left = memory < device.memory_bytes ? device.memory_bytes - memory : 0;
  room.share_left = share < kWholeDevice ? static_cast<std::uint32_t>(kWholeDevice - share) : 0;
  return room;
}

std::string name_of(const PlaceDevice& device) {
  return "GPU " + std::to_string(device.index) + (device.model.empty() ? "" : " (" + device.model + ")");
}

std::string percent(std::uint32_t basis_points) { return base::to_text(base::Percent{basis_points}); }
std::string bytes(std::uint64_t value) { return base::to_text(base::Bytes{value}); }

std::string memory_held(const Room::Held& held) { return bytes(held.memory_bytes); }
std::string share_held(const Room::Held& held) { return percent(held.request_share); }

// "; held by night (8Gi), 3 more and processes outside any slice (70Gi)"
std::string held_by(const Room& room, std::string (*amount)(const Room::Held&), std::uint64_t outside_bytes) {
  constexpr std::size_t kShown = 4;
  std::vector<std::string> shown;
  for (const Room::Held& held : room.held)
    if (shown.size() < kShown) shown.push_back(held.tenant + " (" + amount(held) + ")");
  if (room.held.size() > kShown) shown.push_back(std::to_string(room.held.size() - kShown) + " more");
  if (outside_bytes > 0) shown.push_back("processes outside any slice (" + bytes(outside_bytes) + ")");
  return shown.empty() ? "" : "; held by " + base::join(shown, ", ");
}

std::expected<std::uint32_t, std::string> share_of(const PlaceDevice& device, const base::Compute& compute) {
  if (const auto* part = std::get_if<base::Percent>(&compute)) return part->basis_points;
  const double wanted = std::get<base::Tflops>(compute).value;
  if (device.tflops <= 0) return std::unexpected("its TFLOPS are not known; ask in percent");
  if (wanted / device.tflops * kWholeDevice < 1 - 1e-6)
    return std::unexpected(base::to_text(compute) + " asked, less than 0.01% of it (it has " +
                           base::to_text(base::Tflops{device.tflops}) + "), the least share there is");
  const double points = std::ceil(wanted / device.tflops * kWholeDevice - 1e-6);
  if (points > kWholeDevice)
    return std::unexpected(base::to_text(compute) + " asked, it has " + base::to_text(base::Tflops{device.tflops}) +
                           "; ask for less, or in percent");
  return static_cast<std::uint32_t>(points);
}

// The devices a word names. A whole UUID or an index is exact; else the beginning of a UUID, which must be of one only.
std::expected<const PlaceDevice*, std::string> find_device(std::span<const PlaceDevice> devices,
                                                           const std::string& word) {
  const std::string canonical = base::canonical_uuid(word);
  const PlaceDevice* found = nullptr;
  std::vector<std::string_view> known;
  std::vector<std::string> indices;
  for (const PlaceDevice& device : devices) {
    if (device.uuid == canonical || std::to_string(device.index) == word) return &device;
    known.push_back(device.uuid);
    indices.push_back(std::to_string(device.index));
  }
  for (const PlaceDevice& device : devices) {
    if (word.size() < 4 || !base::lower(device.uuid).starts_with(base::lower(canonical))) continue;
    if (found) return std::unexpected("'" + word + "' begins the UUID of several devices; write more of it");
    found = &device;
  }
  if (found) return found;
  std::string message =
      "no device '" + word + "' here; there " + (devices.size() == 1 ? "is " : "are ") + base::join(indices, ", ");
  const auto near = base::nearest_word(canonical, known);
  message += near ? "; did you mean " + std::string(*near) + "?"
                  : "; `tensor-fusion devices` lists them, and without --gpu the best fit is chosen";
  return std::unexpected(message);
}

struct Candidate {
  const PlaceDevice* device;
  PlacedDevice terms;
  double left;  // of memory and compute together, as fractions: the tightest fit has the least
};

std::expected<Candidate, std::string> try_device(const PlaceDevice& device, const Room& room,
                                                 const PlaceRequest& request) {
  if (!device.unusable.empty()) return std::unexpected(device.unusable);
  auto terms = terms_on(device, request, room.memory_left);
  if (!terms) return std::unexpected(terms.error());
  std::vector<std::string> missing;
  if (terms->memory_bytes > room.memory_left)
    missing.push_back(bytes(terms->memory_bytes) + " of memory asked, " + bytes(room.memory_left) + " of " +
                      bytes(device.memory_bytes) + " free" + held_by(room, memory_held, room.outside_bytes));
  if (terms->request_share > room.share_left)
    missing.push_back(percent(terms->request_share) + " of compute asked, " + percent(room.share_left) + " free" +
                      held_by(room, share_held, 0));
  if (!missing.empty()) return std::unexpected(base::join(missing, "; and "));
  if (terms->memory_bytes < kLeastMemoryBytes && !request.memory && terms->request_share > 0)
    return std::unexpected("memory goes with the compute that is certain, and " + percent(terms->request_share) +
                           " of it is " + bytes(terms->memory_bytes) +
                           ", too little to open a GPU; ask for an amount with --vram");
  if (terms->memory_bytes < kLeastMemoryBytes && !request.memory)
    return std::unexpected("no memory is left to give" + held_by(room, memory_held, room.outside_bytes) +
                           "; ask for an amount with --vram");
  const double memory = static_cast<double>(room.memory_left - terms->memory_bytes) /
                        static_cast<double>(std::max<std::uint64_t>(1, device.memory_bytes));
  const double share = static_cast<double>(room.share_left - terms->request_share) / kWholeDevice;
  return Candidate{&device, *std::move(terms), memory + share};
}

Refusal malformed(std::string message) {
  return {.never = true, .malformed = true, .message = std::move(message), .reasons = {}};
}

std::expected<Placement, Refusal> place_once(std::span<const PlaceDevice> devices,
                                             std::span<const PlaceAllocation> allocations, const PlaceRequest& request,
                                             std::span<const PlaceDevice* const> chosen, std::size_t count) {
  std::vector<Candidate> candidates;
  Refusal refusal;
  std::size_t working = 0;
  for (const PlaceDevice& device : devices) {
    if (!chosen.empty() && std::find(chosen.begin(), chosen.end(), &device) == chosen.end()) continue;
    working += device.unusable.empty() ? 1 : 0;
    auto candidate = try_device(device, room_on(device, allocations), request);
    if (candidate) {
      candidates.push_back(*std::move(candidate));
    } else {
      refusal.reasons.push_back(name_of(device) + ": " + candidate.error());
    }
  }
  if (candidates.size() < count) {
    refusal.broken = working < count;
    refusal.message = std::to_string(count) + (count == 1 ? " device" : " devices") + " asked, " +
                      std::to_string(candidates.size()) + " of " +
                      std::to_string(chosen.empty() ? devices.size() : chosen.size()) + " can take it";
    return std::unexpected(std::move(refusal));
  }
  std::sort(candidates.begin(), candidates.end(), [](const Candidate& a, const Candidate& b) {
    return a.left != b.left ? a.left < b.left : a.device->index < b.device->index;
  });
  candidates.resize(count);
  std::sort(candidates.begin(), candidates.end(),
            [](const Candidate& a, const Candidate& b) { return a.device->index < b.device->index; });
  Placement placement;
  for (Candidate& candidate : candidates) placement.devices.push_back(std::move(candidate.terms));
  return placement;
}

}  // namespace

std::expected<PlacedDevice, std::string> terms_on(const PlaceDevice& device, const PlaceRequest& request,
                                                  std::uint64_t memory_left) {
  PlacedDevice terms{.uuid = device.uuid, .memory_bytes = 0, .request_share = 0, .limit_share = kWholeDevice};
  if (request.compute) {
    const auto limit = share_of(device, *request.compute);
    if (!limit) return std::unexpected(limit.error());
    terms.limit_share = *limit;
    terms.request_share = *limit;
  }
  if (request.compute_request) {
    const auto floor = share_of(device, *request.compute_request);
    if (!floor) return std::unexpected(floor.error());
    if (*floor > terms.limit_share)
      return std::unexpected("a compute request of " + percent(*floor) + " is above the limit of " +
                             percent(terms.limit_share));
    terms.request_share = *floor;
  }
  const auto part_of = [&](std::uint32_t basis_points) {
    return static_cast<std::uint64_t>(static_cast<double>(device.memory_bytes) * basis_points / kWholeDevice) >>
           20 << 20;
  };
  if (!request.memory) {
    terms.memory_bytes = terms.request_share > 0 ? part_of(terms.request_share) : memory_left >> 20 << 20;
  } else if (const auto* part = std::get_if<base::Percent>(&*request.memory)) {
    terms.memory_bytes = part_of(part->basis_points);
  } else {
    terms.memory_bytes = std::get<base::Bytes>(*request.memory).value;
  }
  if (terms.memory_bytes > device.memory_bytes)
    return std::unexpected(bytes(terms.memory_bytes) + " of memory asked, the card has " + bytes(device.memory_bytes) +
                           "; ask for less, or for a part such as 100%");
  return terms;
}

std::expected<Placement, Refusal> place(std::span<const PlaceDevice> devices,
                                        std::span<const PlaceAllocation> allocations, const PlaceRequest& request) {
  if (devices.empty()) {
    Refusal none{.never = true, .malformed = false, .message = "there is no GPU here", .reasons = {}};
    return std::unexpected(std::move(none));
  }
  std::vector<const PlaceDevice*> chosen;
  for (const std::string& word : request.chosen) {
    const auto device = find_device(devices, word);
    if (!device) return std::unexpected(malformed(device.error()));
    if (std::find(chosen.begin(), chosen.end(), *device) != chosen.end())
      return std::unexpected(malformed("device '" + word + "' is named twice"));
    chosen.push_back(*device);
  }
  if (request.count == 0) return std::unexpected(malformed("at least one device must be asked for"));
  if (!chosen.empty() && request.count > chosen.size())
    return std::unexpected(
        malformed(std::to_string(request.count) + " devices asked, but " + std::to_string(chosen.size()) + " named"));
  if (request.count > devices.size())
    return std::unexpected(Refusal{.never = true,
                                   .malformed = false,
                                   .message = std::to_string(request.count) + " devices asked, this node has " +
                                              std::to_string(devices.size()) + "; ask for fewer",
                                   .reasons = {}});
  const std::size_t count = chosen.empty() ? request.count : request.count > 1 ? request.count : chosen.size();
  auto placement = place_once(devices, allocations, request, chosen, count);
  if (placement) return placement;

  // Would it fit if nobody else were here? Only then is waiting of any use.
  std::vector<PlaceDevice> empty(devices.begin(), devices.end());
  std::vector<const PlaceDevice*> chosen_empty;
  for (PlaceDevice& device : empty) {
    device.outside_bytes = 0;
    device.unusable.clear();
  }
  for (const PlaceDevice* device : chosen)
    chosen_empty.push_back(&empty[static_cast<std::size_t>(device - devices.data())]);
  placement.error().never = !place_once(empty, {}, request, chosen_empty, count).has_value();
  return placement;
}

}  // namespace tensor_fusion::pool
