#pragma once
// Which devices the driver will show: CUDA_VISIBLE_DEVICES is rewritten, once and before the driver reads it, to the
// granted devices by UUID. What the program or its user asked for is kept as far as it is granted: numbers count the
// granted devices, names are taken if granted, and as in the driver the first entry that means nothing ends the list.
#include "contract/grant.h"
#include "guest/limiter/core/words.h"

namespace tensor_fusion::guest::limiter {

inline constexpr const char* kVisibleVariable = "CUDA_VISIBLE_DEVICES";
using VisibleList = Text<contract::kMaxDevices*(contract::kUuidLength + 1) + 1>;

VisibleList visible_list(const contract::GrantPage& grant, const char* asked);  // `asked` may be null
void show_only_granted_devices();

}  // namespace tensor_fusion::guest::limiter
