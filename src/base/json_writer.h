#pragma once
// JSON values as text: on one line, or with so many blanks a level. What a terminal would obey is written by its
// number, so that a value may be printed as it is. Pure.
#include <string>

#include "base/json.h"

namespace tensor_fusion::base {

std::string write_json(const Json& value, int indent);

}  // namespace tensor_fusion::base
