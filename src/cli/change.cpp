#include "cli/change.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <poll.h>
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <optional>
#include <set>
#include <vector>

#include "base/text.h"
#include "cli/request.h"
#include "system/clock.h"
#include "system/process.h"
#include "view/slice.h"

namespace tensor_fusion::cli {
namespace {

std::string no_slice(const std::string& name, const view::SliceList& list) {
  std::vector<std::string_view> names;
  for (const view::Slice& slice : list.slices) names.push_back(slice.name);
  return fmt::format("there is no slice `{}`{}; `tensor-fusion ps` lists them", name, suggestion(name, names));
}

// The hypervisor knows the name or not; the nearest one is ours to find.
int fail_with_suggestion(const Context& context, node::hypervisor::Client& client, const std::string& name,
                         base::Error error) {
  if (error.code == base::ErrorCode::kNotFound) {
    const auto reply = client.list();
    error.message = no_slice(name, reply ? view::slice_list_from(*reply) : view::SliceList{});
  }
  return context.fail(error);
}

base::Result<node::hypervisor::Client> connect_for(const Context& context, const std::string& name) {
  auto client = context.connect();
  if (!client && client.error().code == base::ErrorCode::kUnavailable) {
    return base::fail(base::ErrorCode::kNotFound,
                      fmt::format("there is no slice `{}`: no hypervisor runs here ({})", name, context.state()));
  }
  return client;
}

// What a slice may be certain of, changed alone, is held against the limit that it has; speeds only the hypervisor can.
base::Result<void> check_with_present(node::hypervisor::Client& client, const node::hypervisor::LimitRequest& request) {
  if (!request.compute_request || request.compute) return {};
  const auto* part = std::get_if<base::Percent>(&*request.compute_request);
  const auto reply = client.list();
  if (part == nullptr || !reply) return {};
  for (const view::Slice& slice : view::slice_list_from(*reply).slices) {
    if (slice.name != request.tenant && slice.id != request.tenant) continue;
    for (const view::SliceDevice& device : slice.devices) {
      auto order = check_order(request.compute_request, base::Percent{device.limit_share});
      if (!order) return base::fail(order.error().code, order.error().message + "; give --compute too");
    }
  }
  return {};
}

constexpr std::uint64_t kEndNs = 2'000'000'000;  // a program that ends in order may need it

constexpr std::uint64_t kKnownToLiveNs = 200'000'000;   // at least so long until that is believed
constexpr std::uint64_t kTakenAwayNs = 10'000'000'000;  // a slice of whom nobody is known to live any more
constexpr std::uint64_t kAskMs = 500;                   // who does not answer is told of after a second
constexpr useconds_t kAgainUs = 20'000;

struct Signalled {
  std::string name;
  std::string id;       // empty: of a hypervisor that does not say it
  bool spared = false;  // some were left alone, which has been said
  std::vector<pid_t> alive;
  std::vector<system::Fd> processes;  // of those in `alive`
};

// A signal that is meant to end a program, unless it asks for it only to do something else.
bool is_to_end(int number) { return number == SIGTERM || number == SIGKILL || number == SIGINT || number == SIGQUIT; }

// Each slice once, though given twice, or by its name and its id. Who mistypes one of several ends none of them.
base::Result<std::vector<std::string>> each_once(const Context& context, const std::vector<std::string>& words) {
  if (words.size() < 2) return words;
  auto client = connect_for(context, words.front());
  if (!client) return std::unexpected(client.error());
  const auto reply = client->list();
  if (!reply) return std::unexpected(reply.error());
  const auto list = view::slice_list_from(*reply);
  std::set<std::string> seen;
  std::vector<std::string> once;
  for (const std::string& word : words) {
    const auto named = std::ranges::find_if(
        list.slices, [&](const view::Slice& slice) { return slice.name == word || slice.id == word; });
    if (named == list.slices.end())
      return base::fail(base::ErrorCode::kNotFound, no_slice(word, list) + "; nothing was signalled");
    if (seen.insert(named->id).second) once.push_back(word);
  }
  return once;
}

Signalled signalled_by(const node::hypervisor::Client& client, const base::Json& reply, std::string name) {
  Signalled slice{.name = std::move(name),
                  .id = reply["id"].as_string(),
                  .spared = !reply["notices"].items().empty(),
                  .alive = {},
                  .processes = {}};
  if (client.pid() == 0) return slice;  // it counts pids that are not ours
  for (const base::Json& item : reply["pids"].items()) {
    const auto pid = static_cast<pid_t>(item.as_int());
    auto process = system::open_pidfd(pid);
    if (!process) continue;
    slice.alive.push_back(pid);
    slice.processes.push_back(*std::move(process));
  }
  return slice;
}

void await_end(Signalled& slice, std::uint64_t end_ns) {
  for (std::size_t i = 0; i < slice.alive.size();) {
    const std::uint64_t now = system::monotonic_ns();
    pollfd process{slice.processes[i].get(), POLLIN, 0};
    const int ready = ::poll(&process, 1, now < end_ns ? static_cast<int>((end_ns - now) / 1'000'000 + 1) : 0);
    if (ready < 0 && errno == EINTR) continue;
    if (ready == 0) {
      ++i;
      continue;
    }
    const auto at = static_cast<std::ptrdiff_t>(i);
    slice.alive.erase(slice.alive.begin() + at);
    slice.processes.erase(slice.processes.begin() + at);
  }
}

// Its processes have ended: now its name and its share are to be free, too. Nothing where they are; else who lives.
base::Result<std::optional<std::vector<pid_t>>> await_taken_away(const Context& context, const Signalled& slice,
                                                                 std::uint64_t end_ns) {
  const std::uint64_t begin_ns = system::monotonic_ns();
  while (true) {
    auto client = connect_for(context, slice.name);
    if (!client && client.error().code == base::ErrorCode::kNotFound) return std::nullopt;  // nobody holds anything
    auto said = client ? client->await_end(slice.id, kAskMs) : std::unexpected(client.error());
    const std::uint64_t now = system::monotonic_ns();
    if (!said && (said.error().code != base::ErrorCode::kUnavailable || now >= begin_ns + kTakenAwayNs))
      return std::unexpected(said.error());
    if (!said) {  // another comes in its place, and finds the slice if it is there
      ::usleep(kAgainUs);
      continue;
    }
    if ((*said)["over"].as_bool()) return std::nullopt;
    std::vector<pid_t> alive;
    for (const base::Json& pid : (*said)["pids"].items()) alive.push_back(static_cast<pid_t>(pid.as_int()));
    const std::uint64_t until_ns =
        alive.empty() ? begin_ns + kTakenAwayNs : std::max(end_ns, begin_ns + kKnownToLiveNs);
    if (now >= until_ns) return alive;
  }
}

std::string still_there(const Signalled& slice) {
  return fmt::format(
      "the slice `{0}` is not over yet, and its name and its share are not free; `tensor-fusion ps {0}` "
      "shows it",
      slice.name);
}

std::string still_running(const Signalled& slice, int number) {
  const bool one = slice.alive.size() == 1;
  return fmt::format(
      "of the slice `{}` {} still run{} after {} s: {}{}", slice.name,
      one ? "one process" : fmt::format("{} processes", slice.alive.size()), one ? "s" : "", kEndNs / 1'000'000'000,
      fmt::join(slice.alive, ", "),
      slice.spared ? ""
      : number == SIGKILL
          ? "; the kernel has not let go of it yet"
          : fmt::format("; `tensor-fusion kill -s KILL {}` ends what does not end by itself", slice.name));
}

}  // namespace

int change_limit(const Context& context) {
  auto request = limit_request_of(context.invocation());
  if (!request) return context.fail(request.error());
  auto client = connect_for(context, request->tenant);
  if (!client) return context.fail(client.error());
  if (auto order = check_with_present(*client, *request); !order) return context.fail(order.error());
  auto reply = client->limit(*request);
  if (!reply) return fail_with_suggestion(context, *client, request->tenant, reply.error());
  for (const base::Json& sentence : (*reply)["notices"].items())
    std::fprintf(stderr, "tensor-fusion: %s\n", base::printable(sentence.as_string()).c_str());
  auto list = client->list();
  if (!list) return context.fail(list.error());
  auto slices = view::slice_list_from(*list);
  std::erase_if(slices.slices,
                [&](const view::Slice& slice) { return slice.name != request->tenant && slice.id != request->tenant; });
  slices.strangers.clear();
  if (context.json()) {
    context.print_json(view::to_json(slices));
    return kExitOk;
  }
  for (const view::Slice& slice : slices.slices) {
    for (const view::SliceDevice& device : slice.devices) {
      context.print(fmt::format("{}: GPU {}: compute {}, memory {}\n", slice.name, device.index,
                                view::compute_text(device),
                                view::memory_text(device.memory_used_bytes, device.memory_limit_bytes)));
    }
  }
  return kExitOk;
}

int kill_slices(const Context& context) {
  int signal_number = SIGTERM;
  if (const auto text = context.invocation().value("signal")) {
    auto number = signal_of(*text);
    if (!number) return context.fail(number.error());
    signal_number = *number;
  }
  int status = kExitOk;
  std::vector<Signalled> slices;
  const auto names = each_once(context, context.invocation().arguments);
  if (!names) return context.fail(names.error());
  for (const std::string& name : *names) {
    auto client = connect_for(context, name);
    if (!client) return context.fail(client.error());
    auto reply = client->kill(name, signal_number);
    if (!reply) {
      status = fail_with_suggestion(context, *client, name, reply.error());
      if (reply.error().code == base::ErrorCode::kUnavailable) return status;
      continue;
    }
    for (const base::Json& sentence : (*reply)["notices"].items())
      std::fprintf(stderr, "tensor-fusion: %s\n", base::printable(sentence.as_string()).c_str());
    slices.push_back(signalled_by(*client, *reply, name));
  }
  base::Json killed = base::Json::array();
  const std::uint64_t end_ns = system::monotonic_ns() + (is_to_end(signal_number) ? kEndNs : 0);
  for (Signalled& slice : slices) {
    base::Json alive = base::Json::array();
    if (is_to_end(signal_number)) {
      await_end(slice, end_ns);
      base::Result<std::optional<std::vector<pid_t>>> left;
      if (slice.alive.empty() && !slice.id.empty()) left = await_taken_away(context, slice, end_ns);
      if (!left) {
        status = context.fail(left.error());
      } else if (*left) {
        slice.alive = **std::move(left);
        if (slice.alive.empty()) status = context.fail(kExitProblem, still_there(slice));
      }
      for (const pid_t pid : slice.alive) alive.push(pid);
      if (!slice.alive.empty()) status = context.fail(kExitProblem, still_running(slice, signal_number));
    }
    killed.push(base::Json::object({{"name", slice.name}, {"signal", signal_number}, {"still_running", alive}}));
  }
  if (context.json()) context.print_json(base::Json::object({{"signalled", killed}}));
  return status;
}

}  // namespace tensor_fusion::cli
