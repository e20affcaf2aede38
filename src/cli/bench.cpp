#include "cli/bench.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdio>
#include <filesystem>

#include "base/text.h"
#include "cli/driver.h"
#include "cli/foster.h"
#include "system/file.h"

namespace tensor_fusion::cli {
namespace {

constexpr std::string_view kSuffix = "_bench";

struct Benchmark {
  std::string_view name;
  std::string_view says;  // what it does, and about how long on a machine that is otherwise idle
};
constexpr std::array kBenchmarks{
    Benchmark{"card", "what slices do to programs on this machine's own card"},
    Benchmark{"limiter", "what the limiter costs a program's calls"},
    Benchmark{"share", "how exactly programs get the shares they were given"},
    Benchmark{"memory", "how exactly memory limits hold"},
    Benchmark{"start", "how long a slice takes to start"},
    Benchmark{"hypervisor", "what the hypervisor costs the machine"},
};

// Only the names that the command takes: a build folder holds benchmarks of single parts too.
bool is_offered(std::string_view name) {
  return std::ranges::find(kBenchmarks, name, &Benchmark::name) != kBenchmarks.end();
}

std::vector<std::string> bench_folders(const Context& context) {
  std::vector<std::string> folders;
  for (const char* folder : {"/../bench", "/../libexec/tensor-fusion/bench"})
    folders.push_back(std::filesystem::path(context.program_folder() + folder).lexically_normal().string());
  return folders;
}

struct Outcome {
  std::string name;
  int exit_code = 0;
  std::string last_line;
};

bool write_all(std::string_view text) {
  while (!text.empty()) {
    const ssize_t written = ::write(STDOUT_FILENO, text.data(), text.size());
    if (written < 0 && errno == EINTR) continue;
    if (written <= 0) return false;
    text.remove_prefix(static_cast<std::size_t>(written));
  }
  return true;
}

// Passes its output on and keeps the last line.
base::Result<Outcome> run_one(const Context& context, const std::string& name, const std::string& path) {
  std::string output;
  const auto ended = foster(path, [&](std::string_view text) {
    output += text;
    return context.json() || write_all(text);
  });
  if (!ended) return std::unexpected(ended.error());
  if (ended->told_to_end != 0) {
    ::signal(ended->told_to_end, SIG_DFL);
    ::raise(ended->told_to_end);
  }
  Outcome outcome{name, ended->exit_code, ""};
  for (const std::string_view line : base::split(output, '\n')) {
    if (line.starts_with("bench ")) outcome.last_line = line;
  }
  return outcome;
}

}  // namespace

int bench(const Context& context) {
  std::vector<std::pair<std::string, std::string>> known;  // name, path
  for (const std::string& folder : bench_folders(context)) {
    for (const std::string& file : system::list_directory(folder)) {
      if (!file.ends_with(kSuffix)) continue;
      const std::string path = fmt::format("{}/{}", folder, file);
      if (!is_offered(std::string_view(file).substr(0, file.size() - kSuffix.size()))) continue;
      if (::access(path.c_str(), X_OK) == 0) known.emplace_back(file.substr(0, file.size() - kSuffix.size()), path);
    }
  }
  if (known.empty()) {
    return context.fail(base::Error{
        base::ErrorCode::kNotFound,
        fmt::format("no benchmark is installed beside this program (looked in {}); build them with `./dev build` in "
                    "the sources, and install again with `cmake --install`",
                    fmt::join(bench_folders(context), " and "))});
  }
  if (context.invocation().has("list")) {
    base::Json names = base::Json::array();
    for (const auto& [name, path] : known) {
      names.push(name);
      if (!context.json()) context.print(name + "\n");
    }
    if (context.json()) context.print_json(base::Json::object({{"benchmarks", names}}));
    return kExitOk;
  }
  std::vector<std::string> wanted = context.invocation().arguments;
  if (wanted.empty()) wanted = {"card"};
  bool all_held = true;
  base::Json outcomes = base::Json::array();
  for (const std::string& name : wanted) {
    const auto found = std::ranges::find(known, name, &std::pair<std::string, std::string>::first);
    if (found == known.end()) {
      return context.fail(
          base::Error{base::ErrorCode::kNotFound,
                      fmt::format("the benchmark `{}` is not installed beside this program; build it with "
                                  "`./dev build` in the sources, and install again with `cmake --install`",
                                  name)});
    }
    if (name == "card") {
      if (const auto driver = check_driver(); !driver)
        return context.fail(
            base::Error{base::ErrorCode::kNoDevice,
                        fmt::format("there is no GPU to measure here: {}; `tensor-fusion doctor` says how to get one",
                                    driver.error())});
    }
    const std::string says(std::ranges::find(kBenchmarks, name, &Benchmark::name)->says);
    std::fprintf(stderr, "tensor-fusion: measures %s; this may take %s\n", says.c_str(),
                 name == "card" ? "a minute" : "some minutes");
    auto outcome = run_one(context, name, found->second);
    if (!outcome) return context.fail(outcome.error());
    all_held = all_held && outcome->exit_code == 0;
    outcomes.push(base::Json::object(
        {{"name", outcome->name}, {"exit_code", outcome->exit_code}, {"result", outcome->last_line}}));
  }
  if (context.json()) context.print_json(base::Json::object({{"benchmarks", outcomes}}));
  return all_held ? kExitOk : kExitProblem;
}

}  // namespace tensor_fusion::cli
