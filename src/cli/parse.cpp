#include "cli/parse.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstring>

#include "base/text.h"
#include "cli/other_words.h"
#include "cli/request.h"
#include "view/table.h"

namespace tensor_fusion::cli {
namespace {

std::vector<std::string_view> split_words(std::string_view text) {
  std::vector<std::string_view> words;
  while (!text.empty()) {
    const auto end = std::min(text.find(' '), text.size());
    if (end > 0) words.push_back(text.substr(0, end));
    text.remove_prefix(std::min(end + 1, text.size()));
  }
  return words;
}

class Parser {
 public:
  explicit Parser(const std::vector<std::string>& words) : words_(words) {}

  std::expected<Invocation, UsageError> parse() {
    while (next_ < words_.size()) {
      const std::string& word = words_[next_++];
      if (only_arguments_ || word == "-" || !word.starts_with('-')) {
        if (auto error = take_argument(word)) return std::unexpected(*error);
      } else if (word == "--") {
        only_arguments_ = true;
        if (auto error = begin_program()) return std::unexpected(*error);
      } else if (auto error = word.starts_with("--") ? take_long(word) : take_short(word)) {
        return std::unexpected(*error);
      }
    }
    return finish();
  }

 private:
  using Failure = std::optional<UsageError>;

  Failure fail(std::string_view message) const { return UsageError{base::printable(message), result_.command}; }

  Failure take_argument(const std::string& word) {
    if (auto failure = look_for_other_dashes(word)) return failure;
    if (result_.command == nullptr) return take_command(word);
    result_.arguments.push_back(word);
    return result_.command->takes_program ? begin_program() : std::nullopt;
  }

  // Editors and web pages turn two dashes into one long one.
  Failure look_for_other_dashes(std::string_view word) const {
    if (only_arguments_ || word.starts_with('-')) return std::nullopt;
    std::string_view rest = word;
    for (bool more = true; more;) {
      more = false;
      for (const std::string_view dash : {"\xE2\x80\x93", "\xE2\x80\x94", "\xE2\x88\x92", "\xE2\x80\x92", "-"}) {
        if (!rest.starts_with(dash)) continue;
        rest.remove_prefix(dash.size());
        more = true;
      }
    }
    if (rest.size() == word.size()) return std::nullopt;
    return fail(fmt::format("`{}` begins with a dash of another kind, as editors make it; write `{}{}` with plain ones",
                            word, rest.size() == 1 ? "-" : "--", rest));
  }

  // After the first word of a program nothing is ours any more.
  Failure begin_program() {
    if (result_.command == nullptr)
      return fail("a command must stand before `--`, such as `tensor-fusion run -- PROGRAM`");
    if (!result_.command->takes_program) return std::nullopt;
    if (!only_arguments_) result_.stray_option = option_among_the_rest();
    result_.arguments.insert(result_.arguments.end(), words_.begin() + static_cast<std::ptrdiff_t>(next_),
                             words_.end());
    next_ = words_.size();
    return std::nullopt;
  }

  // What nearly no other program has: `--gpus` or `--name` may well be the program's own.
  std::string option_among_the_rest() const {
    constexpr std::array<std::string_view, 3> kOurs{"--vram", "--compute", "--compute-request"};
    for (std::size_t i = next_; i < words_.size() && words_[i] != "--"; ++i) {
      const std::string_view name = std::string_view(words_[i]).substr(0, words_[i].find('='));
      if (std::ranges::find(kOurs, name) != kOurs.end()) return std::string(name);
    }
    return "";
  }

  Failure take_command(const std::string& word) {
    result_.command = find_command(word);
    if (result_.command != nullptr) return std::nullopt;
    if (const auto meant = meant_by_command(word); !meant.empty())
      return fail(fmt::format("there is no command `{}`; {}", word, meant));
    std::vector<std::string_view> names;
    for (const Command& command : commands()) names.push_back(command.name);
    return fail(
        fmt::format("there is no command `{}`{}; `tensor-fusion help` lists them", word, suggestion(word, names)));
  }

  const Option* find(auto matches) const {
    if (result_.command != nullptr) {
      for (const Option& option : result_.command->options) {
        if (matches(option)) return &option;
      }
    }
    for (const Option& option : global_options()) {
      if (matches(option)) return &option;
    }
    return nullptr;
  }

  Failure unknown_option(std::string_view typed) const {
    if (typed == "--version" && result_.command == nullptr)
      return fail("the version is printed by `tensor-fusion version`");
    std::vector<std::string> spelled;
    if (result_.command != nullptr) {
      for (const Option& option : result_.command->options) spelled.push_back(fmt::format("--{}", option.name));
    }
    for (const Option& option : global_options()) spelled.push_back(fmt::format("--{}", option.name));
    const std::vector<std::string_view> known(spelled.begin(), spelled.end());
    if (result_.command == nullptr) {
      return fail(fmt::format("there is no option `{}` before a command{}; `tensor-fusion help` lists them", typed,
                              suggestion(typed, known)));
    }
    std::string meant = suggestion(typed, known);
    if (result_.command->name == "kill" && !typed.starts_with("--")) {
      const auto number = signal_of(std::string(typed.substr(1)));
      const char* name = number ? ::sigabbrev_np(*number) : nullptr;
      if (name != nullptr) return fail(fmt::format("`kill` takes the signal by an option: write `-s {}`", name));
    }
    if (typed.starts_with("--")) {
      const auto ours = fmt::format("--{}", meant_by_option(typed.substr(2)));
      if (std::ranges::find(spelled, ours) != spelled.end()) meant = fmt::format(" (did you mean `{}`?)", ours);
    }
    return fail(fmt::format("`{}` has no option `{}`{}; `tensor-fusion help {}` lists them", result_.command->name,
                            typed, meant, result_.command->name));
  }

