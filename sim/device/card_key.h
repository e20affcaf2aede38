#pragma once
// What a machine's description may set on a card: keys, their units and their bounds. An unknown key is refused with
// the nearest known one. Pure.
#include <expected>
#include <string>
#include <string_view>

#include "sim/device/error.h"
#include "sim/device/profile.h"

namespace tensor_fusion::sim::device {

struct Invalid {
  std::string message;
};

[[nodiscard]] std::expected<double, Invalid> number_of(std::string_view text);
[[nodiscard]] std::expected<void, Error> set_key(Profile& profile, const std::string& key, std::string_view value,
                                                 const std::string& where);

}  // namespace tensor_fusion::sim::device
