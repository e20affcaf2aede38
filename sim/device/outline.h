#pragma once
// A small reader for machine files: the part of YAML that describes a machine (block and flow maps and lists, quoted
// and plain scalars, comments). No anchors, tags, documents or multi-line scalars; those are refused with their line.
// Why our own: these rooms go into libcuda.so.1, which must bring no library of ours into every program. Pure.
#include <cstddef>
#include <expected>
#include <string>
#include <string_view>
#include <vector>

namespace tensor_fusion::sim::device {

struct Outline {
  enum class Kind { scalar, map, list };
  Kind kind = Kind::scalar;
  std::size_t line = 0;  // from 1
  std::string scalar;
  std::vector<std::string> keys;  // of a map, in order and unique; keys[i] belongs to values[i]
  std::vector<Outline> values;    // of a map or list

  [[nodiscard]] const Outline* find(std::string_view key) const {
    for (std::size_t i = 0; i < keys.size(); ++i) {
      if (keys[i] == key) return &values[i];
    }
    return nullptr;
  }
};

// The outline, or "line 3: what is wrong".
[[nodiscard]] std::expected<Outline, std::string> read_outline(std::string_view text);

}  // namespace tensor_fusion::sim::device
