#include "tests/bench/share/verdict.h"

#include <cstdio>

namespace tensor_fusion::bench::share {

void Total::add(const std::string& mix, const Row& row, bool windows) {
  lines.push_back({mix, row.mean_error, row.p95_error});
  means.push_back(row.mean_error);
  means_to_limit.push_back(row.mean_to_limit);
  if (!windows) return;
  errors.insert(errors.end(), row.errors.begin(), row.errors.end());
  errors_to_limit.insert(errors_to_limit.end(), row.errors_to_limit.begin(), row.errors_to_limit.end());
}

namespace {
std::string told(const std::string& what, double value, const char* relation, double bar) {
  char text[64];
  std::snprintf(text, sizeof text, ": %.2f, the bar is %s %.2f", value, relation, bar);
  return what + text;
}
}  // namespace

void Verdict::at_most(const std::string& what, double value, double bar) {
  if (!(value <= bar)) missed_.push_back(told(what, value, "at most", bar));
}

void Verdict::at_least(const std::string& what, double value, double bar) {
  if (!(value >= bar)) missed_.push_back(told(what, value, "at least", bar));
}

void Verdict::did_not_run(const std::string& what) { absent_.push_back(what); }

void Verdict::print() const {
  for (const std::string& what : missed_) std::printf("missed: %s\n", what.c_str());
  for (const std::string& what : absent_) std::printf("did not run: %s\n", what.c_str());
  if (good()) std::printf("every bar held\n");
}

}  // namespace tensor_fusion::bench::share
