#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>

namespace tensor_fusion::sim::ptx {

// printf as a kernel means it. `argument(bytes)` takes the next argument of 4 or 8 bytes (floating ones are doubles);
// `text(address)` reads a string of the kernel's memory.
[[nodiscard]] std::string format_device(std::string_view format,
                                        const std::function<std::uint64_t(std::uint32_t)>& argument,
                                        const std::function<std::string(std::uint64_t)>& text);

}  // namespace tensor_fusion::sim::ptx
