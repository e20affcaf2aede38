#include "sim/device/fault_site.h"

#include <algorithm>
#include <array>
#include <vector>

#include "base/text.h"
#include "contract/cuda_symbols.h"

namespace tensor_fusion::sim::device {
namespace {

constexpr std::array<std::string_view, 5> kClasses{"alloc", "launch", "copy", "sync", "any"};

}  // namespace

std::string wrong_site(std::string_view site) {
  std::vector<std::string_view> known(kClasses.begin(), kClasses.end());
  for (const auto& symbol : cuda::kCudaSymbols) known.emplace_back(symbol.base);
  if (std::ranges::find(known, site) != known.end()) return "";
  for (const auto& symbol : cuda::kCudaSymbols) {
    if (site == symbol.exported) return "a call is named without its version; write " + std::string(symbol.base);
  }
  std::string message = "the driver has no call '" + base::printable(site) + "'";
  if (const auto near = base::nearest_word(site, known)) return message + "; did you mean " + std::string(*near) + "?";
  return message + "; write a call's name, such as cuMemAlloc, or alloc, launch, copy, sync or any";
}

}  // namespace tensor_fusion::sim::device
