#pragma once
// Names of things. A device is known by its UUID in canonical form, a tenant by an id that is also a directory name.
// Pure.
#include <cstdint>
#include <string>
#include <string_view>

#include "base/result.h"

namespace tensor_fusion::base {

inline constexpr std::size_t kMaxNameLength = 63;  // fits GrantPage::tenant with its NUL, and a DNS label

// "GPU-" and lower-case hex for a bare or oddly cased NVIDIA UUID; anything else ("MIG-…", another vendor) unchanged.
std::string canonical_uuid(std::string_view uuid);
bool same_device(std::string_view a, std::string_view b);

// Letters, digits, '-', '_', '.'; begins with a letter or digit; at most kMaxNameLength. Refusal says which letter is
// wrong.
Result<std::string> check_name(std::string_view name);

// Six letters that read apart ("k3f9qd") from any number, for ids and default names. Distinct for distinct low 30 bits.
std::string short_id(std::uint64_t number);
bool is_short_id(std::string_view text);

}  // namespace tensor_fusion::base
