#pragma once
// The one table of commands and options. Parsing, help, shell completion, the man page and the reference page are all
// read from it, so a command that is not here does not exist and one that is here is documented. Constant data, no
// locks.
#include <span>
#include <string_view>

#include "cli/exit_code.h"

namespace tensor_fusion::cli {

enum class OptionKind { kFlag, kValue, kRepeated };

// What a shell may offer after an option or as an argument.
enum class Offer { kNothing, kSlices, kDevices, kPrograms, kFiles, kWords };

struct Option {
  std::string_view name;  // without the dashes
  char letter;            // '\0' when it has no short form
  OptionKind kind;
  std::string_view value;  // how the value is called in the help; empty for a flag
  std::string_view help;   // one sentence, no full stop at its end
  Offer offer = Offer::kNothing;
  std::string_view words = {};  // the allowed words, separated by blanks, when `offer` is kWords
};

struct Example {
  std::string_view line;
  std::string_view says;
};

struct Command {
  std::string_view name;
  std::string_view arguments;  // as the usage line shows them
  std::string_view summary;    // one sentence
  std::string_view text;       // paragraphs, separated by blank lines
  std::span<const Option> options;
  std::span<const Example> examples;
  unsigned least_arguments;
  unsigned most_arguments;
  bool takes_program = false;  // everything from the first argument on belongs to a program
  Offer offer = Offer::kNothing;
  std::string_view words = {};
};

std::span<const Command> commands();
std::span<const Option> global_options();  // understood by every command, before or after its name
const Command* find_command(std::string_view name);

struct Variable {
  std::string_view name;
  std::string_view help;
};
std::span<const Variable> environment_variables();

}  // namespace tensor_fusion::cli
