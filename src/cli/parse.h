#pragma once
// Turns words into an Invocation of one command of the table. Refuses what the table does not know, with one sentence
// that names the nearest known word. Pure: no environment, no files; the returned views point into the given words.
#include <expected>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "cli/command_table.h"

namespace tensor_fusion::cli {

struct UsageError {
  std::string message;               // one sentence that says what to do
  const Command* command = nullptr;  // whose help is worth showing
};

class Invocation {
 public:
  const Command* command = nullptr;
  std::vector<std::string> arguments;  // positional; for a command that takes a program: the program and its arguments
  bool wants_help = false;
  std::string stray_option;  // one of ours after the program's name, without `--`: it goes to the program

  bool has(std::string_view option) const;
  std::optional<std::string> value(std::string_view option) const;  // the last one given
  std::vector<std::string> values(std::string_view option) const;   // all, in order
  bool json() const { return value("output") == "json"; }
  void add(std::string_view option, std::string value) { given_.emplace_back(option, std::move(value)); }

 private:
  std::vector<std::pair<std::string_view, std::string>> given_;
};

std::expected<Invocation, UsageError> parse(const std::vector<std::string>& words);

// " (did you mean `x`?)" or nothing.
std::string suggestion(std::string_view typed, const std::vector<std::string_view>& known);

}  // namespace tensor_fusion::cli
