#pragma once
// One tenant: processes that run a program of busy kernels on the driver they find, until they are killed.
#include <cstdint>

namespace tensor_fusion::bench::share {

inline constexpr std::uint64_t kLongGraphNs = 90'000'000;  // one launch: a unit of work far longer than any stay

// One process. program: its name, device: its ordinal, report: path of its page. Returns only on failure.
int work(const char* program, int device, const char* report);
// That many processes of one tenant, with pages REPORT0, REPORT1…; they end with this one. Returns when one has failed.
int work_together(const char* program, int device, const char* report, int copies);

}  // namespace tensor_fusion::bench::share
