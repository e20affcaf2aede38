#pragma once
// Runs mixes on the simulated machine and measures what each tenant had of its device, by the device's own account over
// windows of a second. Prints a row for each.
#include <optional>
#include <string>
#include <vector>

#include "tests/bench/share/scene.h"
#include "tests/bench/share/verdict.h"

namespace tensor_fusion::bench::share {

inline constexpr const char* kMachine = "2xh100";
inline constexpr const char* kManyMachine = "4xh100";
inline constexpr const char* kSlowMachine = "2xh100;switch_us=100";

class Bench {
 public:
  Paths paths;
  unsigned windows = 4;
  std::string only;            // part of the name of what is to run; empty: everything
  bool only_compared = false;  // of these, what other limiters and another machine make of them, and nothing else
  Verdict verdict;

  bool wanted(const std::string& name) const { return only.empty() || name.find(only) != std::string::npos; }
  Row run(const Mix& mix, const char* machine, Limiter limiter);
  // All that are wanted; each is held to the bar of its kind, or to its own. Without one nothing is judged.
  Total run_all(const std::string& kind, const std::vector<Mix>& mixes, const char* machine, Limiter limiter,
                std::optional<Bar> bar);
  void hold(const std::string& what, double mean_error, double p95, Bar bar);

 private:
  std::optional<std::vector<std::vector<double>>> watch(const Mix& mix, const char* machine, Limiter limiter, Row& row);
  std::optional<double> alone_percent(const Part& part, const char* machine);
};

}  // namespace tensor_fusion::bench::share