  Failure take_long(const std::string& word) {
    const std::string_view body = std::string_view(word).substr(2);
    const auto equals = body.find('=');
    const std::string_view name = body.substr(0, equals);
    if (name == "version" && result_.command == nullptr && equals == std::string_view::npos) {
      result_.command = find_command("version");
      return std::nullopt;
    }
    const Option* option = find([&](const Option& candidate) { return candidate.name == name; });
    if (option == nullptr)
      return unknown_option(std::string_view(word).substr(0, equals == body.npos ? word.size() : equals + 2));
    if (equals == std::string_view::npos) return take_value(*option, fmt::format("--{}", name), std::nullopt);
    return take_value(*option, fmt::format("--{}", name), std::string(body.substr(equals + 1)));
  }

  // `-d`, `-o json`, `-ojson`, `-o=json`, and flags run together as in `-dw`.
  Failure take_short(const std::string& word) {
    const std::string_view name = std::string_view(word).substr(1, word.find('=') - 1);
    if (name.size() > 1 && find([&](const Option& candidate) { return candidate.name == name; }) != nullptr)
      return fail(fmt::format("`-{}` is several letters after one dash; write `--{}`", name, word.substr(1)));
    for (std::size_t i = 1; i < word.size(); ++i) {
      const Option* option =
          find([&](const Option& candidate) { return candidate.letter != '\0' && candidate.letter == word[i]; });
      if (option == nullptr) return unknown_option(word);
      const std::string spelled = fmt::format("-{}", word[i]);
      if (option->kind != OptionKind::kFlag && i + 1 < word.size()) {
        return take_value(*option, spelled, word.substr(word[i + 1] == '=' ? i + 2 : i + 1));
      }
      if (auto error = take_value(*option, spelled, std::nullopt)) return error;
    }
    return std::nullopt;
  }

  Failure take_value(const Option& option, const std::string& spelled, std::optional<std::string> value) {
    if (option.kind == OptionKind::kFlag) {
      if (value) return fail(fmt::format("`{}` takes no value; leave out `={}`", spelled, *value));
      if (option.name == "help") result_.wants_help = true;
      result_.add(option.name, "");
      return std::nullopt;
    }
    if (!value) {
      if (next_ >= words_.size() || words_[next_] == "--") {
        return fail(fmt::format("`{}` needs a value: {} {}", spelled, spelled, option.value));
      }
      value = words_[next_++];
    }
    if (value->empty())
      return fail(fmt::format("`{}` needs a value that is not empty: {} {}", spelled, spelled, option.value));
    if (option.kind == OptionKind::kValue && result_.value(option.name).value_or(*value) != *value) {
      return fail(fmt::format("`{}` is given twice, as `{}` and as `{}`; give it once", spelled,
                              *result_.value(option.name), *value));
    }
    if (option.offer == Offer::kWords && option.name != "signal") {
      const auto words = split_words(option.words);
      if (std::ranges::find(words, *value) == words.end()) {
        return fail(fmt::format("`{}` cannot be `{}`{}; it is one of: {}", spelled, *value, suggestion(*value, words),
                                fmt::join(words, ", ")));
      }
    }
    result_.add(option.name, std::move(*value));
    return std::nullopt;
  }

  std::expected<Invocation, UsageError> finish() {
    if (result_.command == nullptr) {
      if (result_.wants_help) {
        result_.command = find_command("help");
        result_.wants_help = false;
        return std::move(result_);
      }
      return std::unexpected(UsageError{
          "a command is missing, such as `tensor-fusion run -- PROGRAM`; `tensor-fusion help` lists them", nullptr});
    }
    if (result_.wants_help) return std::move(result_);
    const Command& command = *result_.command;
    if (result_.arguments.size() < command.least_arguments) {
      return std::unexpected(
          *fail(fmt::format("`{}` needs more: tensor-fusion {} {}", command.name, command.name, command.arguments)));
    }
    if (result_.arguments.size() > command.most_arguments) {
      return std::unexpected(*fail(fmt::format("`{}` does not take `{}`: tensor-fusion {}{}{}", command.name,
                                               result_.arguments[command.most_arguments], command.name,
                                               command.arguments.empty() ? "" : " ", command.arguments)));
    }
    if (command.offer == Offer::kWords) {
      const auto words = split_words(command.words);
      for (const std::string& argument : result_.arguments) {
        if (std::ranges::find(words, argument) != words.end()) continue;
        return std::unexpected(*fail(fmt::format("`{}` does not know `{}`{}; it is one of: {}", command.name, argument,
                                                 suggestion(argument, words), fmt::join(words, ", "))));
      }
    }
    return std::move(result_);
  }

  const std::vector<std::string>& words_;
  std::size_t next_ = 0;
  bool only_arguments_ = false;
  Invocation result_;
};

}  // namespace

bool Invocation::has(std::string_view option) const {
  return std::ranges::any_of(given_, [&](const auto& pair) { return pair.first == option; });
}

std::optional<std::string> Invocation::value(std::string_view option) const {
  for (auto given = given_.rbegin(); given != given_.rend(); ++given) {
    if (given->first == option) return given->second;
  }
  return std::nullopt;
}

std::vector<std::string> Invocation::values(std::string_view option) const {
  std::vector<std::string> all;
  for (const auto& [name, value] : given_) {
    if (name == option) all.push_back(value);
  }
  return all;
}

std::string suggestion(std::string_view typed, const std::vector<std::string_view>& known) {
  const auto near = base::nearest_word(typed, known);
  return near ? fmt::format(" (did you mean `{}`?)", *near) : std::string();
}

std::expected<Invocation, UsageError> parse(const std::vector<std::string>& words) { return Parser(words).parse(); }

}  // namespace tensor_fusion::cli
