#pragma once
// One card as NVML lists it, or one MIG device of a card that is cut up (which then takes no work itself and is none):
// what it is called, where its files are, what it can do. Refuses with NVML's own codes. One that has fallen off the
// bus keeps its place in the list, so that no other takes its index: as what it was, or without a name where it was
// lost before it was seen. Reads NVML, /proc, /sys and /dev; whoever calls asks NVML one question at a time.
#include <cstdint>
#include <cstdio>
#include <string>
#include <vector>

#include "contract/accelerator.h"
#include "device/nvidia/nvml.h"

namespace tensor_fusion::device::nvidia {

struct Card {
  nvml::Device handle = nullptr;  // null: lost before it was seen
  nvml::Device whole = nullptr;   // the card it is a part of; itself when it is none
  std::string uuid;
  std::string model;
  unsigned minor = 0;
  std::uint64_t memory_bytes = 0;  // in all; 0: it has never told
  bool mig = false;
  unsigned place = 0;  // NVML's index of the whole card
  bool lost = false;
  unsigned gpu_instance = 0, compute_instance = 0;
};

// Into a field of the provider's ABI, cut to what it holds.
template <std::size_t N>
void put(char (&field)[N], const std::string& text) {
  std::snprintf(field, N, "%s", text.c_str());
}

template <std::size_t N>
std::string text_from(int (*function)(nvml::Device, char*, unsigned), nvml::Device handle) {
  char buffer[N] = {};
  if (!function || function(handle, buffer, N) != nvml::kSuccess) return "";
  return buffer;
}

// Brings the list up to date, or leaves it as it was where NVML refuses.
int list_cards(const Nvml& library, std::vector<Card>& cards);
void describe(const Nvml& library, const Card& card, std::size_t index, ExtendedDeviceInfo& info);
std::vector<std::string> files_of(const Nvml& library, const Card& card);  // what a process must be able to open
int numa_of(const Nvml& library, nvml::Device handle);                     // -1: not known

}  // namespace tensor_fusion::device::nvidia
