#pragma once
// The same mixes under several limiters side by side: a row for each mix, a column for each limiter. Judges nothing.
#include <string>
#include <vector>

#include "tests/bench/share/verdict.h"

namespace tensor_fusion::bench::share {

struct Column {
  std::string title;
  Total caps, weights;
  bool knows_weights = true;  // else there is nothing that it could be held to
};

// Prints the rows that any column has.
void print_comparison(const std::vector<Column>& columns);

}  // namespace tensor_fusion::bench::share
