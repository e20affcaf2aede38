#include "base/version.h"

namespace tensor_fusion::base {

const char* const kVersion = "0.1.0";

}  // namespace tensor_fusion::base
