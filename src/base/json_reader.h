#pragma once
// Text as a JSON value: the whole of it, of bounded depth. The first problem stops it, and is told with its offset.
// Pure.
#include <string_view>

#include "base/json.h"

namespace tensor_fusion::base {

Result<Json> read_json(std::string_view text);

}  // namespace tensor_fusion::base
