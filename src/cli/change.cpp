#include "cli/change.h"

#include <fmt/format.h>
#include <signal.h>

#include <cstdio>

#include "cli/request.h"
#include "view/slice.h"

namespace tensor_fusion::cli {
namespace {

// The hypervisor knows the name or not; the nearest one is ours to find.
int fail_with_suggestion(const Context& context, node::hypervisor::Client& client, const std::string& name,
                         base::Error error) {
  if (error.code == base::ErrorCode::kNotFound) {
    const auto reply = client.list();
    const auto list = reply ? view::slice_list_from(*reply) : view::SliceList{};
    std::vector<std::string_view> names;
    for (const view::Slice& slice : list.slices) names.push_back(slice.name);
    error.message =
        fmt::format("there is no slice `{}`{}; `tensor-fusion ps` lists them", name, suggestion(name, names));
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

}  // namespace

int change_limit(const Context& context) {
  auto request = limit_request_of(context.invocation());
  if (!request) return context.fail(request.error());
  auto client = connect_for(context, request->tenant);
  if (!client) return context.fail(client.error());
  auto reply = client->limit(*request);
  if (!reply) return fail_with_suggestion(context, *client, request->tenant, reply.error());
  for (const base::Json& sentence : (*reply)["notices"].items())
    std::fprintf(stderr, "tensor-fusion: %s\n", view::printable(sentence.as_string()).c_str());
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
  base::Json killed = base::Json::array();
  for (const std::string& name : context.invocation().arguments) {
    auto client = connect_for(context, name);
    if (!client) return context.fail(client.error());
    auto reply = client->kill(name, signal_number);
    if (!reply) {
      status = fail_with_suggestion(context, *client, name, reply.error());
      continue;
    }
    killed.push(base::Json::object({{"name", name}, {"signal", signal_number}}));
  }
  if (context.json()) context.print_json(base::Json::object({{"signalled", killed}}));
  return status;
}

}  // namespace tensor_fusion::cli
