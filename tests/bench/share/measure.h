#pragma once
// Runs mixes on the simulated machine and measures what each tenant had of its device, by the device's own account over
// windows of a second. Prints a row for each.
#include <string>
#include <vector>

#include "tests/bench/share/scene.h"
#include "tests/bench/share/verdict.h"

namespace tensor_fusion::bench::share {

inline constexpr const char* kMachine = "2xh100";
inline constexpr const char* kSlowMachine = "2xh100;switch_us=100";

struct Bench {
  Paths paths;
  unsigned windows = 4;
  std::string only;  // part of the name of what is to run; empty: everything
  Verdict verdict;

  bool wanted(const std::string& name) const { return only.empty() || name.find(only) != std::string::npos; }
  Row run(const Mix& mix, const char* machine, Limiter limiter);
  // All that are wanted. With `judge`, a mix with a bar of its own is held to that.
  Total run_all(const std::vector<Mix>& mixes, const char* machine, Limiter limiter, bool judge);
};

}  // namespace tensor_fusion::bench::share
