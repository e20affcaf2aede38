#pragma once
// Collects what was measured against what must hold, and says at the end what was missed and what did not run. A bench
// is good only if nothing was missed and everything ran.
#include <string>
#include <vector>

#include "tests/bench/share/figures.h"
#include "tests/bench/share/mix.h"

namespace tensor_fusion::bench::share {

struct Row {
  bool ran = false;
  std::vector<double> shares;           // mean per part
  std::vector<double> errors;           // of every window and part, from the target
  std::vector<double> errors_to_limit;  // the same, where a tenant that waits may have anything from target to limit
  double mean_error = 0, p95_error = 0;
  double mean_to_limit = 0;
  double busy = 0, cpu = 0;
};

// Mixes held to one bar together: the mean over mixes, the percentile over all their windows.
struct Total {
  struct Line {
    std::string name;
    double mean, p95;
  };
  std::vector<Line> lines;  // of each mix
  std::vector<double> means, means_to_limit;
  std::vector<double> errors, errors_to_limit;
  // Without its windows: they have a bar of their own.
  void add(const std::string& mix, const Row& row, bool windows);
  bool empty() const { return means.empty(); }
  double mean_error() const { return means.empty() ? -1 : mean(means); }
  double p95() const { return errors.empty() ? -1 : percentile(errors, 0.95); }
};

class Verdict {
 public:
  void at_most(const std::string& what, double value, double bar);
  void at_least(const std::string& what, double value, double bar);
  void did_not_run(const std::string& what);
  bool good() const { return missed_.empty() && absent_.empty(); }
  void print() const;

 private:
  std::vector<std::string> missed_, absent_;
};

}  // namespace tensor_fusion::bench::share
