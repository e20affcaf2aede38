#pragma once
// Reads what people write as limits into the hypervisor's requests. Refuses what means nothing (0, a negative, NaN, a
// mistyped unit) with a sentence that names the option. Pure.
#include "base/result.h"
#include "cli/parse.h"
#include "node/hypervisor/protocol.h"

namespace tensor_fusion::cli {

inline constexpr unsigned kMostGpus = 16;

base::Result<node::hypervisor::RunRequest> run_request_of(const Invocation& invocation);
base::Result<node::hypervisor::LimitRequest> limit_request_of(const Invocation& invocation);

// Where both are parts of a card, or both are speeds, the smaller must not stand above the larger.
base::Result<void> check_order(const std::optional<base::Compute>& request, const std::optional<base::Compute>& limit);

// A name ("TERM", "sigterm") or a number.
base::Result<int> signal_of(const std::string& text);

// Whole numbers in [least, most].
base::Result<unsigned> count_of(const std::string& option, const std::string& text, unsigned least, unsigned most);

}  // namespace tensor_fusion::cli
