#pragma once
// What a fuzzer does to a page: its input read as a row of changes, each one field that gets a number, so that a few
// bytes reach any field of a page of megabytes and the rest of it stays well-formed. Fuzzers only.
#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <initializer_list>
#include <vector>

#include "contract/claim.h"
#include "contract/grant.h"

namespace tensor_fusion::contract {

// The bytes of an input, one after the other; zeros past its end.
class PatchInput {
 public:
  PatchInput(const std::uint8_t* data, std::size_t size) : next_(data), end_(data + size) {}
  bool is_over() const { return next_ == end_; }
  std::uint8_t byte() { return next_ == end_ ? std::uint8_t{0} : *next_++; }
  // Small, of any size, or near the largest.
  std::uint64_t number() {
    const std::uint8_t kind = byte();
    if (kind % 4 == 0) return byte();
    if (kind % 4 == 3) return ~std::uint64_t{byte()};
    std::uint64_t value = 0;
    for (int shift = 0; shift < (kind % 4 == 1 ? 32 : 64); shift += 8) value |= std::uint64_t{byte()} << shift;
    return value;
  }

 private:
  const std::uint8_t* next_;
  const std::uint8_t* end_;
};

// The slots that changes reach: the first ones and the last.
inline constexpr std::uint32_t kPatchedSlots = 9;
inline std::uint32_t patched_slot(std::uint8_t byte) {
  const std::uint32_t slot = byte % kPatchedSlots;
  return slot + 1 == kPatchedSlots ? static_cast<std::uint32_t>(kMaxProcesses - 1) : slot;
}

inline void write_word(void* page, std::size_t offset, std::size_t bytes, std::uint64_t value) {
  std::memcpy(static_cast<std::byte*>(page) + offset, &value, bytes);  // little-endian, as the pages are
}

enum class ClaimPlace : std::uint8_t { head, device, slot, counter, marker, count };

inline void patch(ClaimPage& page, PatchInput& input) {
  const auto place = static_cast<ClaimPlace>(input.byte() % static_cast<unsigned>(ClaimPlace::count));
  const std::uint32_t slot = patched_slot(input.byte());
  const std::size_t device = input.byte() % kMaxDevices;
  const std::size_t word = input.byte();
  const std::uint64_t value = input.number();
  const std::size_t counters = offsetof(ClaimPage, processes) + slot * sizeof(ClaimProcess) +
                               offsetof(ClaimProcess, devices) + device * sizeof(ClaimProcessDevice);
  switch (place) {
    case ClaimPlace::head:
      return write_word(&page, word % 8 * 4, 4, value);
    case ClaimPlace::device:
      return write_word(&page, offsetof(ClaimPage, devices) + device * sizeof(ClaimDevice) + word % 12 * 4, 4, value);
    case ClaimPlace::slot:
      return write_word(&page, offsetof(ClaimPage, processes) + slot * sizeof(ClaimProcess) + word % 10 * 4, 4, value);
    case ClaimPlace::counter:
      return write_word(&page, counters + word % 16 * 8, 8, value);
    case ClaimPlace::marker:
    case ClaimPlace::count:
      return write_word(&page, counters + offsetof(ClaimProcessDevice, markers) + word % (3 * kMarkers) * 8, 8, value);
  }
}

// As a hypervisor makes it: nobody has come yet. Only what patch() reaches, and the slots that are free after those, is
// written: it is done for each input.
inline void begin_page(ClaimPage& page) {
  std::memset(static_cast<void*>(&page), 0, offsetof(ClaimPage, processes));
  std::memset(static_cast<void*>(&page.processes[0]), 0, (kPatchedSlots + 1) * sizeof(ClaimProcess));
  std::memset(static_cast<void*>(&page.processes[kMaxProcesses - 1]), 0, sizeof(ClaimProcess));
  page.magic = kClaimMagic;
  page.abi = kClaimAbi;
  page.size_bytes = sizeof(ClaimPage);
}

inline void begin_page(GrantPage& page, std::uint32_t devices) {
  std::memset(static_cast<void*>(&page), 0, sizeof(GrantPage));
  page.magic = kGrantMagic;
  page.abi = kGrantAbi;
  page.size_bytes = sizeof(GrantPage);
  page.device_count = devices;
  for (std::uint32_t i = 0; i < devices; ++i) {
    GrantDevice& device = page.devices[i];
    std::memcpy(device.uuid, "GPU-00000000-0000-0000-0000-000000000000", 40);
    device.uuid[39] = static_cast<char>('0' + i % 10);
    device.memory_limit_bytes = std::uint64_t{2} << 30;
    device.device_memory_bytes = std::uint64_t{80} << 30;
    device.limit_share = kWholeShare / 2;
    device.window_ns = 2'000'000;
    device.fallback_share = kWholeShare / 4;
    device.estimate_scale = 1u << 16;
    device.device_index = i;
  }
}

enum class GrantPlace : std::uint8_t { head, device, uuid, listed, count };

inline void patch(GrantPage& page, PatchInput& input) {
  const auto place = static_cast<GrantPlace>(input.byte() % static_cast<unsigned>(GrantPlace::count));
  const std::size_t device = input.byte() % kMaxDevices;
  const std::size_t word = input.byte();
  const std::uint64_t value = input.number();
  const std::size_t row = offsetof(GrantPage, devices) + device * sizeof(GrantDevice);
  switch (place) {
    case GrantPlace::head:
      // Magic to device_count, then closed, process_sequence and process_count.
      return write_word(&page, word % 11 < 8 ? word % 11 * 4 : offsetof(GrantPage, closed) + (word % 11 - 8) * 4, 4,
                        value);
    case GrantPlace::device:
      return write_word(&page, row + offsetof(GrantDevice, memory_limit_bytes) + word % 29 * 4, word % 2 == 0 ? 8 : 4,
                        value);
    case GrantPlace::uuid:
      return write_word(&page, row + word % kUuidLength, 1, value);
    case GrantPlace::listed:
    case GrantPlace::count:
      return write_word(&page, offsetof(GrantPage, processes) + word % kMaxListedProcesses * 4, 4, value);
  }
}

// Writes inputs: a seed is a row of changes that makes sense.
class PatchSeed {
 public:
  PatchSeed& byte(std::uint8_t value) {
    bytes_.push_back(value);
    return *this;
  }
  PatchSeed& number(std::uint64_t value) {
    byte(2);
    for (int shift = 0; shift < 64; shift += 8) byte(static_cast<std::uint8_t>(value >> shift));
    return *this;
  }
  PatchSeed& change(ClaimPlace place, std::uint32_t slot, std::uint32_t device, std::size_t word, std::uint64_t value) {
    for (const std::size_t part : {static_cast<std::size_t>(place), std::size_t{slot}, std::size_t{device}, word})
      byte(static_cast<std::uint8_t>(part));
    return number(value);
  }
  PatchSeed& change(GrantPlace place, std::uint32_t device, std::size_t word, std::uint64_t value) {
    for (const std::size_t part : {static_cast<std::size_t>(place), std::size_t{device}, word})
      byte(static_cast<std::uint8_t>(part));
    return number(value);
  }
  const std::vector<std::uint8_t>& bytes() const { return bytes_; }

 private:
  std::vector<std::uint8_t> bytes_;
};

// Words of ClaimPlace::slot and ::counter.
inline constexpr std::size_t kStateWord = offsetof(ClaimProcess, state) / 4;
inline constexpr std::size_t kPidWord = offsetof(ClaimProcess, pid) / 4;
inline constexpr std::size_t kLedgerWord = offsetof(ClaimProcessDevice, ledger_bytes) / 8;
inline constexpr std::size_t kLaunchedWord = offsetof(ClaimProcessDevice, launched_ns) / 8;
inline constexpr std::size_t kMarkerWord = offsetof(ClaimProcessDevice, marker_count) / 8;
inline constexpr std::size_t kProcessHighWord = offsetof(ClaimPage, process_high) / 4;

}  // namespace tensor_fusion::contract
