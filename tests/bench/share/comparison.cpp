#include "tests/bench/share/comparison.h"

#include <algorithm>
#include <cstdio>

namespace tensor_fusion::bench::share {
namespace {

using Lines = std::vector<Total::Line>;

const Total::Line* find(const Lines& lines, const std::string& name) {
  const auto found = std::find_if(lines.begin(), lines.end(), [&](const auto& line) { return line.name == name; });
  return found == lines.end() ? nullptr : &*found;
}

std::string told(double mean_error, double p95) {
  char text[48];
  if (p95 < 0)
    std::snprintf(text, sizeof text, "%.2f / -", mean_error);
  else
    std::snprintf(text, sizeof text, "%.2f / %.2f", mean_error, p95);
  return text;
}

void print_rows(const std::vector<Column>& columns, Total Column::* total, const char* all) {
  const bool weights = total == &Column::weights;
  Lines rows;
  for (const Column& column : columns) {
    for (const Total::Line& line : (column.*total).lines) {
      if (find(rows, line.name) == nullptr) rows.push_back(line);
    }
  }
  if (rows.empty()) return;
  const auto print = [&](const std::string& name, const auto& cell) {
    std::printf("  %-28s", name.c_str());
    for (const Column& column : columns) {
      const bool knows = !weights || column.knows_weights;
      std::printf("  %16s", knows ? cell(column.*total).c_str() : "knows no weights");
    }
    std::printf("\n");
  };
  for (const Total::Line& row : rows) {
    print(row.name, [&](const Total& of) -> std::string {
      const Total::Line* line = find(of.lines, row.name);
      return line == nullptr ? "not run" : told(line->mean, line->p95);
    });
  }
  print(all, [](const Total& of) -> std::string { return of.empty() ? "not run" : told(of.mean_error(), of.p95()); });
}

}  // namespace

void print_comparison(const std::vector<Column>& columns) {
  std::printf("the same mixes compared: points from the target, mean / p95\n  %-28s", "");
  for (const Column& column : columns) std::printf("  %16s", column.title.c_str());
  std::printf("\n");
  print_rows(columns, &Column::caps, "all caps");
  print_rows(columns, &Column::weights, "all weights");
}

}  // namespace tensor_fusion::bench::share
