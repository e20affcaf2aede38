#pragma once
// Figures of what was measured, for every benchmark that holds windows to bars; 0 of nothing. Pure.
#include <algorithm>
#include <cstddef>
#include <vector>

namespace tensor_fusion::bench::share {

inline double percentile(std::vector<double> values, double part) {
  if (values.empty()) return 0;
  std::sort(values.begin(), values.end());
  return values[std::min(values.size() - 1, static_cast<std::size_t>(part * static_cast<double>(values.size())))];
}

inline double mean(const std::vector<double>& values) {
  double sum = 0;
  for (const double value : values) sum += value;
  return values.empty() ? 0 : sum / static_cast<double>(values.size());
}

}  // namespace tensor_fusion::bench::share
