#pragma once
// Reads what TENSOR_FUSION_SIM says: a list (`2xh100`, `h100,2xt4`, `tiny;switch_us=100;speed=2`) or the path of a YAML
// file. Pure but for reading that file. Unknown keys and profiles are refused with the nearest known ones listed.
#include <expected>
#include <string>
#include <string_view>
#include <vector>

#include "sim/device/error.h"
#include "sim/device/machine.h"

namespace tensor_fusion::sim::device {

inline constexpr std::size_t kMaxDescription = 16384;

struct Description {
  std::string name;  // as given
  std::string text;  // what it means: the list itself, or the file's content
  std::string driver_version = "580.95.05";
  std::uint32_t cuda_version = 13000;
  std::vector<DeviceInfo> devices;
};

[[nodiscard]] std::expected<Description, Error> read_description(const std::string& given);
// The same from YAML text (for tests and the fuzzer).
[[nodiscard]] std::expected<Description, Error> parse_yaml_description(const std::string& text);
[[nodiscard]] std::expected<Description, Error> parse_list_description(std::string_view text);

}  // namespace tensor_fusion::sim::device
