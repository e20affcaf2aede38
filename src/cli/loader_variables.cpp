#include "cli/loader_variables.h"

#include <algorithm>
#include <array>
#include <string_view>

#include "cli/limiter_library.h"

namespace tensor_fusion::cli {
namespace {

// An audit library is asked for every library and every symbol, and may answer that there is none. The other variables
// of glibc's loader change where libraries are looked for, how they are laid out and what is printed: a library that is
// named by its whole path is loaded all the same.
constexpr std::array<std::string_view, 1> kKeepLimiterOut{"LD_AUDIT"};

std::string_view name_of(std::string_view entry) { return entry.substr(0, entry.find('=')); }

}  // namespace

std::vector<std::string> take_out_loader_variables(std::vector<std::string>& environment) {
  std::vector<std::string> taken;
  std::erase_if(environment, [&](const std::string& entry) {
    const std::string_view name = name_of(entry);
    if (std::ranges::find(kKeepLimiterOut, name) == kKeepLimiterOut.end()) return false;
    if (entry.size() > name.size() + 1) taken.emplace_back(name);  // without a value it does nothing
    return true;
  });
  return taken;
}

void preload_first(std::vector<std::string>& environment, const std::string& limiter) {
  constexpr std::string_view kPreload = "LD_PRELOAD=";
  for (std::string& entry : environment)
    if (entry.starts_with(kPreload) && entry.size() > kPreload.size())
      entry = std::string(kPreload) + merged_preload_variable(entry.substr(kPreload.size()), limiter);
}

}  // namespace tensor_fusion::cli
