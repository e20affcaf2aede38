#pragma once
// What `top` shows: the devices with a bar each for time and memory, and the slices on them. Pure.
#include <cstdint>
#include <string>
#include <vector>

#include "view/device.h"
#include "view/slice.h"

namespace tensor_fusion::view {

struct Overview {
  std::uint64_t time_ms = 0;
  std::vector<Device> devices;
  SliceList slices;
};

enum class Order { kName, kUsed, kMemory, kAge };
void sort_slices(SliceList& list, Order order);

std::string bar(double part, std::size_t width);  // "#####....." ; NaN and beyond [0, 1] are held to it

base::Json to_json(const Overview& overview);
std::string to_text(const Overview& overview, const Style& style);
// A line for each device; bars, then models, give way where `width` (0: no bound) has no room for them.
std::string device_lines(const std::vector<Device>& devices, const SliceList& slices, std::size_t width);

}  // namespace tensor_fusion::view
