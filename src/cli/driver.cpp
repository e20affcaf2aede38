#include "cli/driver.h"

#include <dlfcn.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <string_view>

#include "base/text.h"
#include "contract/nvml.h"
#include "device/provider.h"
#include "system/clock.h"
#include "system/fd.h"
#include "view/table.h"

namespace tensor_fusion::cli {
namespace {

constexpr const char* kManagementLibrary = "libnvidia-ml.so.1";
constexpr std::size_t kMostSaid = 4096;
constexpr std::uint64_t kNsPerMs = 1'000'000;

int start_driver() {
  void* library = ::dlopen(kManagementLibrary, RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) {
    const char* why = ::dlerror();
    std::fprintf(stderr,
                 "NVIDIA's driver library cannot be opened (%s); install the driver, or put the simulated one on "
                 "LD_LIBRARY_PATH\n",
                 why != nullptr ? why : kManagementLibrary);
    return 1;
  }
  const auto init = reinterpret_cast<int (*)()>(::dlsym(library, "nvmlInit_v2"));
  if (init == nullptr) {
    std::fprintf(stderr, "%s is no NVML library: it has no nvmlInit_v2; install the driver again\n",
                 kManagementLibrary);
    return 1;
  }
  const int code = init();
  if (code == contract::nvml::kSuccess) return 0;
  const auto text = reinterpret_cast<const char* (*)(int)>(::dlsym(library, "nvmlErrorString"));
  std::fprintf(stderr, "the driver does not start (NVML: %s)\n", text != nullptr ? text(code) : "unknown error");
  return 1;
}

// The first line: what a library says of itself comes before what we make of it.
std::string first_line(std::string_view said) {
  constexpr std::string_view kOfTheSimulatedDriver = "simulated NVML: ";
  std::string_view line = base::trim(said.substr(0, said.find('\n')));
  if (line.starts_with(kOfTheSimulatedDriver)) line.remove_prefix(kOfTheSimulatedDriver.size());
  return base::printable(line);
}

}  // namespace

std::expected<void, std::string> check_driver(int deadline_ms) { return ask_apart(start_driver, deadline_ms); }

std::expected<void, std::string> check_provider(const std::string& library, int deadline_ms) {
  const auto load = [&] {
    const auto loaded = device::load_provider(library);
    if (!loaded) std::fprintf(stderr, "%s\n", loaded.error().message.c_str());
    return loaded ? 0 : 1;
  };
  return ask_apart(load, deadline_ms, {"the provider " + library, "ask its vendor", "ask its vendor"});
}

std::expected<void, std::string> ask_apart(const std::function<int()>& ask, int deadline_ms, const Asked& asked) {
  std::array<int, 2> ends{};
  if (::pipe2(ends.data(), O_CLOEXEC) != 0)
    return std::unexpected(fmt::format("cannot make a pipe: {}", std::strerror(errno)));
  const system::Fd reader(ends[0]);
  system::Fd writer(ends[1]);
  std::fflush(nullptr);
  const pid_t child = ::fork();
  if (child < 0) return std::unexpected(fmt::format("cannot start a process: {}", std::strerror(errno)));
  if (child == 0) {
    ::dup2(writer.get(), STDERR_FILENO);
    ::dup2(writer.get(), STDOUT_FILENO);
    const int code = ask();
    std::fflush(nullptr);
    ::_exit(code);
  }
  writer.reset();
  std::string said;
  const auto deadline_ns = system::monotonic_ns() + static_cast<std::uint64_t>(deadline_ms) * kNsPerMs;
  bool late = false;
  while (true) {
    const auto now_ns = system::monotonic_ns();
    pollfd readable{reader.get(), POLLIN, 0};
    const int ready =
        ::poll(&readable, 1, now_ns < deadline_ns ? static_cast<int>((deadline_ns - now_ns) / kNsPerMs) + 1 : 0);
    if (ready < 0 && errno == EINTR) continue;
    if (ready <= 0) {
      late = true;
      ::kill(child, SIGKILL);
      break;
    }
    std::array<char, 512> part{};
    const ssize_t got = ::read(reader.get(), part.data(), part.size());
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) break;
    said.append(part.data(), static_cast<std::size_t>(got));
    said.resize(std::min(said.size(), kMostSaid));
  }
  int status = 0;
  while (::waitpid(child, &status, 0) < 0 && errno == EINTR) {
  }
  if (late) {
    return std::unexpected(
        fmt::format("{} does not answer within {} s; {}", asked.name, deadline_ms / 1000, asked.hangs));
  }
  if (WIFSIGNALED(status)) {
    return std::unexpected(
        fmt::format("{} crashes when it is loaded (signal {}); {}", asked.name, WTERMSIG(status), asked.crashes));
  }
  if (WEXITSTATUS(status) == 0) return {};
  return std::unexpected(first_line(said));
}

}  // namespace tensor_fusion::cli
