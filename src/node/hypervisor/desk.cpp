#include "node/hypervisor/desk.h"

#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <utility>

#include "base/id.h"
#include "base/text.h"
#include "node/hypervisor/membership.h"
#include "node/hypervisor/report.h"
#include "system/clock.h"
#include "system/process.h"

namespace tensor_fusion::node::hypervisor {
namespace {

using base::ErrorCode;
using base::Json;

constexpr std::uint64_t kListNs = 3'000'000'000;  // a list without what the driver shows is better than none

Json ok() { return Json::object({{"ok", true}}); }

// A new limit leaves alone what a slice is certain of: that was "--compute" too where nothing else was said.
void keep_request(TenantRecord& record, const base::Compute& limit, const std::vector<pool::PlaceDevice>& places,
                  Json& notices) {
  auto& kept = record.request.compute_request;
  if (!kept) kept = record.request.compute ? *record.request.compute : base::Compute(base::Percent{0});
  pool::PlaceRequest only_limit;
  only_limit.compute = limit;
  for (const TenantDeviceRecord& device : record.devices) {
    const auto place = std::ranges::find(places, device.uuid, &pool::PlaceDevice::uuid);
    if (place == places.end()) continue;
    const auto terms = pool::terms_on(*place, only_limit, 0);
    if (!terms || device.request_share <= terms->limit_share) continue;
    notices.push("it was certain of " + base::to_text(*kept) + ", more than the new limit: it is certain of " +
                 base::to_text(limit) + " now");
    kept = limit;
    return;
  }
}

// Who connected, if it is still there: its number may be another's by now.
std::optional<system::ProcessStat> caller(const system::Peer& peer) {
  const auto stat = peer.start_ticks != 0 ? system::process_stat(peer.pid) : std::nullopt;
  return stat && stat->start_ticks == peer.start_ticks ? stat : std::nullopt;
}

base::Error runs_in(const Tenant& inside, pid_t pid) {
  return {ErrorCode::kUsage, "process " + std::to_string(pid) + " already runs in the slice `" + inside.record.name +
                                 "`; start the program directly"};
}

base::Error streams_already() { return {ErrorCode::kUsage, "this connection streams already"}; }

// Of each device: "20%-60% and 8Gi", or "40% and 8Gi" where all it may use is certain.
std::string limits_text(const TenantRecord& record) {
  std::vector<std::string> all;
  for (const TenantDeviceRecord& device : record.devices) {
    std::string text = base::to_text(base::Percent{device.request_share});
    if (device.request_share != device.limit_share) text += "-" + base::to_text(base::Percent{device.limit_share});
    text += " and " + base::to_text(base::Bytes{device.memory_limit_bytes});
    if (std::ranges::find(all, text) == all.end()) all.push_back(text);
  }
  return base::join(all, ", ");
}

}  // namespace

const Desk::Row Desk::kRows[] = {
    {"run", &Desk::run},
    {"started", &Desk::started},
    {"list", &Desk::list, kListNs},
    {"devices", &Desk::list_devices, kListNs},
    {"top", &Desk::top},
    {"limit", &Desk::limit, kInventoryNs},
    {"kill", &Desk::kill},
    {"await_end", &Desk::await_end},
    {"logs", &Desk::logs},
    {"doctor", &Desk::doctor},
    {"events", &Desk::list_events},
    {"version", &Desk::version},
    {"stop", &Desk::stop},
};

Desk::Desk(Parts parts)
    : parts_(std::move(parts)),
      queue_({parts_.loop, parts_.state, parts_.events, parts_.devices, parts_.tenants, parts_.provider,
              [this](ConnectionId connection, const Json& reply) { server_->send(connection, reply); },
              [this](std::function<void()> done) { parts_.meter.read_now(std::move(done)); }, parts_.slices_per_user,
              parts_.variables}),
      ends_(parts_.loop, {.find = [this](const std::string& id) { return parts_.tenants.find_by_id(id); },
                          .look = [this](Tenant& tenant) { parts_.tenants.look_for_end(tenant); },
                          .send = [this](ConnectionId to, const Json& reply) { server_->send(to, reply); }}),
      started_ns_(system::monotonic_ns()) {}

Desk::~Desk() {
  for (const Held& held : held_) parts_.loop.cancel(held.timer);
  for (const auto& [connection, stream] : streams_) parts_.loop.cancel(stream.timer);
}

void Desk::on_request(ConnectionId connection, const system::Peer& peer, const Json& request) {
  const std::string& op = request["op"].as_string();
  std::vector<std::string_view> known;
  for (const Row& row : kRows) {
    if (op == row.op)
      return row.patience_ns != 0 && !has_looked(parts_.devices, parts_.provider)
                 ? hold(connection, peer, request, row.patience_ns)
                 : (this->*row.handler)(connection, peer, request);
    known.push_back(row.op);
  }
  std::string message = "this hypervisor knows no request '" + op.substr(0, 40) + "'";
  if (const auto near = base::nearest_word(op, known)) message += "; did you mean '" + std::string(*near) + "'?";
  refuse(connection, {ErrorCode::kProtocol, message});
}

void Desk::hold(ConnectionId connection, const system::Peer& peer, const Json& request, std::uint64_t patience_ns) {
  held_.push_back({connection, peer, request, 0});
  const auto held = std::prev(held_.end());
  held->timer = parts_.loop.after(patience_ns, [this, held] {
    const Held late = std::move(*held);
    held_.erase(held);
    for (const Row& row : kRows)
      if (late.request["op"].as_string() == row.op) (this->*row.handler)(late.connection, late.peer, late.request);
  });
}

void Desk::on_closed(ConnectionId connection) {
  held_.remove_if([&](const Held& held) {
    if (held.connection != connection) return false;
    parts_.loop.cancel(held.timer);
    return true;
  });
  queue_.closed(connection);
  ends_.closed(connection);
  if (const auto stream = streams_.find(connection); stream != streams_.end()) {
    parts_.loop.cancel(stream->second.timer);
    streams_.erase(stream);
  }
  parts_.tenants.lease_lost(connection);
}

void Desk::refuse(ConnectionId connection, const base::Error& error, const std::vector<std::string>& reasons) {
  server_->send(connection, error_reply(error, reasons));
}

void Desk::retry_waiting() {
  for (std::list<Held> held = has_looked(parts_.devices, parts_.provider) ? std::exchange(held_, {})
                                                                          : std::list<Held>();
       !held.empty(); held.pop_front()) {
    parts_.loop.cancel(held.front().timer);
    on_request(held.front().connection, held.front().peer, held.front().request);
  }
  queue_.retry();
  ends_.look_soon();
}

// One slice for each process: what it may use is what it was given, and not what it asks for besides.
void Desk::run(ConnectionId connection, const system::Peer& peer, const Json& request) {
  const bool is_there = caller(peer).has_value();
  if (!is_there && peer.pid > 0)  // 0: of another namespace, and so of no slice of ours
    return refuse(connection, {ErrorCode::kPermission,
                               "the process that connected has gone; a slice is given to one that is there to ask"});
  const Tenant* inside = is_there ? parts_.tenants.owner_of(peer.pid) : nullptr;
  if (inside) return refuse(connection, runs_in(*inside, peer.pid));
  queue_.run(connection, peer, request);
}

Tenant* Desk::tenant_for(ConnectionId connection, const system::Peer& peer, const Json& request, const char* key) {
  const std::string& word = request[key].as_string();
  Tenant* tenant = parts_.tenants.find(word);
  if (!tenant) {
    std::vector<std::string_view> names;
    for (const Tenant* one : parts_.tenants.all()) names.push_back(one->record.name);
    std::string message = "there is no tenant '" + word.substr(0, 64) + "'";
    if (const auto near = base::nearest_word(word, names)) message += "; did you mean '" + std::string(*near) + "'?";
    refuse(connection, {ErrorCode::kNotFound, message});
    return nullptr;
  }
  return is_for(connection, peer, *tenant) ? tenant : nullptr;
}

bool Desk::is_for(ConnectionId connection, const system::Peer& peer, const Tenant& tenant) {
  if (!is_stranger(peer) || peer.uid == tenant.record.user) return true;
  refuse(connection,
         {ErrorCode::kPermission, "the slice `" + tenant.record.name + "` belongs to another user; ask them, or root"});
  return false;
}

void Desk::started(ConnectionId connection, const system::Peer& peer, const Json& request) {
  Tenant* tenant = tenant_for(connection, peer, request, "id");
  if (!tenant) return;
  const auto pid = static_cast<pid_t>(request["pid"].as_int());
  // Whoever names a slice's first process may have it and all below it killed in our name.
  if (is_stranger(peer) && pid != peer.pid)
    return refuse(connection, {ErrorCode::kPermission, "a slice starts with the process that asked for it"});
  const auto first = is_stranger(peer) ? caller(peer) : system::process_stat(pid);
  if (!first || first->of_kernel)
    return refuse(connection,
                  {ErrorCode::kNotFound, "there is no process " + std::to_string(pid) + ", or not the one meant"});
  if (const Tenant* inside = parts_.tenants.owner_of(pid); inside && inside != tenant)
    return refuse(connection, runs_in(*inside, pid));
  const auto done = parts_.tenants.started(*tenant, *first);
  const int early_signal = done ? std::exchange(tenant->early_signal, 0) : 0;  // `run` says `started` twice
  if (early_signal != 0 && (!tenant->early_signal_by || may_signal(*tenant->early_signal_by, tenant->record.root_pid)))
    static_cast<void>(system::signal_process(tenant->root.get(), early_signal));
  done ? server_->send(connection, ok()) : refuse(connection, done.error());
}

void Desk::list(ConnectionId connection, const system::Peer&, const Json&) {
  parts_.meter.look_at_shares(system::monotonic_ns());
  parts_.meter.read_now([this, connection] {
    server_->send(connection,
                  ok().set("tenants", tenants_json(parts_.tenants, parts_.meter, parts_.devices, parts_.share))
                      .set("unlimited", unlimited_json(parts_.meter)));
  });
}

void Desk::list_devices(ConnectionId connection, const system::Peer&, const Json&) {
  parts_.meter.read_metrics([this, connection] {
    server_->send(connection, ok().set("devices", devices_json(parts_.devices, parts_.tenants))
                                  .set("known", parts_.devices.known())
                                  .set("provider", provider_json(parts_.provider)));
  });
}

void Desk::top(ConnectionId connection, const system::Peer&, const Json& request) {
  const std::uint64_t interval_ms = std::clamp<std::uint64_t>(request["interval_ms"].as_uint(1000), 100, 60'000);
  if (streams_.contains(connection)) return refuse(connection, streams_already());
  const auto tick = [this, connection] {
    if (server_->is_behind(connection)) return;  // who does not read what there is wants no more of it
    parts_.meter.look_at_shares(system::monotonic_ns());
    parts_.meter.read_now([this, connection] {
      parts_.meter.read_metrics([this, connection] {
        server_->send(connection,
                      ok().set("time_ms", system::wall_ms())
                          .set("tenants", tenants_json(parts_.tenants, parts_.meter, parts_.devices, parts_.share))
                          .set("unlimited", unlimited_json(parts_.meter))
                          .set("devices", devices_json(parts_.devices, parts_.tenants)));
      });
    });
  };
  streams_[connection] = {false, parts_.loop.every(interval_ms * 1'000'000, tick)};
  tick();
}

void Desk::limit(ConnectionId connection, const system::Peer& peer, const Json& json) {
  const auto request = limit_request_from(json);
  if (!request) return refuse(connection, request.error());
  Tenant* tenant = tenant_for(connection, peer, json, "tenant");
  if (!tenant) return;
  if (!caller(peer))
    return refuse(connection, {ErrorCode::kPermission,
                               "the process that connected has gone; limits are changed by one that is there to ask"});
  if (const Tenant* inside = parts_.tenants.owner_of(peer.pid))
    return refuse(connection,
                  {ErrorCode::kPermission, "process " + std::to_string(peer.pid) + " runs in the slice " +
                                               inside->record.name + "; limits are changed from outside of slices"});
  TenantRecord changed = tenant->record;
  if (request->vram) changed.request.vram = request->vram;
  Json notices = Json::array();
  if (request->compute_request) {
    changed.request.compute_request = request->compute_request;
  } else if (request->compute) {
    keep_request(changed, *request->compute, parts_.devices.places(), notices);
  }
  if (request->compute) changed.request.compute = request->compute;
  pool::PlaceRequest place = place_request(changed.request);
  place.chosen.clear();
  for (const TenantDeviceRecord& device : changed.devices) place.chosen.push_back(device.uuid);
  place.count = static_cast<unsigned>(changed.devices.size());
  // Memory that was never named stays what it is: it must not follow a changed compute share.
  if (!place.memory) place.memory = base::Bytes{changed.devices.front().memory_limit_bytes};
  const auto allocations = parts_.tenants.allocations(tenant->record.id);
  std::vector<pool::PlaceDevice> places = parts_.devices.places();
  for (pool::PlaceDevice& device : places) device.unusable.clear();  // it is there already
  const auto placement = pool::place(places, allocations, place);
  if (!placement) {
    base::Error error = error_for(placement.error());
    error.message = "its cards cannot give `" + tenant->record.name + "` that, and its limits stay as they were";
    return refuse(connection, error, placement.error().reasons);
  }
  const std::string before = limits_text(changed);
  for (const pool::PlacedDevice& placed : placement->devices) {
    for (std::size_t row = 0; row < changed.devices.size(); ++row) {
      TenantDeviceRecord& device = changed.devices[row];
      if (device.uuid != placed.uuid) continue;
      device.memory_limit_bytes = placed.memory_bytes;
      device.request_share = placed.request_share;
      device.limit_share = placed.limit_share;
      const DeviceView claim = device_view(tenant->pages.claim(), tenant->pages.slots(),
                                           static_cast<std::uint32_t>(row), device.device_memory_bytes);
      const std::uint64_t used = claim.used_bytes + tenant->usage[row].unledgered_bytes;
      if (used > placed.memory_bytes)
        notices.push("it uses " + base::to_text(base::Bytes{used}) +
                     " now, more than the new limit: it gets no more until it has freed some");
    }
  }
  const std::string after = limits_text(changed);
  if (auto done = parts_.tenants.change(*tenant, std::move(changed)); !done) return refuse(connection, done.error());
  parts_.events.add({.kind = "limits",
                     .tenant = tenant->record.name,
                     .device = "",
                     .message = before == after ? "asked for anew, and the same as before: " + after
                                                : "changed while running from " + before + " to " + after});
  server_->send(connection, ok().set("name", tenant->record.name).set("notices", notices));
}

void Desk::kill(ConnectionId connection, const system::Peer& peer, const Json& request) {
  const int number = static_cast<int>(request["signal"].as_int(SIGTERM));
  if (number < 1 || number >= NSIG)
    return refuse(connection, {ErrorCode::kUsage, std::to_string(number) + " is no signal"});
  Tenant* tenant = tenant_for(connection, peer, request, "tenant");
  if (!tenant) return;
  const auto by = is_stranger(peer) ? std::optional(peer.uid) : std::nullopt;
  if (!tenant->record.started()) {
    tenant->early_signal = number;
    tenant->early_signal_by = by;
  }
  const KillAnswer answer = parts_.tenants.signal(*tenant, number, by);
  Json pids = Json::array(), notices = Json::array();
  for (const pid_t pid : answer.reached) pids.push(pid);
  if (!answer.spared.empty()) {
    std::vector<std::string> spared;
    for (const pid_t pid : answer.spared) spared.push_back(std::to_string(pid));
    notices.push("not signalled, because they run as another user: " + base::join(spared, ", ") +
                 "; root can end them");
  }
  server_->send(connection, ok().set("id", tenant->record.id)
                                .set("name", tenant->record.name)
                                .set("processes", answer.reached.size())
                                .set("pids", pids)
                                .set("notices", notices));
}

// By its id: of the name there may be the next one already. Of one that nobody knows any more it is true.
void Desk::await_end(ConnectionId connection, const system::Peer& peer, const Json& request) {
  const std::string& id = request["id"].as_string();
  if (id.empty()) return refuse(connection, {ErrorCode::kUsage, "the `id` of a slice is missing"});
  if (const Tenant* tenant = parts_.tenants.find_by_id(id); tenant && !is_for(connection, peer, *tenant)) return;
  if (!ends_.ask(connection, id, request["wait_ms"].as_uint()))
    refuse(connection, {ErrorCode::kUsage, "this connection waits for the end of a slice already"});
}

void Desk::logs(ConnectionId connection, const system::Peer& peer, const Json& request) {
  const std::string& word = request["tenant"].as_string();
  if (!parts_.tenants.find(word)) {
    if (const auto kept = kept_log(parts_.state.path(), word, peer.uid))
      return server_->send(connection, ok().set("path", *kept));
  }
  const Tenant* tenant = tenant_for(connection, peer, request, "tenant");
  if (tenant) server_->send(connection, ok().set("path", parts_.state.log(tenant->record.id)));
}

void Desk::doctor(ConnectionId connection, const system::Peer&, const Json&) {
  parts_.meter.read_now([this, connection] {
    server_->send(connection, ok().set("facts", facts_json(parts_.state, parts_.devices, parts_.tenants, parts_.meter,
                                                           parts_.provider)));
  });
}

void Desk::list_events(ConnectionId connection, const system::Peer&, const Json& request) {
  const bool follow = request["follow"].as_bool();
  if (follow && streams_.contains(connection)) return refuse(connection, streams_already());
  Json list = Json::array();
  for (const Event& event : parts_.events.after(request["after"].as_uint())) list.push(to_json(event));
  if (follow) streams_[connection] = {true, 0};
  server_->send(connection, ok().set("events", list));
}

void Desk::on_event(const Event& event) {
  for (const auto& [connection, stream] : streams_)
    if (stream.events) server_->send(connection, ok().set("events", Json::array().push(to_json(event))));
}

void Desk::version(ConnectionId connection, const system::Peer&, const Json&) {
  server_->send(connection, ok().set("version", parts_.version)
                                .set("protocol", kProtocolVersion)
                                .set("pid", ::getpid())
                                .set("state", parts_.state.path())
                                .set("uptime_ms", (system::monotonic_ns() - started_ns_) / 1'000'000)
                                .set("provider", provider_json(parts_.provider)));
}

void Desk::stop(ConnectionId connection, const system::Peer& peer, const Json&) {
  if (is_stranger(peer))
    return refuse(connection, {ErrorCode::kPermission, "only root or the hypervisor's own user may stop it"});
  parts_.events.add({.kind = "hypervisor",
                     .tenant = "",
                     .device = "",
                     .message = "ends, as process " + std::to_string(peer.pid) +
                                " has asked (`hypervisor --stop`); slices keep their last limits"});
  server_->send(connection, ok());
  parts_.stop();
}

}  // namespace tensor_fusion::node::hypervisor
