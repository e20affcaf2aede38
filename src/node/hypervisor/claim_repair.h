#pragma once
// Puts right what a tenant overwrote in its own claim page, of what is the hypervisor's to say: the head, and whose the
// slots are of processes that it knows to live. What these hold and do they say anew (they keep it in private memory),
// and till then the driver's account stands for it. Believes nothing that is written there. One thread.
#include "node/hypervisor/tenant.h"

namespace tensor_fusion::node::hypervisor {

bool repair_claim(Tenant& tenant);  // true: it was overwritten

}  // namespace tensor_fusion::node::hypervisor
