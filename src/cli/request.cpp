#include "cli/request.h"

#include <fmt/format.h>
#include <signal.h>

#include <array>
#include <charconv>
#include <cstring>
#include <string_view>

#include "base/id.h"
#include "base/text.h"

namespace tensor_fusion::cli {
namespace {

using base::ErrorCode;
using base::Result;

struct SignalName {
  std::string_view name;
  int number;
};
constexpr std::array kSignals{
    SignalName{"TERM", SIGTERM}, SignalName{"KILL", SIGKILL}, SignalName{"INT", SIGINT},
    SignalName{"HUP", SIGHUP},   SignalName{"QUIT", SIGQUIT}, SignalName{"USR1", SIGUSR1},
    SignalName{"USR2", SIGUSR2}, SignalName{"STOP", SIGSTOP}, SignalName{"CONT", SIGCONT},
    SignalName{"ABRT", SIGABRT}, SignalName{"ALRM", SIGALRM}, SignalName{"WINCH", SIGWINCH},
};

template <typename T>
Result<std::optional<T>> read(const Invocation& invocation, std::string_view option,
                              Result<T> (*parser)(std::string_view)) {
  const auto text = invocation.value(option);
  if (!text) return std::nullopt;
  auto value = parser(*text);
  if (!value) return base::fail(ErrorCode::kUsage, fmt::format("--{}: {}", option, value.error().message));
  return *value;
}

// No program can open a GPU with less: its context alone takes 8 MiB on the smallest simulated card and some hundred
// MiB on a real one. What is below is a unit left out.
constexpr std::uint64_t kLeastMemory = 16u << 20;
constexpr std::uint64_t kMostPlausibleGi = 1024;

Result<base::Memory> memory_limit_of(std::string_view text) {
  auto memory = base::parse_memory(text);
  if (!memory) return memory;
  const auto* bytes = std::get_if<base::Bytes>(&*memory);
  if (bytes == nullptr || bytes->value >= kLeastMemory) return memory;
  const std::string_view number = base::trim(text);
  const bool bare = number.find_first_not_of("0123456789.") == std::string_view::npos;
  return base::fail(ErrorCode::kUsage,
                    fmt::format("`{}` is only {}{}, too little for a program to open a GPU (the least is {}); {}", text,
                                base::to_text(*bytes),
                                bytes->value == 1     ? " byte"
                                : bytes->value < 1024 ? " bytes"
                                                      : "",
                                base::to_text(base::Bytes{kLeastMemory}),
                                bare && bytes->value <= kMostPlausibleGi ? fmt::format("did you mean `{}Gi`?", number)
                                                                         : "write it like `1Gi`"));
}

}  // namespace

Result<void> check_order(const std::optional<base::Compute>& request, const std::optional<base::Compute>& limit) {
  if (!request || !limit || request->index() != limit->index()) return {};
  if (*request > *limit) {
    return base::fail(
        ErrorCode::kUsage,
        fmt::format("--compute-request {} is more than --compute {}; a slice cannot be certain of more than it may use",
                    base::to_text(*request), base::to_text(*limit)));
  }
  return {};
}

Result<node::hypervisor::RunRequest> run_request_of(const Invocation& invocation) {
  node::hypervisor::RunRequest request;
  auto vram = read(invocation, "vram", memory_limit_of);
  if (!vram) return std::unexpected(vram.error());
  auto compute = read(invocation, "compute", base::parse_compute);
  if (!compute) return std::unexpected(compute.error());
  auto floor = read(invocation, "compute-request", base::parse_compute_request);
  if (!floor) return std::unexpected(floor.error());
  if (auto order = check_order(*floor, *compute); !order) return std::unexpected(order.error());
  request.vram = *vram;
  request.compute = *compute;
  request.compute_request = *floor;
  request.gpu = base::join(invocation.values("gpu"), ",");
  for (const std::string& given : invocation.values("gpu"))
    for (const std::string_view one : base::split(given, ','))
      if (base::trim(one).empty())
        return base::fail(ErrorCode::kUsage,
                          fmt::format("--gpu: '{}' leaves a GPU out; name each by its index or UUID", given));
  request.qos = invocation.value("qos").value_or("");
  if (const auto gpus = invocation.value("gpus")) {
    auto count = count_of("--gpus", *gpus, 1, kMostGpus);
    if (!count) return std::unexpected(count.error());
    request.gpus = *count;
  } else {
    const auto named = base::split(request.gpu, ',').size();
    request.gpus = static_cast<unsigned>(named);
  }
  if (const auto name = invocation.value("name")) {
    auto checked = base::check_name(*name);
    if (!checked) return base::fail(ErrorCode::kUsage, fmt::format("--name: {}", checked.error().message));
    request.name = *checked;
  }
  request.command = base::join(invocation.arguments, " ");
  request.detach = invocation.has("detach");
  request.allow_unlimited = invocation.has("allow-unlimited");
  return request;
}

Result<node::hypervisor::LimitRequest> limit_request_of(const Invocation& invocation) {
  node::hypervisor::LimitRequest request;
  request.tenant = invocation.arguments.front();
  auto vram = read(invocation, "vram", memory_limit_of);
  if (!vram) return std::unexpected(vram.error());
  auto compute = read(invocation, "compute", base::parse_compute);
  if (!compute) return std::unexpected(compute.error());
  auto floor = read(invocation, "compute-request", base::parse_compute_request);
  if (!floor) return std::unexpected(floor.error());
  if (auto order = check_order(*floor, *compute); !order) return std::unexpected(order.error());
  request.vram = *vram;
  request.compute = *compute;
  request.compute_request = *floor;
  if (!request.vram && !request.compute && !request.compute_request) {
    return base::fail(ErrorCode::kUsage, "nothing to change: give --vram, --compute or --compute-request");
  }
  return request;
}

Result<int> signal_of(const std::string& text) {
  int number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error == std::errc() && end == text.data() + text.size()) {
    if (number > 0 && number < NSIG) return number;
    return base::fail(ErrorCode::kUsage,
                      fmt::format("there is no signal {}; signals go from 1 to {}", number, NSIG - 1));
  }
  std::string_view name = text;
  if (base::lower(name.substr(0, 3)) == "sig") name.remove_prefix(3);
  std::vector<std::string_view> names;
  for (const SignalName& row : kSignals) {
    if (base::lower(row.name) == base::lower(name)) return row.number;
    names.push_back(row.name);
  }
  return base::fail(ErrorCode::kUsage,
                    fmt::format("there is no signal `{}`{}; write a name such as {}, or a number", text,
                                suggestion(name, names), fmt::join(std::span(names).first(3), ", ")));
}

Result<unsigned> count_of(const std::string& option, const std::string& text, unsigned least, unsigned most) {
  unsigned count = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), count);
  if (error != std::errc() || end != text.data() + text.size() || count < least || count > most) {
    return base::fail(ErrorCode::kUsage,
                      fmt::format("{} must be a whole number from {} to {}, not `{}`", option, least, most, text));
  }
  return count;
}

}  // namespace tensor_fusion::cli
