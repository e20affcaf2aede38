#pragma once
// Small text tools that several rooms need. Pure; no locale.
#include <cstddef>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace tensor_fusion::base {

std::string lower(std::string_view text);  // ASCII only
std::string_view trim(std::string_view text);
std::vector<std::string_view> split(std::string_view text, char separator);  // keeps empty fields
std::string join(std::span<const std::string> parts, std::string_view separator);

// The text with U+FFFD for every byte that belongs to no UTF-8 character (no surrogates, nothing overlong).
std::string valid_utf8(std::string_view text);

// How many bytes what a terminal obeys instead of showing it has at the front of the text: controls, and marks that
// turn the direction of writing, with which one word can look like another. 0: nothing such.
std::size_t obeyed_size(std::string_view text);
// The text with `?` for everything that a terminal obeys. Of several lines the ends are kept.
enum class Lines : bool { kOne, kMany };
std::string printable(std::string_view text, Lines lines = Lines::kOne);

// Damerau-Levenshtein distance, letters compared without case.
std::size_t distance(std::string_view a, std::string_view b);

// The word a typo most likely meant, or nothing when none is near (more than a third of its letters wrong). The first
// wins a tie. Words longer than kLongestWord are nobody's typo: to compare them costs the product of their lengths.
inline constexpr std::size_t kLongestWord = 128;
std::optional<std::string_view> nearest_word(std::string_view typo, std::span<const std::string_view> words);

}  // namespace tensor_fusion::base
