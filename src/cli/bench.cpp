#include "cli/bench.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdio>
#include <cstring>

#include "base/text.h"
#include "system/fd.h"
#include "system/file.h"

namespace tensor_fusion::cli {
namespace {

constexpr std::string_view kSuffix = "_bench";

struct Benchmark {
  std::string_view name;
  std::string_view says;  // what it does, and about how long on a machine that is otherwise idle
};
constexpr std::array kBenchmarks{
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
  return {context.program_folder() + "/../bench", context.program_folder() + "/../libexec/tensor-fusion/bench"};
}

struct Outcome {
  std::string name;
  int exit_code = 0;
  std::string last_line;
};

// Passes its output on and keeps the last line.
base::Result<Outcome> run_one(const Context& context, const std::string& name, const std::string& path) {
  std::array<int, 2> ends{};
  if (::pipe2(ends.data(), O_CLOEXEC) != 0)
    return base::fail(base::ErrorCode::kInternal, fmt::format("cannot make a pipe: {}", std::strerror(errno)));
  const system::Fd reader(ends[0]);
  system::Fd writer(ends[1]);
  const pid_t child = ::fork();
  if (child < 0)
    return base::fail(base::ErrorCode::kInternal, fmt::format("cannot start a process: {}", std::strerror(errno)));
  if (child == 0) {
    ::prctl(PR_SET_PDEATHSIG, SIGTERM);  // nobody would read what it measures
    ::dup2(writer.get(), STDOUT_FILENO);
    ::execl(path.c_str(), path.c_str(), nullptr);
    ::_exit(kExitNotExecutable);
  }
  writer.reset();
  std::string output;
  std::array<char, 4096> part{};
  for (ssize_t got = 0; (got = ::read(reader.get(), part.data(), part.size())) > 0 || (got < 0 && errno == EINTR);) {
    if (got <= 0) continue;
    const std::string_view text(part.data(), static_cast<std::size_t>(got));
    if (!context.json()) context.print(text);
    output += text;
  }
  int status = 0;
  while (::waitpid(child, &status, 0) < 0 && errno == EINTR) {
  }
  Outcome outcome{name, WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status), ""};
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
  if (wanted.empty()) wanted = {"limiter", "share", "memory"};
  bool all_held = true;
  base::Json outcomes = base::Json::array();
  for (const std::string& name : wanted) {
    const auto found = std::ranges::find(known, name, &std::pair<std::string, std::string>::first);
    if (found == known.end()) {
      return context.fail(base::Error{base::ErrorCode::kNotFound,
                                      fmt::format("the benchmark `{}` is not installed beside this program; build it, "
                                                  "or install tensor-fusion's benchmarks",
                                                  name)});
    }
    const std::string says(std::ranges::find(kBenchmarks, name, &Benchmark::name)->says);
    std::fprintf(stderr, "tensor-fusion: measures %s; this may take some minutes\n", says.c_str());
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
