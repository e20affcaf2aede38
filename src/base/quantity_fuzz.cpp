// Any text either is an amount within its bounds or gets a sentence.
#include <cstdlib>

#include "base/quantity.h"

extern "C" int LLVMFuzzerTestOneInput(const unsigned char* data, std::size_t size) {
  using namespace tensor_fusion::base;
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  if (const auto bytes = parse_bytes(text); bytes ? bytes->value == 0 : bytes.error().message.empty()) std::abort();
  if (const auto percent = parse_percent(text);
      percent && (percent->basis_points == 0 || percent->basis_points > 10000))
    std::abort();
  if (const auto compute = parse_compute(text); compute && to_text(*compute).empty()) std::abort();
  if (const auto memory = parse_memory(text); memory && to_text(*memory).empty()) std::abort();
  return 0;
}
