#pragma once
// Finding and mapping the slice: where this process's limits come from. Sources are tried in order and the first that
// exists decides; a source that exists and cannot be used is damage, never "no limits". The grant is mapped read-only.
// Called once per process under the attach lock; the mappings are never undone.
#include "contract/claim.h"
#include "contract/grant.h"
#include "guest/limiter/core/words.h"

namespace tensor_fusion::guest::limiter {

enum class SliceState : std::uint8_t { none, found, damaged };

struct Slice {
  const contract::GrantPage* grant = nullptr;
  contract::ClaimPage* claim = nullptr;
  Text<512> directory;
  const char* reason = "";  // why it is damaged
};

// `library_path` is where this library was loaded from: a slice may hold the library itself.
SliceState find_slice(Slice& slice, const char* library_path);
SliceState open_slice(Slice& slice, const char* directory);
void ring(const Slice& slice);  // wakes the hypervisor; nothing happens while it is away

}  // namespace tensor_fusion::guest::limiter
