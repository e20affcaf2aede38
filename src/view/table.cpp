#include "view/table.h"

#include <algorithm>

#include "base/text.h"

namespace tensor_fusion::view {
namespace {

constexpr std::size_t kGap = 2;
constexpr std::size_t kLeastLastColumn = 12;  // of the last column, which is cut, so much should be seen

std::string_view escape_of(Tone tone) {
  switch (tone) {
    case Tone::kGood:
      return "\x1b[32m";
    case Tone::kWarning:
      return "\x1b[33m";
    case Tone::kBad:
      return "\x1b[31m";
    case Tone::kFaint:
      return "\x1b[2m";
    case Tone::kPlain:
      break;
  }
  return "";
}

bool continues_character(char byte) { return (static_cast<unsigned char>(byte) & 0xc0) == 0x80; }

std::string cut(const std::string& text, std::size_t columns) {
  if (columns_of(text) <= columns) return text;
  std::size_t taken = 0;
  std::size_t i = 0;
  while (i < text.size()) {
    if (!continues_character(text[i]) && taken++ == columns) break;
    ++i;
  }
  return text.substr(0, i);
}

}  // namespace

std::size_t columns_of(std::string_view utf8) {
  return static_cast<std::size_t>(std::ranges::count_if(utf8, [](char byte) { return !continues_character(byte); }));
}

void Table::add(std::vector<Cell> row) {
  row.resize(columns_.size());
  for (Cell& cell : row) cell.text = base::printable(cell.text);
  rows_.push_back(std::move(row));
}

std::vector<bool> Table::columns_that_fit(const std::vector<std::size_t>& widths, std::size_t width) const {
  std::vector<bool> shown(columns_.size(), true);
  if (columns_.empty() || width == 0) return shown;
  while (true) {
    std::size_t needed = std::min(widths.back(), kLeastLastColumn);
    std::size_t spare = columns_.size();
    for (std::size_t i = 0; i + 1 < columns_.size(); ++i) {
      if (!shown[i]) continue;
      needed += widths[i] + kGap;
      if (columns_[i].spare > (spare < columns_.size() ? columns_[spare].spare : 0)) spare = i;
    }
    if (needed <= width || spare == columns_.size()) return shown;
    shown[spare] = false;
  }
}

std::string Table::render(const Style& style) const {
  std::vector<std::size_t> widths;
  for (const Column& column : columns_) widths.push_back(columns_of(column.title));
  for (const auto& row : rows_) {
    for (std::size_t i = 0; i < row.size(); ++i) widths[i] = std::max(widths[i], columns_of(row[i].text));
  }

  const std::vector<bool> shown = columns_that_fit(widths, style.width);
  std::string out;
  const auto write_row = [&](const std::vector<Cell>& row) {
    std::string line;
    std::size_t used = 0;
    for (std::size_t i = 0; i < row.size(); ++i) {
      if (!shown[i]) continue;
      const bool last = i + 1 == row.size();
      std::string text = row[i].text;
      if (last && style.width > used) text = cut(text, style.width - used);
      const std::size_t fill = widths[i] - std::min(widths[i], columns_of(text));
      const bool right = columns_[i].align == Align::kRight;
      if (right) line.append(fill, ' ');
      const auto escape = style.colours && !text.empty() ? escape_of(row[i].tone) : std::string_view();
      line.append(escape).append(text);
      if (!escape.empty()) line.append("\x1b[0m");
      if (!right && !last) line.append(fill, ' ');
      if (!last) line.append(kGap, ' ');
      used += widths[i] + kGap;
    }
    line.erase(line.find_last_not_of(' ') + 1);
    out.append(line).push_back('\n');
  };

  std::vector<Cell> titles;
  for (const Column& column : columns_) titles.push_back({std::string(column.title), Tone::kFaint});
  write_row(titles);
  for (const auto& row : rows_) write_row(row);
  return out;
}

}  // namespace tensor_fusion::view
