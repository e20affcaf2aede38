#include "cli/completion.h"

#include <fmt/format.h>

#include <string>

#include "cli/command_table.h"

namespace tensor_fusion::cli {
namespace {

// The names of slices, and the UUIDs of `devices`; nothing when no hypervisor runs.
constexpr std::string_view kSliceNames = "tensor-fusion ps --names 2>/dev/null";
constexpr std::string_view kDeviceNames =
    "tensor-fusion devices -o json 2>/dev/null | sed -n 's/.*\"uuid\": \"\\(.*\\)\".*/\\1/p'";

std::string command_names() {
  std::string names;
  for (const Command& command : commands()) names += fmt::format("{}{}", names.empty() ? "" : " ", command.name);
  return names;
}

std::string option_words(std::span<const Option> options) {
  std::string words;
  for (const Option& option : options) {
    words += fmt::format("{}--{}", words.empty() ? "" : " ", option.name);
    if (option.letter != '\0') words += fmt::format(" -{}", option.letter);
  }
  return words;
}

// One bash command that fills COMPREPLY for a kind of word.
std::string bash_offer(Offer offer, std::string_view words) {
  switch (offer) {
    case Offer::kSlices:
      return fmt::format("COMPREPLY=($(compgen -W \"$({})\" -- \"$word\"))", kSliceNames);
    case Offer::kDevices:
      return fmt::format("COMPREPLY=($(compgen -W \"$({})\" -- \"$word\"))", kDeviceNames);
    case Offer::kPrograms:
      return "COMPREPLY=($(compgen -c -f -- \"$word\"))";
    case Offer::kFiles:
      return "COMPREPLY=($(compgen -f -- \"$word\"))";
    case Offer::kWords:
      return fmt::format("COMPREPLY=($(compgen -W \"{}\" -- \"$word\"))", words);
    case Offer::kNothing:
      break;
  }
  return "COMPREPLY=()";
}

std::string bash_values(std::string_view command, std::span<const Option> options) {
  std::string out;
  for (const Option& option : options) {
    if (option.kind == OptionKind::kFlag) continue;
    std::string pattern;
    pattern += fmt::format("{}:--{}", command, option.name);
    if (option.letter != '\0') pattern += fmt::format("|{}:-{}", command, option.letter);
    out += fmt::format("    {}) {}; return ;;\n", pattern, bash_offer(option.offer, option.words));
  }
  return out;
}

std::string quoted(std::string_view text) {  // for single quotes, which all three shells read alike
  std::string out;
  for (const char byte : text) {
    if (byte == '\'') {
      out += "'\\''";
    } else {
      out.push_back(byte);
    }
  }
  return out;
}

std::string zsh_escaped(std::string_view text) {
  std::string out;
  for (const char byte : quoted(text)) {
    if (byte == '[' || byte == ']' || byte == ':') out.push_back('\\');
    out.push_back(byte);
  }
  return out;
}

std::string zsh_action(Offer offer, std::string_view words) {
  switch (offer) {
    case Offer::kSlices:
      return "_tensor_fusion_slices";
    case Offer::kDevices:
      return "_tensor_fusion_devices";
    case Offer::kPrograms:
      return "_command_names -e";
    case Offer::kFiles:
      return "_files";
    case Offer::kWords:
      return fmt::format("({})", words);
    case Offer::kNothing:
      break;
  }
  return " ";
}

std::string zsh_options(std::span<const Option> options) {
  std::string out;
  for (const Option& option : options) {
    const std::string_view repeat = option.kind == OptionKind::kRepeated ? "*" : "";
    const std::string value = option.kind == OptionKind::kFlag ? std::string()
                                                               : fmt::format(":{}:{}", zsh_escaped(option.value),
                                                                             zsh_action(option.offer, option.words));
    out += fmt::format("        '{}--{}[{}]{}' \\\n", repeat, option.name, zsh_escaped(option.help), value);
    if (option.letter != '\0')
      out += fmt::format("        '{}-{}[{}]{}' \\\n", repeat, option.letter, zsh_escaped(option.help), value);
  }
  return out;
}

std::string fish_offer(Offer offer, std::string_view words) {
  switch (offer) {
    case Offer::kSlices:
      return fmt::format(" -x -a '({})'", quoted(kSliceNames));
    case Offer::kDevices:
      return fmt::format(" -x -a '({})'", quoted(kDeviceNames));
    case Offer::kPrograms:
      return " -x -a '(__fish_complete_command)'";
    case Offer::kFiles:
      return " -r -F";
    case Offer::kWords:
      return fmt::format(" -x -a '{}'", quoted(words));
    case Offer::kNothing:
      break;
  }
  return " -x";
}

std::string fish_options(std::string_view condition, std::span<const Option> options) {
  std::string out;
  for (const Option& option : options) {
    out += fmt::format("complete -c tensor-fusion{} -l {}", condition, option.name);
    if (option.letter != '\0') out += fmt::format(" -s {}", option.letter);
    if (option.kind != OptionKind::kFlag) out += fish_offer(option.offer, option.words);
    out += fmt::format(" -d '{}'\n", quoted(option.help));
  }
  return out;
}

}  // namespace

std::string bash_completion() {
  std::string out =
      "# bash completion of tensor-fusion\n"
      "_tensor_fusion() {\n"
      "  local word=${COMP_WORDS[COMP_CWORD]} before=${COMP_WORDS[COMP_CWORD-1]} command= i\n"
      "  COMPREPLY=()\n"
      "  for ((i = 1; i < COMP_CWORD; i++)); do\n"
      "    case ${COMP_WORDS[i]} in\n"
      "      -o|--output|--state) ((i++)) ;;\n"
      "      -*) ;;\n"
      "      *) command=${COMP_WORDS[i]}; break ;;\n"
      "    esac\n"
      "  done\n"
      "  case $command:$before in\n";
  for (const Option& option : global_options()) {
    if (option.kind == OptionKind::kFlag) continue;
    std::string pattern = fmt::format("*:--{}", option.name);
    if (option.letter != '\0') pattern += fmt::format("|*:-{}", option.letter);
    out += fmt::format("    {}) {}; return ;;\n", pattern, bash_offer(option.offer, option.words));
  }
  for (const Command& command : commands()) out += bash_values(command.name, command.options);
  out += "  esac\n  case $command in\n";
  out += fmt::format("    '') COMPREPLY=($(compgen -W \"{} {}\" -- \"$word\")) ;;\n", command_names(),
                     option_words(global_options()));
  for (const Command& command : commands()) {
    const std::string_view separator = command.options.empty() ? "" : " ";
    out += fmt::format("    {})\n      if [[ $word == -* ]]; then COMPREPLY=($(compgen -W \"{}{}{}\" -- \"$word\"))\n",
                       command.name, option_words(command.options), separator, option_words(global_options()));
    const std::string offer = command.name == "help"
                                  ? fmt::format("COMPREPLY=($(compgen -W \"{}\" -- \"$word\"))", command_names())
                                  : bash_offer(command.offer, command.words);
    out += fmt::format("      else {}; fi ;;\n", offer);
  }
  out += "  esac\n}\ncomplete -o default -F _tensor_fusion tensor-fusion\n";
  return out;
}

std::string zsh_completion() {
  std::string out = "#compdef tensor-fusion\n";
  out += fmt::format("_tensor_fusion_slices() {{ local -a names; names=(${{(f)\"$({})\"}}); compadd -a names }}\n",
                     kSliceNames);
  out += fmt::format("_tensor_fusion_devices() {{ local -a names; names=(${{(f)\"$({})\"}}); compadd -a names }}\n",
                     kDeviceNames);
  out += "_tensor_fusion() {\n  local context state line\n  local -a commands\n  commands=(\n";
  for (const Command& command : commands())
    out += fmt::format("    '{}:{}'\n", command.name, zsh_escaped(command.summary));
  out += "  )\n  _arguments -C \\\n" + zsh_options(global_options()) +
         "        '1:command:->command' '*::argument:->argument'\n";
  out += "  case $state in\n    command) _describe command commands ;;\n    argument)\n      case $words[1] in\n";
  for (const Command& command : commands()) {
    const std::string rest = command.takes_program ? std::string("'*:::program:_normal'")
                             : command.name == "help"
                                 ? fmt::format("'1:command:({})'", command_names())
                                 : fmt::format("'*:argument:{}'", zsh_action(command.offer, command.words));
    out += fmt::format("      {})\n        _arguments \\\n{}{}        {} ;;\n", command.name,
                       zsh_options(command.options), zsh_options(global_options()), rest);
  }
  out +=
      "      esac ;;\n  esac\n}\nif [[ $funcstack[1] == _tensor_fusion ]]; then _tensor_fusion \"$@\"; else compdef "
      "_tensor_fusion tensor-fusion; fi\n";
  return out;
}

std::string fish_completion() {
  std::string out = "# fish completion of tensor-fusion\n";
  const std::string none = fmt::format(" -n 'not __fish_seen_subcommand_from {}'", command_names());
  for (const Command& command : commands()) {
    out += fmt::format("complete -c tensor-fusion{} -f -a {} -d '{}'\n", none, command.name, quoted(command.summary));
  }
  out += fish_options("", global_options());
  for (const Command& command : commands()) {
    const std::string condition = fmt::format(" -n '__fish_seen_subcommand_from {}'", command.name);
    out += fish_options(condition, command.options);
    if (command.name == "help") {
      out += fmt::format("complete -c tensor-fusion{} -x -a '{}'\n", condition, command_names());
    } else if (command.offer != Offer::kNothing) {
      out += fmt::format("complete -c tensor-fusion{}{}\n", condition, fish_offer(command.offer, command.words));
    }
  }
  return out;
}

std::string completion_for(std::string_view shell) {
  if (shell == "bash") return bash_completion();
  if (shell == "zsh") return zsh_completion();
  if (shell == "fish") return fish_completion();
  return {};
}

}  // namespace tensor_fusion::cli
