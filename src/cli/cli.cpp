#include "cli/cli.h"

#include <fmt/format.h>

#include <array>
#include <string>
#include <vector>

#include "base/version.h"
#include "cli/bench.h"
#include "cli/change.h"
#include "cli/completion.h"
#include "cli/context.h"
#include "cli/doctor.h"
#include "cli/help.h"
#include "cli/hypervisor.h"
#include "cli/parse.h"
#include "cli/run.h"
#include "cli/show.h"

namespace tensor_fusion::cli {
namespace {

int show_version(const Context& context) {
  if (context.json()) {
    context.print_json(
        base::Json::object({{"version", base::kVersion}, {"protocol", node::hypervisor::kProtocolVersion}}));
  } else {
    context.print(fmt::format("tensor-fusion {}\n", base::kVersion));
  }
  return kExitOk;
}

int show_completion(const Context& context) {
  const std::string& shell = context.invocation().arguments.front();
  const std::string script = completion_for(shell);
  if (context.json()) {
    context.print_json(base::Json::object({{"shell", shell}, {"script", script}}));
  } else {
    context.print(script);
  }
  return kExitOk;
}

int show_help(const Context& context) {
  const std::vector<std::string>& names = context.invocation().arguments;
  const Command* command = names.empty() ? nullptr : find_command(names.front());
  if (!names.empty() && command == nullptr) {
    std::vector<std::string_view> known;
    for (const Command& one : commands()) known.push_back(one.name);
    return context.fail(kExitUsage, fmt::format("there is no command `{}`{}; `tensor-fusion help` lists them",
                                                names.front(), suggestion(names.front(), known)));
  }
  if (context.invocation().has("man")) {
    context.print(manual_page());
  } else if (context.invocation().has("markdown")) {
    context.print(reference_page());
  } else if (context.json()) {
    context.print_json(help_json());
  } else {
    context.print(command == nullptr ? help_text() : help_text(*command));
  }
  return kExitOk;
}

struct Body {
  std::string_view name;
  int (*run)(const Context&);
};
constexpr std::array kBodies{
    Body{"run", run},
    Body{"ps", show_slices},
    Body{"top", show_top},
    Body{"devices", show_devices},
    Body{"limit", change_limit},
    Body{"kill", kill_slices},
    Body{"logs", show_logs},
    Body{"events", show_events},
    Body{"doctor", doctor},
    Body{"bench", bench},
    Body{"hypervisor", run_hypervisor},
    Body{"version", show_version},
    Body{"completion", show_completion},
    Body{"help", show_help},
};

// Of a line that means nothing: who asked for JSON before a program's own words gets the refusal as JSON too.
bool ask_for_json(const std::vector<std::string>& words) {
  for (std::size_t i = 0; i < words.size() && words[i] != "--"; ++i) {
    const std::string& word = words[i];
    if (word == "-ojson" || word == "-o=json" || word == "--output=json") return true;
    if ((word == "-o" || word == "--output") && i + 1 < words.size() && words[i + 1] == "json") return true;
  }
  return false;
}

}  // namespace

int run_command_line(int argc, char** argv) {
  const std::vector<std::string> words(argv + (argc > 0 ? 1 : 0), argv + argc);
  auto invocation = parse(words);
  if (!invocation) return say_failure(ask_for_json(words), kExitUsage, invocation.error().message);
  const Command& command = *invocation->command;
  const bool wants_help = invocation->wants_help;
  const Context context(std::move(*invocation), argc > 0 ? argv[0] : "tensor-fusion");
  if (wants_help) {
    context.print(help_text(command));
    return kExitOk;
  }
  for (const Body& body : kBodies) {
    if (body.name == command.name) return body.run(context);
  }
  return context.fail(kExitProblem, fmt::format("`{}` is not built into this program", command.name));
}

}  // namespace tensor_fusion::cli
