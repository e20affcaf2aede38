#include "cli/help.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <vector>

#include "base/text.h"
#include "base/version.h"

namespace tensor_fusion::cli {
namespace {

constexpr std::size_t kWidth = 100;

std::string wrapped(std::string_view text, std::size_t indent, std::size_t first_column) {
  std::string out;
  std::size_t column = first_column;
  bool line_is_empty = true;
  for (const std::string_view paragraph : base::split(text, '\n')) {
    if (paragraph.empty()) {
      out += "\n\n" + std::string(indent, ' ');
      column = indent;
      line_is_empty = true;
      continue;
    }
    for (const std::string_view word : base::split(paragraph, ' ')) {
      if (!line_is_empty && column + 1 + word.size() > kWidth) {
        out += "\n" + std::string(indent, ' ');
        column = indent;
        line_is_empty = true;
      }
      if (!line_is_empty) out.push_back(' '), ++column;
      out += word;
      column += word.size();
      line_is_empty = false;
    }
  }
  return out;
}

// With the words it takes, unless it names them all itself.
std::string help_of(const Option& option) {
  const auto words = base::split(option.words, ' ');
  const auto is_said = [&](std::string_view word) { return option.help.contains(fmt::format("`{}`", word)); };
  if (option.words.empty() || std::ranges::all_of(words, is_said)) return std::string(option.help);
  return fmt::format("{} ({})", option.help, fmt::join(words, ", "));
}

std::string spelled(const Option& option) {
  std::string text = option.letter != '\0' ? fmt::format("-{}, --{}", option.letter, option.name)
                                           : fmt::format("    --{}", option.name);
  if (!option.value.empty()) text += fmt::format(" {}", option.value);
  return text;
}

std::string option_lines(std::span<const Option> options) {
  std::size_t width = 0;
  for (const Option& option : options) width = std::max(width, spelled(option).size());
  std::string out;
  for (const Option& option : options) {
    const std::string left = fmt::format("  {:<{}}  ", spelled(option), width);
    const std::string help = help_of(option);
    out += left + wrapped(help, left.size(), left.size()) + "\n";
  }
  return out;
}

std::string usage_line(const Command& command) {
  return fmt::format("tensor-fusion {}{}{}", command.name, command.arguments.empty() ? "" : " ", command.arguments);
}

std::string code_text(const ExitCodeRow& row) {
  return row.with_offset ? fmt::format("{}, {}", row.code, row.code + kRunOffset) : std::to_string(row.code);
}

// roff reads '.' and "'" at the start of a line, and every '\', as its own; `-` would become a hyphen.
std::string roff(std::string_view text) {
  std::string out;
  bool bold = false;
  for (std::size_t i = 0; i < text.size(); ++i) {
    const char byte = text[i];
    if (byte == '`') {
      out += bold ? "\\fR" : "\\fB";
      bold = !bold;
    } else if (byte == '\\') {
      out += "\\e";
    } else if (byte == '-') {
      out += "\\-";
    } else if ((byte == '.' || byte == '\'') && (i == 0 || text[i - 1] == '\n')) {
      out += "\\&";
      out.push_back(byte);
    } else if (byte == '\n' && i + 1 < text.size() && text[i + 1] == '\n') {
      out += "\n.PP\n";
      ++i;
    } else {
      out.push_back(byte);
    }
  }
  return out;
}

std::string roff_option(const Option& option) {
  std::string head = option.letter != '\0' ? fmt::format("\\fB\\-{}\\fR, ", option.letter) : std::string();
  head += fmt::format("\\fB{}\\fR", roff(fmt::format("--{}", option.name)));
  if (!option.value.empty()) head += fmt::format(" \\fI{}\\fR", roff(option.value));
  const std::string help = help_of(option);
  return fmt::format(".TP\n{}\n{}\n", head, roff(help));
}

std::string cell(std::string_view text) {
  std::string out;
  for (const char byte : text) {
    if (byte == '|') out.push_back('\\');
    out.push_back(byte);
  }
  return out;
}

std::string markdown_options(std::span<const Option> options) {
  std::string out = "| option | meaning |\n| --- | --- |\n";
  for (const Option& option : options) {
    std::string left = option.letter != '\0' ? fmt::format("`-{}`, ", option.letter) : std::string();
    left +=
        option.value.empty() ? fmt::format("`--{}`", option.name) : fmt::format("`--{} {}`", option.name, option.value);
    const std::string help = help_of(option);
    out += fmt::format("| {} | {} |\n", cell(left), cell(help));
  }
  return out;
}

}  // namespace

std::string help_text() {
  std::string out = "tensor-fusion: slices of a GPU that hold\n\nusage: tensor-fusion COMMAND [OPTION…]\n\n";
  for (const Command& command : commands()) out += fmt::format("  {:<11}  {}\n", command.name, command.summary);
  out += "\nOptions of every command:\n" + option_lines(global_options());
  out +=
      "\nSizes: 8Gi (1024s), 8G (1000s), 512Mi, 50% of the card. Compute: 40% of a card's time, or 20tflops.\n"
      "`tensor-fusion help COMMAND` shows one command; `tensor-fusion doctor` says what is missing here.\n";
  return out;
}

std::string help_text(const Command& command) {
  std::string out = fmt::format("{}\n\nusage: {}\n", command.summary, usage_line(command));
  if (!command.text.empty()) out += "\n" + wrapped(command.text, 0, 0) + "\n";
  if (!command.options.empty()) out += "\nOptions:\n" + option_lines(command.options);
  out += "\nOptions of every command:\n" + option_lines(global_options());
  if (!command.examples.empty()) out += "\nExamples:\n";
  for (const Example& example : command.examples) out += fmt::format("  {}\n      {}\n", example.line, example.says);
  return out;
}

base::Json help_json() {
  using base::Json;
  const auto options_of = [](std::span<const Option> options) {
    Json rows = Json::array();
    for (const Option& option : options) {
      const std::string letter = option.letter == '\0' ? "" : std::string(1, option.letter);
      rows.push(Json::object({{"name", option.name},
                              {"letter", letter},
                              {"value", option.value},
                              {"repeatable", option.kind == OptionKind::kRepeated},
                              {"help", option.help}}));
    }
    return rows;
  };
  Json rows = Json::array();
  for (const Command& command : commands()) {
    Json examples = Json::array();
    for (const Example& example : command.examples)
      examples.push(Json::object({{"line", example.line}, {"meaning", example.says}}));
    rows.push(Json::object({{"name", command.name},
                            {"arguments", command.arguments},
                            {"summary", command.summary},
                            {"description", command.text},
                            {"options", options_of(command.options)},
                            {"examples", examples}}));
  }
  Json codes = Json::array();
  for (const ExitCodeRow& row : exit_codes()) {
    codes.push(Json::object({{"code", row.code},
                             {"of_run", row.with_offset ? run_exit_code(row.code) : row.code},
                             {"meaning", row.meaning}}));
  }
  constexpr int kSignal = 128;
  codes.push(
      Json::object({{"code", kSignal},
                    {"of_run", kSignal},
                    {"meaning", "and n more: signal n ended the program that `run` became, as a shell shows it"}}));
  return Json::object({{"commands", rows}, {"global_options", options_of(global_options())}, {"exit_codes", codes}});
}

std::string manual_page() {
  std::string out =
      fmt::format(".TH TENSOR\\-FUSION 1 \"\" \"tensor\\-fusion {}\" \"User Commands\"\n", roff(base::kVersion));
  out += ".SH NAME\ntensor\\-fusion \\- slices of a GPU that hold\n.SH SYNOPSIS\n";
  for (const Command& command : commands()) {
    const std::string arguments = command.arguments.empty() ? "" : roff(command.arguments) + "\n";
    out += fmt::format(".B tensor\\-fusion {}\n{}.br\n", command.name, arguments);
  }
  out +=
      ".SH DESCRIPTION\nCuts the GPUs of this machine into slices: so much memory, so much of the time. A program "
      "started in a slice\n"
      "cannot use more, and is not told that the card is larger.\n.SH COMMANDS\n";
  for (const Command& command : commands()) {
    out += fmt::format(".SS {}\n{}.\n", roff(usage_line(command)), roff(command.summary));
    if (!command.text.empty()) out += fmt::format(".PP\n{}\n", roff(command.text));
    for (const Option& option : command.options) out += roff_option(option);
    for (const Example& example : command.examples) {
      out += fmt::format(".PP\n{}:\n.PP\n.nf\n.RS\n{}\n.RE\n.fi\n", roff(example.says), roff(example.line));
    }
  }
  out += ".SH OPTIONS OF EVERY COMMAND\n";
  for (const Option& option : global_options()) out += roff_option(option);
  out +=
      ".SH EXIT STATUS\nWhere two numbers stand, the second is that of\n.BR run ,\nwhose lower numbers are the "
      "program's own.\n";
  for (const ExitCodeRow& row : exit_codes()) out += fmt::format(".TP\n.B {}\n{}\n", code_text(row), roff(row.meaning));
  out += ".TP\n.B 128+n\n\\fBrun\\fR: signal n ended the program, as a shell shows it\n";
  out += ".SH ENVIRONMENT\n";
  for (const Variable& variable : environment_variables())
    out += fmt::format(".TP\n.B {}\n{}\n", variable.name, roff(variable.help));
  return out;
}

std::string reference_page() {
  std::string out =
      "# Command line\n\n<!-- Printed by `tensor-fusion help --markdown`; `./dev generate` writes it. -->\n\n"
      "Sizes are written `8Gi` (1024s), `8G` (1000s), `512Mi`, or as a part of the card, `50%`. Compute is a part of a "
      "card's\n"
      "time, `40%`, or a speed, `20tflops`. A word that is not known is answered with the nearest one that is.\n\n"
      "| command | what it does |\n| --- | --- |\n";
  for (const Command& command : commands())
    out += fmt::format("| [`{}`](#{}) | {} |\n", command.name, command.name, cell(command.summary));
  out += "\nOptions of every command, before or after its name:\n\n" + markdown_options(global_options());
  for (const Command& command : commands()) {
    out += fmt::format("\n## {}\n\n    {}\n\n{}.\n", command.name, usage_line(command), command.summary);
    if (!command.text.empty()) out += fmt::format("\n{}\n", command.text);
    if (!command.options.empty()) out += "\n" + markdown_options(command.options);
    for (const Example& example : command.examples) out += fmt::format("\n{}:\n\n    {}\n", example.says, example.line);
  }
  out +=
      "\n## Exit codes\n\nWhere two numbers stand, the second is that of `run`, whose lower numbers are the program's "
      "own.\n\n| code | meaning |\n| --- | --- |\n";
  for (const ExitCodeRow& row : exit_codes()) out += fmt::format("| {} | {} |\n", code_text(row), cell(row.meaning));
  out += "| 128+n | `run`: signal n ended the program, as a shell shows it |\n";
  out += "\n## Environment\n\n| variable | meaning |\n| --- | --- |\n";
  for (const Variable& variable : environment_variables())
    out += fmt::format("| `{}` | {} |\n", variable.name, cell(variable.help));
  return out;
}

}  // namespace tensor_fusion::cli
