#include "base/id.h"

#include "base/text.h"

namespace tensor_fusion::base {
namespace {

bool is_bare_uuid(std::string_view text) {
  if (text.size() != 36) return false;
  for (std::size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    const bool dash = i == 8 || i == 13 || i == 18 || i == 23;
    const bool hex = (c >= '0' && c <= '9') || (c >= 'a' && c <= 'f') || (c >= 'A' && c <= 'F');
    if (dash ? c != '-' : !hex) return false;
  }
  return true;
}

constexpr std::string_view kIdLetters = "abcdefghijkmnpqrstuvwxyz23456789";  // 32: no l, o, 0, 1
constexpr std::size_t kIdLength = 6;
static_assert(kIdLetters.size() == 32);

bool letter_or_digit(char c) { return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z'); }

}  // namespace

std::string canonical_uuid(std::string_view uuid) {
  if (is_bare_uuid(uuid)) return "GPU-" + lower(uuid);
  if (uuid.size() > 4 && lower(uuid.substr(0, 4)) == "gpu-") return "GPU-" + lower(uuid.substr(4));
  return std::string(uuid);
}

bool same_device(std::string_view a, std::string_view b) { return canonical_uuid(a) == canonical_uuid(b); }

Result<std::string> check_name(std::string_view name) {
  if (name.empty()) return fail(ErrorCode::kUsage, "a name must not be empty");
  if (name.size() > kMaxNameLength)
    return fail(ErrorCode::kUsage, "the name is longer than " + std::to_string(kMaxNameLength) + " letters");
  if (!letter_or_digit(name.front())) return fail(ErrorCode::kUsage, "a name begins with a letter or a digit");
  for (const char c : name)
    if (!letter_or_digit(c) && c != '-' && c != '_' && c != '.')
      return fail(ErrorCode::kUsage, "a name has letters, digits, '-', '_' and '.' only");
  return std::string(name);
}

std::string short_id(std::uint64_t number) {
  std::uint64_t mixed = (number * 0x2545f491u) & 0x3fffffffu;  // odd factor: a bijection of 30 bits
  std::string id;
  for (std::size_t i = 0; i < kIdLength; ++i, mixed >>= 5) id += kIdLetters[mixed & 31u];
  return id;
}

bool is_short_id(std::string_view text) {
  return text.size() == kIdLength && text.find_first_not_of(kIdLetters) == std::string_view::npos;
}

}  // namespace tensor_fusion::base
