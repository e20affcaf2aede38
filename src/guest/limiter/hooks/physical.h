#pragma once
// Physical memory as the book knows it: a record per allocation, with its live handles and mappings.
#include "guest/limiter/core/attachment.h"

namespace tensor_fusion::guest::limiter {

// Adds to the counts of a record, with physical_mutex held; gives the charge back when both have reached zero.
void count_physical(Attachment& attached, std::uint64_t number, int handles, int mappings);

// What a context has opened of other processes goes with it.
void forget_opened(Attachment& attached, std::uint64_t context);

bool any_tiles();  // whether physical memory was ever mapped into an array
// An array is gone, and with it what was mapped into it.
void forget_tiles(std::uint64_t array);

}  // namespace tensor_fusion::guest::limiter
