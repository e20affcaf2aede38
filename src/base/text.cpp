#include "base/text.h"

#include <algorithm>
#include <array>
#include <utility>

namespace tensor_fusion::base {
namespace {

char lower(char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c; }

}  // namespace

std::string lower(std::string_view text) {
  std::string result(text);
  for (char& c : result) c = lower(c);
  return result;
}

std::string_view trim(std::string_view text) {
  const auto blank = [](char c) { return c == ' ' || c == '\t' || c == '\n' || c == '\r'; };
  while (!text.empty() && blank(text.front())) text.remove_prefix(1);
  while (!text.empty() && blank(text.back())) text.remove_suffix(1);
  return text;
}

std::vector<std::string_view> split(std::string_view text, char separator) {
  std::vector<std::string_view> parts;
  while (true) {
    const std::size_t end = text.find(separator);
    parts.push_back(text.substr(0, end));
    if (end == std::string_view::npos) return parts;
    text.remove_prefix(end + 1);
  }
}

std::string join(std::span<const std::string> parts, std::string_view separator) {
  std::string result;
  for (const std::string& part : parts) {
    if (&part != parts.data()) result += separator;
    result += part;
  }
  return result;
}

namespace {

// How many bytes the character at the front of `text` has; 0 when there is none.
std::size_t character_size(std::string_view text) {
  const auto byte = [&](std::size_t i) { return i < text.size() ? static_cast<unsigned char>(text[i]) : 0u; };
  const unsigned lead = byte(0);
  if (lead < 0x80) return 1;
  // The second byte's range shuts out what is overlong, a surrogate, or past the last character.
  std::size_t size = 0;
  unsigned least = 0x80, most = 0xbf;
  if (lead >= 0xc2 && lead <= 0xdf) {
    size = 2;
  } else if (lead >= 0xe0 && lead <= 0xef) {
    size = 3;
    if (lead == 0xe0) least = 0xa0;
    if (lead == 0xed) most = 0x9f;
  } else if (lead >= 0xf0 && lead <= 0xf4) {
    size = 4;
    if (lead == 0xf0) least = 0x90;
    if (lead == 0xf4) most = 0x8f;
  } else {
    return 0;
  }
  if (byte(1) < least || byte(1) > most) return 0;
  for (std::size_t i = 2; i < size; ++i)
    if (byte(i) < 0x80 || byte(i) > 0xbf) return 0;
  return size;
}

}  // namespace

std::string valid_utf8(std::string_view text) {
  std::string result;
  result.reserve(text.size());
  while (!text.empty()) {
    const std::size_t size = character_size(text);
    if (size == 0) {
      result += "\ufffd";
    } else {
      result += text.substr(0, size);
    }
    text.remove_prefix(std::max<std::size_t>(size, 1));
  }
  return result;
}

std::size_t obeyed_size(std::string_view text) {
  constexpr std::array<std::pair<std::string_view, std::string_view>, 5> kObeyed{
      {{"\u0080", "\u009f"}, {"\u061c", "\u061c"}, {"\u200e", "\u200f"}, {"\u2028", "\u202e"}, {"\u2066", "\u2069"}}};
  if (text.empty()) return 0;
  const auto byte = static_cast<unsigned char>(text.front());
  if (byte < 0x80) return byte < 0x20 || byte == 0x7f ? 1 : 0;
  for (const auto& [first, last] : kObeyed) {
    const std::string_view one = text.substr(0, first.size());
    if (one.size() == first.size() && one >= first && one <= last) return one.size();
  }
  return 0;
}

std::string printable(std::string_view text, Lines lines) {
  const std::string sound = valid_utf8(text);
  std::string out;
  out.reserve(sound.size());
  for (std::string_view rest = sound; !rest.empty();) {
    const std::string_view one = rest.substr(0, std::max<std::size_t>(character_size(rest), 1));
    rest.remove_prefix(one.size());
    const bool kept = lines == Lines::kMany && (one == "\n" || one == "\t");
    out += obeyed_size(one) != 0 && !kept ? "?" : one;
  }
  return out;
}

std::size_t distance(std::string_view a, std::string_view b) {
  std::vector<std::size_t> before(b.size() + 1), last(b.size() + 1), now(b.size() + 1);
  for (std::size_t j = 0; j <= b.size(); ++j) last[j] = j;
  for (std::size_t i = 1; i <= a.size(); ++i) {
    now[0] = i;
    for (std::size_t j = 1; j <= b.size(); ++j) {
      const bool same = lower(a[i - 1]) == lower(b[j - 1]);
      now[j] = std::min({last[j] + 1, now[j - 1] + 1, last[j - 1] + (same ? 0u : 1u)});
      const bool swapped = i > 1 && j > 1 && lower(a[i - 1]) == lower(b[j - 2]) && lower(a[i - 2]) == lower(b[j - 1]);
      if (swapped) now[j] = std::min(now[j], before[j - 2] + 1);
    }
    std::swap(before, last);
    std::swap(last, now);
  }
  return last[b.size()];
}

std::optional<std::string_view> nearest_word(std::string_view typo, std::span<const std::string_view> words) {
  std::optional<std::string_view> best;
  std::size_t best_distance = 0;
  if (typo.size() > kLongestWord) return best;
  for (const std::string_view word : words) {
    const std::size_t shortest = std::min(typo.size(), word.size()), longest = std::max(typo.size(), word.size());
    // Letters that one has more than the other are wrong in any case, and need no counting.
    if (longest > kLongestWord || (longest - shortest) * 3 > longest + 1) continue;
    const std::size_t d = distance(typo, word);
    if (d * 3 > longest + 1 || (best && d >= best_distance)) continue;  // "+ 1": one wrong letter of two is a typo
    best = word;
    best_distance = d;
  }
  return best;
}

}  // namespace tensor_fusion::base
