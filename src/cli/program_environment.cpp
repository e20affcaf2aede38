#include "cli/program_environment.h"

#include <fmt/format.h>

#include <algorithm>
#include <string_view>

namespace tensor_fusion::cli {

std::optional<std::string> overruled_cards(const std::vector<std::string>& ours,
                                           const std::vector<std::pair<std::string, std::string>>& slice,
                                           const std::vector<std::string>& asked) {
  constexpr std::string_view kName = "CUDA_VISIBLE_DEVICES";
  const auto cards = std::ranges::find(slice, kName, &std::pair<std::string, std::string>::first);
  if (cards == slice.end()) return std::nullopt;
  for (const std::string& entry : program_environment(ours, {}, asked)) {
    const auto equals = entry.find('=');
    if (std::string_view(entry).substr(0, equals) == kName && entry.substr(equals + 1) != cards->second)
      return entry.substr(equals + 1);
  }
  return std::nullopt;
}

std::vector<std::string> program_environment(const std::vector<std::string>& ours,
                                             const std::vector<std::pair<std::string, std::string>>& slice,
                                             const std::vector<std::string>& asked) {
  std::vector<std::string> all = ours;
  const auto remove = [&](std::string_view name) {
    std::erase_if(all,
                  [&](const std::string& entry) { return std::string_view(entry).substr(0, entry.find('=')) == name; });
  };
  for (const std::string& entry : asked) {
    const auto equals = entry.find('=');
    remove(std::string_view(entry).substr(0, equals));
    if (equals != std::string::npos) all.push_back(entry);
  }
  // Last, so that `--env` cannot take the limiter off.
  for (const auto& [name, value] : slice) {
    remove(name);
    all.push_back(fmt::format("{}={}", name, value));
  }
  return all;
}

}  // namespace tensor_fusion::cli
