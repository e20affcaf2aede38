#include "cli/show.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <signal.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <functional>
#include <memory>

#include "base/text.h"
#include "cli/request.h"
#include "node/hypervisor/event_ring.h"
#include "node/hypervisor/log_shelf.h"
#include "node/hypervisor/state_directory.h"
#include "system/clock.h"
#include "system/fd.h"
#include "tui/top.h"
#include "view/device.h"
#include "view/event.h"
#include "view/overview.h"
#include "view/slice.h"

namespace tensor_fusion::cli {
namespace {

using base::ErrorCode;
namespace hypervisor = node::hypervisor;

constexpr unsigned kMostLines = 1'000'000;
constexpr std::uint64_t kDefaultInterval_ms = 1000;
constexpr double kShortestInterval_s = 0.2;
constexpr double kLongestInterval_s = 60;
constexpr int kLogPollMs = 500;
constexpr std::uint64_t kFirstDevicesMs = 20'000;  // a real card without a persistence daemon takes seconds
constexpr int kFirstDevicesPollMs = 20;

// Without a hypervisor there are no slices: that is an answer, not an error.
base::Result<view::SliceList> read_slices(const Context& context) {
  auto client = context.connect();
  if (!client) {
    if (client.error().code == ErrorCode::kUnavailable) return view::SliceList{};
    return std::unexpected(client.error());
  }
  auto reply = client->list();
  if (!reply) return std::unexpected(reply.error());
  return view::slice_list_from(*reply);
}

// A hypervisor that has just been started has not seen its devices yet: "none" would be wrong.
base::Result<std::vector<view::Device>> read_devices(hypervisor::Client& client) {
  const std::uint64_t begin_ms = system::wall_ms();
  while (true) {
    auto reply = client.devices();
    if (!reply) return std::unexpected(reply.error());
    auto devices = view::devices_from(*reply);
    const base::Json& provider = (*reply)["provider"];
    const bool settled = (*reply)["known"].as_bool(true) || provider["restarts"].as_uint() > 0;
    if (devices.empty() && settled && !provider["trouble"].as_string().empty())
      return base::fail(ErrorCode::kNoDevice, "there is no GPU to share here: " + provider["trouble"].as_string() +
                                                  "; `tensor-fusion doctor` says how to get one");
    if (!devices.empty() || settled || system::wall_ms() - begin_ms > kFirstDevicesMs) return devices;
    ::poll(nullptr, 0, kFirstDevicesPollMs);
  }
}

base::Result<view::Overview> take_overview(hypervisor::Client& client) {
  view::Overview overview;
  auto devices = read_devices(client);
  if (!devices) return std::unexpected(devices.error());
  auto list = client.list();
  if (!list) return std::unexpected(list.error());
  overview.devices = std::move(*devices);
  overview.slices = view::slice_list_from(*list);
  overview.time_ms = system::wall_ms();
  return overview;
}

base::Error unknown_slice(const std::string& name, const view::SliceList& list) {
  std::vector<std::string_view> names;
  for (const view::Slice& slice : list.slices) names.push_back(slice.name);
  return {ErrorCode::kNotFound,
          fmt::format("there is no slice `{}`{}; `tensor-fusion ps` lists them", name, suggestion(name, names))};
}

// The last `lines` lines of a text.
std::string_view tail_of(std::string_view text, std::size_t lines) {
  std::size_t at = text.size();
  if (at > 0 && text[at - 1] == '\n') --at;
  while (lines-- > 0) {
    const auto newline = text.rfind('\n', at == 0 ? 0 : at - 1);
    if (newline == std::string_view::npos || at == 0) return text;
    at = newline;
  }
  return text.substr(at + 1);
}

// The hypervisor knows the slices that run; what others have left lies there without one too.
base::Result<std::string> find_log(const Context& context, const std::string& name) {
  auto client = context.connect();
  if (!client && client.error().code != ErrorCode::kUnavailable) return std::unexpected(client.error());
  const auto has_ended = [&](const base::Json& reply) {
    const auto events = view::events_from(reply);
    return std::ranges::find(events, name, &view::Event::slice) != events.end();
  };
  const auto nothing_kept = [&] {
    return base::fail(
        ErrorCode::kNotFound,
        fmt::format("the slice `{}` has ended, and no output of it is kept: only `run --detach` keeps it, "
                    "else a program prints where it was started",
                    name));
  };
  if (!client) {
    if (const auto kept = hypervisor::kept_log(context.state(), name, ::geteuid())) return *kept;
    if (has_ended(hypervisor::kept_events(context.state()))) return nothing_kept();
    return base::fail(
        ErrorCode::kNotFound,
        fmt::format("there is no output of a slice `{}`: no hypervisor runs here ({})", name, context.state()));
  }
  auto reply = client->logs(name);
  if (reply) return (*reply)["path"].as_string();
  if (reply.error().code != ErrorCode::kNotFound) return std::unexpected(reply.error());
  if (const auto events = client->events(); events && has_ended(*events)) return nothing_kept();
  return std::unexpected(unknown_slice(name, read_slices(context).value_or(view::SliceList{})));
}

bool is_running(const Context& context, const std::string& name) {
  const auto list = read_slices(context);
  return list && std::ranges::any_of(list->slices,
                                     [&](const view::Slice& slice) { return slice.name == name || slice.id == name; });
}

// Prints what is appended until the slice has gone and its output has been read to the end.
int follow(const Context& context, const std::string& name, int file,
           const std::function<void(std::string_view)>& show) {
  while (true) {
    const bool running = is_running(context, name);  // asked first: what it wrote last is then still read
    const auto more = hypervisor::read_kept(file);
    if (!more) return context.fail(more.error());
    show(*more);
    if (!running) return kExitOk;
    ::poll(nullptr, 0, kLogPollMs);
  }
}

}  // namespace

int show_slices(const Context& context) {
  auto list = read_slices(context);
  if (!list) return context.fail(list.error());
  const bool runs = !list->slices.empty() || !list->strangers.empty() || context.connect_running();
  const auto& names = context.invocation().arguments;
  if (!names.empty()) {
    view::SliceList chosen;
    for (const std::string& name : names) {
      const auto found = std::ranges::find_if(
          list->slices, [&](const view::Slice& slice) { return slice.name == name || slice.id == name; });
      if (found == list->slices.end()) return context.fail(unknown_slice(name, *list));
      chosen.slices.push_back(*found);
    }
    *list = std::move(chosen);
  }
  if (context.json()) {
    context.print_json(view::to_json(*list));
  } else if (context.invocation().has("names")) {
    for (const view::Slice& slice : list->slices) context.print(slice.name + "\n");
  } else if (!runs) {
    context.print(fmt::format("no slices, and no hypervisor runs on {}; `tensor-fusion run -- PROGRAM` starts both\n",
                              base::printable(context.state())));
  } else {
    context.print(view::to_table(*list, system::wall_ms(), context.style()));
  }
  return kExitOk;
}

int show_top(const Context& context) {
  std::uint64_t interval_ms = kDefaultInterval_ms;
  if (const auto text = context.invocation().value("interval")) {
    double seconds = 0;
    const auto [end, error] = std::from_chars(text->data(), text->data() + text->size(), seconds);
    if (error != std::errc() || end != text->data() + text->size() ||
        !(seconds >= kShortestInterval_s && seconds <= kLongestInterval_s)) {
      return context.fail(kExitUsage, fmt::format("--interval must be a number of seconds from {} to {}, not `{}`",
                                                  kShortestInterval_s, kLongestInterval_s, *text));
    }
    interval_ms = static_cast<std::uint64_t>(std::lround(seconds * 1000));
  }
  auto client = context.ensure_running();
  if (!client) return context.fail(client.error());
  const bool once = context.invocation().has("once") || context.json();
  if (once) {
    auto overview = take_overview(*client);
    if (!overview) return context.fail(overview.error());
    if (context.json()) {
      context.print_json(view::to_json(*overview));
    } else {
      context.print(view::to_text(*overview, context.style()));
    }
    return kExitOk;
  }
  if (::isatty(STDIN_FILENO) == 0 || ::isatty(STDOUT_FILENO) == 0) {
    return context.fail(kExitUsage, "`top` needs a terminal; `top --once` prints the table once");
  }
  // A hypervisor may be stopped, killed or replaced while somebody looks.
  const auto shared = std::make_shared<hypervisor::Client>(std::move(*client));
  const auto take = [shared, &context]() -> base::Result<view::Overview> {
    auto overview = take_overview(*shared);
    if (overview) return overview;
    auto another = context.connect_running();
    if (!another)
      return base::fail(overview.error().code, overview.error().message + "; this goes on when one runs again");
    *shared = std::move(*another);
    return take_overview(*shared);
  };
  auto watched = tui::watch(take, interval_ms);
  if (!watched) return context.fail(watched.error());
  if (*watched != 0) {  // ends as it would have, now that the terminal is as it was
    ::signal(*watched, SIG_DFL);
    ::raise(*watched);
  }
  std::fflush(nullptr);
  ::_exit(kExitOk);  // what was asked last may still be under way in a thread
}

int show_devices(const Context& context) {
  auto client = context.ensure_running();
  if (!client) return context.fail(client.error());
  auto devices = read_devices(*client);
  if (!devices) return context.fail(devices.error());
  if (context.json()) {
    context.print_json(view::to_json(*devices));
  } else {
    context.print(view::to_table(*devices, context.style()));
  }
  return kExitOk;
}

int show_events(const Context& context) {
  auto client = context.connect();
  std::vector<view::Event> events;
  if (client) {
    auto reply = client->events();
    if (!reply) return context.fail(reply.error());
    events = view::events_from(*reply);
  } else if (client.error().code != ErrorCode::kUnavailable) {
    return context.fail(client.error());
  } else {
    events = view::events_from(hypervisor::kept_events(context.state()));  // what the last hypervisor has left
  }
  const auto name = context.invocation().value("slice");
  if (name && std::ranges::find(events, *name, &view::Event::slice) == events.end() && !is_running(context, *name)) {
    std::vector<std::string_view> names;
    for (const view::Event& event : events) names.push_back(event.slice);
    return context.fail(static_cast<int>(ErrorCode::kNotFound),
                        fmt::format("there is no slice `{}`, nor any event of one{}; `tensor-fusion events` lists all",
                                    *name, suggestion(*name, names)));
  }
  if (name) {
    std::erase_if(events, [&](const view::Event& event) { return event.slice != *name; });
  }
  if (const auto tail = context.invocation().value("tail")) {
    auto count = count_of("--tail", *tail, 1, kMostLines);
    if (!count) return context.fail(count.error());
    if (events.size() > *count) events.erase(events.begin(), events.end() - static_cast<std::ptrdiff_t>(*count));
  }
  if (context.json()) {
    context.print_json(view::to_json(events));
  } else if (name && events.empty()) {
    context.print(
        fmt::format("no events of the slice `{}`; `tensor-fusion events` lists all\n", base::printable(*name)));
  } else {
    context.print(view::to_table(events, context.style()));
  }
  return kExitOk;
}

int show_logs(const Context& context) {
  const std::string& name = context.invocation().arguments.front();
  std::optional<unsigned> lines;
  if (const auto tail = context.invocation().value("tail")) {
    auto count = count_of("--tail", *tail, 1, kMostLines);
    if (!count) return context.fail(count.error());
    lines = *count;
  }
  if (context.json() && context.invocation().has("follow"))
    return context.fail(kExitUsage, "`logs --follow` has no end and so is no JSON; leave out one of the two");
  const auto found = find_log(context, name);
  if (!found) return context.fail(found.error());
  const std::string& path = *found;
  const system::Fd file(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (!file) {
    if (errno == ENOENT)
      return context.fail(static_cast<int>(ErrorCode::kNotFound),
                          fmt::format("no output of `{}` is kept: only `run --detach` keeps it, else a program prints "
                                      "where it was started",
                                      name));
    return context.fail(system::error_of("read", path, errno));
  }
  const auto text = hypervisor::read_kept(file.get());
  if (!text) return context.fail(text.error());
  // Colours and the like are the user's own business, and nobody's else.
  struct stat owner{};
  const bool foreign = ::isatty(STDOUT_FILENO) != 0 && ::fstat(file.get(), &owner) == 0 && owner.st_uid != ::geteuid();
  const auto show = [&](std::string_view part) {
    context.print(foreign ? base::printable(part, base::Lines::kMany) : std::string(part));
  };
  std::string_view shown = *text;
  if (lines) shown = tail_of(shown, *lines);
  if (context.json()) {
    context.print_json(base::Json::object({{"name", name}, {"path", path}, {"output", shown}}));
    return kExitOk;
  }
  show(shown);
  if (!context.invocation().has("follow")) return kExitOk;
  return follow(context, name, file.get(), show);
}

}  // namespace tensor_fusion::cli
