#pragma once
// Memory that the limiter refuses. The program is told what it would be told by a full card, so only here can its user
// learn that the limit was it: each refusal is counted in the claim page and, where the limiter is to explain itself,
// said in a line with the figures it was decided by; one a second at most, with how many there were between. Any
// thread.
#include <cstdint>

#include "guest/limiter/core/ledger.h"

namespace tensor_fusion::guest::limiter {

// Of a request that fails by `room`, when the program is turned away.
void refuse(const Device& device, std::uint64_t bytes, Room room);

// Says why something else was refused, at that pace.
void explain(const char* why);

}  // namespace tensor_fusion::guest::limiter
