#pragma once
// Runs a mix of programs on the model machine and says what everybody had, and how far that is from what it should be.
// Tests only.
#include <algorithm>
#include <cmath>
#include <vector>

#include "pool/share_model.h"

namespace tensor_fusion::pool::model {

struct Part {
  ShareTerms terms;
  Program program;
  unsigned processes = 1;
  double target = -1;  // percent; -1: the limit
};

struct Outcome {
  std::vector<double> mean;
  double mean_error = 0;
  double p95_error = 0;
  double busy = 0;
};

inline ShareTerms cap(double share) { return {share, share, false}; }
inline ShareTerms weight(double share) { return {share, 1, false}; }

inline double percentile(std::vector<double> values, double part) {
  if (values.empty()) return 0;
  std::sort(values.begin(), values.end());
  return values[std::min(values.size() - 1, static_cast<std::size_t>(part * static_cast<double>(values.size())))];
}

inline Outcome run(Machine& machine, const std::vector<Part>& parts, Time until = 10 * kSecond) {
  for (const Part& part : parts) machine.add_tenant(part.terms, part.program, part.processes);
  const Time begin = machine.now;
  machine.run_until(until);
  Outcome outcome;
  outcome.busy = machine.busy() / static_cast<double>(machine.now - begin) * 100;
  std::vector<double> errors;
  double sum = 0;
  for (std::size_t i = 0; i < parts.size(); ++i) {
    const double target = parts[i].target >= 0 ? parts[i].target : parts[i].terms.limit * 100;
    outcome.mean.push_back(machine.mean_share(i));
    sum += std::abs(outcome.mean.back() - target);
    for (const double share : machine.shares(i)) errors.push_back(std::abs(share - target));
  }
  outcome.mean_error = sum / static_cast<double>(parts.size());
  outcome.p95_error = percentile(errors, 0.95);
  return outcome;
}
inline Outcome run(const std::vector<Part>& parts, ShareRules rules = {}, Hardware hardware = {}, bool limited = true) {
  Machine machine(rules, hardware, limited);
  return run(machine, parts);
}

inline double alone_share(const Program& program) { return run({{weight(1), program, 1}}).mean[0]; }

inline double step_p99_ms(const Machine& machine, std::size_t tenant) {
  std::vector<double> steps;
  for (const std::size_t p : machine.tenants[tenant].processes) {
    for (const Time step : machine.processes[p].steps) steps.push_back(static_cast<double>(step) / 1e6);
  }
  return percentile(steps, 0.99);
}

}  // namespace tensor_fusion::pool::model
