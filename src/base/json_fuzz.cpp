// What the reader accepts, the writer writes so that the reader accepts the same again.
#include <cstdlib>

#include "base/json.h"

extern "C" int LLVMFuzzerTestOneInput(const unsigned char* data, std::size_t size) {
  using tensor_fusion::base::Json;
  const auto value = Json::parse({reinterpret_cast<const char*>(data), size});
  if (!value) return 0;
  const std::string once = value->dump();
  const auto again = Json::parse(once);
  if (!again || again->dump() != once) std::abort();
  return 0;
}
