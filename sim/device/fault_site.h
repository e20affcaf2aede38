#pragma once
// The names that a fault rule may give for where it strikes: every driver call by the name programs ask for it, and the
// classes alloc, launch, copy, sync and any. Pure; any thread.
#include <string>
#include <string_view>

namespace tensor_fusion::sim::device {

// "" for a name that exists, else what is wrong with it and the nearest one that does.
[[nodiscard]] std::string wrong_site(std::string_view site);

}  // namespace tensor_fusion::sim::device
