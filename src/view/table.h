#pragma once
// A text table: columns as wide as their widest cell, two blanks between, no lines drawn, so that it reads well and
// `awk` can cut it. A row is bounded to the style's width by leaving out columns that may be, then by cutting the last.
// Control characters in cells become '?', so that a program's name cannot move the cursor. Pure.
#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

namespace tensor_fusion::view {

enum class Align { kLeft, kRight };
enum class Tone { kPlain, kGood, kWarning, kBad, kFaint };

struct Style {
  bool colours = false;
  std::size_t width = 0;  // 0: as wide as needed
};

struct Cell {
  std::string text;
  Tone tone = Tone::kPlain;
};

class Table {
 public:
  struct Column {
    std::string_view title;
    Align align = Align::kLeft;
    unsigned spare = 0;  // the highest is left out first where there is no room; 0 stays
  };
  explicit Table(std::vector<Column> columns) : columns_(std::move(columns)) {}
  void add(std::vector<Cell> row);  // missing cells are empty, surplus ones are dropped
  std::size_t size() const { return rows_.size(); }
  std::string render(const Style& style) const;

 private:
  std::vector<bool> columns_that_fit(const std::vector<std::size_t>& widths, std::size_t width) const;
  std::vector<Column> columns_;
  std::vector<std::vector<Cell>> rows_;
};

std::size_t columns_of(std::string_view utf8);  // code points: good enough for names and the dots we draw

}  // namespace tensor_fusion::view
