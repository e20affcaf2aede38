#include "contract/limiter_mark.h"

namespace tensor_fusion::guest::limiter {

// Nothing here reads it: `run` looks for it in the file before it preloads one.
[[gnu::used, gnu::retain]] constinit const contract::LimiterMark kMark = contract::kLimiterMark;

}  // namespace tensor_fusion::guest::limiter
