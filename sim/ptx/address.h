#pragma once

#include <cstdint>

namespace tensor_fusion::sim::ptx {

enum class AddressSpace : std::uint8_t { global, shared, local, param, generic };

// Bits of generic space that are no host address.
inline constexpr std::uint64_t kSharedWindow = std::uint64_t{1} << 56;
inline constexpr std::uint64_t kLocalWindow = std::uint64_t{2} << 56;
inline constexpr std::uint64_t kParamWindow = std::uint64_t{3} << 56;
inline constexpr std::uint64_t kFunctionWindow = std::uint64_t{5} << 56;
inline constexpr std::uint64_t kWindowMask = std::uint64_t{0xff} << 56;

}  // namespace tensor_fusion::sim::ptx
