#include "guest/limiter/hooks/visible.h"

#include <stdlib.h>

#include "guest/limiter/core/attachment.h"

namespace tensor_fusion::guest::limiter {
namespace {

constexpr auto kRelaxed = std::memory_order_relaxed;

char lower(char letter) { return letter >= 'A' && letter <= 'Z' ? static_cast<char>(letter - 'A' + 'a') : letter; }

// A name may be shortened as long as it is a beginning of the whole one.
bool begins(const char* whole, const char* part, std::size_t length) {
  for (std::size_t i = 0; i < length; ++i)
    if (i >= contract::kUuidLength || lower(whole[i]) != lower(part[i])) return false;
  return length > 4;
}

std::uint32_t granted_row(const contract::GrantPage& grant, std::uint32_t count, const char* entry,
                          std::size_t length) {
  std::uint32_t number = 0;
  bool digits = length > 0 && length < 4;
  for (std::size_t i = 0; i < length && digits; ++i) {
    digits = entry[i] >= '0' && entry[i] <= '9';
    number = number * 10 + static_cast<std::uint32_t>(entry[i] - '0');
  }
  if (digits) return number < count ? number : count;
  for (std::uint32_t row = 0; row < count; ++row)
    if (begins(grant.devices[row].uuid, entry, length)) return row;
  return count;
}

void add_row(VisibleList& list, const contract::GrantPage& grant, std::uint32_t row) {
  if (list.length > 0) list.add_letter(',');
  for (std::size_t i = 0; i < contract::kUuidLength && grant.devices[row].uuid[i] != 0; ++i)
    list.add_letter(grant.devices[row].uuid[i]);
}

}  // namespace

VisibleList visible_list(const contract::GrantPage& grant, const char* asked) {
  VisibleList list;
  std::uint32_t count = grant.device_count.load(kRelaxed);
  if (count > contract::kMaxDevices) count = contract::kMaxDevices;
  if (asked == nullptr) {
    for (std::uint32_t row = 0; row < count; ++row) add_row(list, grant, row);
    return list;
  }
  bool taken[contract::kMaxDevices] = {};
  while (*asked != 0) {
    while (*asked == ' ') ++asked;
    std::size_t length = 0;
    while (asked[length] != 0 && asked[length] != ',') ++length;
    std::size_t letters = length;
    while (letters > 0 && asked[letters - 1] == ' ') --letters;
    const std::uint32_t row = granted_row(grant, count, asked, letters);
    if (row >= count || taken[row]) break;
    taken[row] = true;
    add_row(list, grant, row);
    asked += length;
    if (*asked == ',') ++asked;
  }
  return list;
}

void show_only_granted_devices() {
  const VisibleList list = visible_list(*g_shared.slice.grant, getenv(kVisibleVariable));
  setenv(kVisibleVariable, list.letters, 1);
}

}  // namespace tensor_fusion::guest::limiter
