#include "node/hypervisor/run_queue.h"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>

#include "base/id.h"
#include "base/text.h"
#include "contract/claim.h"
#include "contract/grant.h"
#include "system/clock.h"
#include "system/process.h"

namespace tensor_fusion::node::hypervisor {
namespace {

using base::ErrorCode;
using base::Json;

constexpr std::uint64_t kRereadNs = 2'000'000'000;  // a driver that does not answer refuses for nobody
constexpr std::uint64_t kEndsNs = 10'000'000'000;   // where very many come and go the end of a slice takes seconds
constexpr std::uint64_t kLastsNs = 1'000'000'000;
constexpr std::uint64_t kLongestRestNs = 60'000'000'000;
constexpr std::uint64_t kLookForEndNs = 50'000'000;
constexpr std::uint64_t kMostWaitMs = 7ull * 24 * 3'600'000;
constexpr std::array<std::string_view, 4> kQos = {"low", "medium", "high", "critical"};

base::Result<void> check_qos(const std::string& qos) {
  if (qos.empty() || std::find(kQos.begin(), kQos.end(), qos) != kQos.end()) return {};
  std::string message = "'" + qos + "' is no quality of service; there are low, medium, high and critical";
  if (const auto near = base::nearest_word(qos, kQos))
    message = "'" + qos + "' is no quality of service; did you mean '" + std::string(*near) + "'?";
  return base::fail(ErrorCode::kUsage, message);
}

base::Error taken(const std::string& name) {
  return {ErrorCode::kAlreadyExists, "a slice named `" + name + "` runs already; choose another --name"};
}

std::string name_for(const RunRequest& request, const std::string& id) {
  if (!request.name.empty()) return request.name;
  std::string_view word = base::trim(request.command);
  word = word.substr(0, word.find(' '));
  word = word.substr(word.rfind('/') + 1);
  std::string name;
  for (const char c : word.substr(0, 32))
    if (std::isalnum(static_cast<unsigned char>(c)) || c == '-' || c == '_' || c == '.') name += c;
  return base::check_name(name) ? name + "-" + id : id;
}

}  // namespace

pool::PlaceRequest place_request(const RunRequest& request) {
  pool::PlaceRequest place;
  place.memory = request.vram;
  place.compute = request.compute;
  place.compute_request = request.compute_request;
  place.count = request.gpus;
  for (const std::string_view word : base::split(request.gpu, ','))
    if (!base::trim(word).empty()) place.chosen.emplace_back(base::trim(word));
  return place;
}

base::Error error_for(const pool::Refusal& refusal) {
  const ErrorCode code = refusal.malformed ? ErrorCode::kUsage
                         : refusal.broken  ? ErrorCode::kNoDevice
                         : refusal.never   ? ErrorCode::kImpossible
                                           : ErrorCode::kNoCapacity;
  return {code, refusal.message};
}

bool is_stranger(const system::Peer& peer) { return peer.uid != 0 && peer.uid != ::geteuid(); }

bool has_looked(const DeviceTable& devices, const device::ProviderProcess& provider) {
  return devices.known() || (!provider.ready() && provider.restarts() > 0);
}

RunQueue::~RunQueue() {
  for (const Waiting& waiting : waiting_) forget(waiting);
  parts_.loop.cancel(retry_timer_);
}

void RunQueue::closed(ConnectionId connection) {
  waiting_.remove_if([&](const Waiting& waiting) {
    if (waiting.connection != connection) return false;
    forget(waiting);
    return true;
  });
}

void RunQueue::refuse(ConnectionId connection, const base::Error& error, const std::vector<std::string>& reasons) {
  parts_.send(connection, error_reply(error, reasons));
}

void RunQueue::run(ConnectionId connection, const system::Peer& peer, const Json& json) {
  auto request = run_request_from(json);
  if (!request) return refuse(connection, request.error());
  if (auto qos = check_qos(request->qos); !qos) return refuse(connection, qos.error());
  parts_.tenants.remove_unheard_of(request->token, peer.uid);
  if (!request->name.empty()) {
    if (auto name = base::check_name(request->name); !name) return refuse(connection, name.error());
    Tenant* namesake = parts_.tenants.find(request->name);
    if (namesake && !parts_.tenants.is_ending(*namesake)) return refuse(connection, taken(request->name));
  }
  const auto tenants = parts_.tenants.all();
  const bool waits = std::ranges::any_of(waiting_, [&](const Waiting& w) { return w.connection == connection; });
  if (waits || (is_stranger(peer) && std::ranges::any_of(tenants, [&](const Tenant* tenant) {
                  return tenant->lease == connection && !tenant->record.started();
                })))
    return refuse(connection, {ErrorCode::kUsage, "this connection has asked for a slice that has not started yet"});
  request->wait_ms = std::min(request->wait_ms, kMostWaitMs);
  Waiting waiting{.connection = connection,
                  .peer = peer,
                  .request = *std::move(request),
                  .asked_ns = system::monotonic_ns(),
                  .told = {}};
  const bool known = parts_.devices.known();
  const bool at_once = waiting.request.wait_ms == 0 && known;
  waiting.rereads = at_once && is_crowded();
  waiting.ends = parts_.tenants.is_any_ending();
  if (try_run(waiting, may_be_last(waiting))) return;
  const bool rereads = waiting.rereads;
  const bool ends = waiting.ends;
  const std::uint64_t wait_ns = std::max(waiting.request.wait_ms * 1'000'000, known ? (ends      ? kEndsNs
                                                                                       : rereads ? kRereadNs
                                                                                                 : 0)
                                                                                    : kInventoryNs);
  waiting_.push_back(std::move(waiting));
  const auto place = std::prev(waiting_.end());
  place->timer = parts_.loop.after(wait_ns, [this, connection] { answer(connection); });
  if (ends) return retry_later();
  if (rereads) parts_.read_account([this, connection] { answer(connection); });
}

bool RunQueue::may_be_last(const Waiting& waiting) const {
  return waiting.request.wait_ms == 0 && parts_.devices.known() && !waiting.rereads && !waiting.ends;
}

// One that seemed to be over may not be, and then nothing is given back.
void RunQueue::retry_later() {
  parts_.loop.cancel(retry_timer_);
  retry_timer_ = parts_.loop.after(kLookForEndNs, [this] {
    retry_timer_ = 0;
    retry();
  });
}

void RunQueue::answer(ConnectionId connection) {
  const auto found = std::ranges::find(waiting_, connection, &Waiting::connection);
  if (found == waiting_.end()) return;
  try_run(*found, true);
  forget(*found);
  waiting_.erase(found);
}

// Processes outside of slices hold memory, or did when the account was read: they may be gone since.
bool RunQueue::is_crowded() const {
  return std::ranges::any_of(parts_.devices.all(), [](const Device& device) { return device.outside_bytes > 0; });
}

void RunQueue::retry() {
  const bool ends =
      std::ranges::any_of(waiting_, [](const Waiting& w) { return w.ends; }) && parts_.tenants.is_any_ending();
  for (auto at = waiting_.begin(); at != waiting_.end();) {
    const bool ended = std::exchange(at->ends, at->ends && ends) && !ends;
    if (try_run(*at, may_be_last(*at))) {
      forget(*at);
      at = waiting_.erase(at);
      continue;
    }
    if (ended && at->rereads)
      parts_.read_account([this, connection = at->connection] { answer(connection); });
    else if (at->ends)
      retry_later();
    ++at;
  }
}

bool RunQueue::has_all(const system::Peer& peer) const {
  if (!is_stranger(peer)) return false;
  const auto tenants = parts_.tenants.all();
  const auto of_user =
      std::ranges::count_if(tenants, [&](const Tenant* tenant) { return tenant->record.user == peer.uid; });
  return static_cast<std::size_t>(of_user) >= parts_.slices_per_user;
}

void RunQueue::forget(const Waiting& waiting) {
  parts_.loop.cancel(waiting.timer);
  parts_.loop.cancel(waiting.tell_timer);
}

// The first at once, or soon where a slice seems to be over: somebody may hide in it and keep it. What has changed
// after that is told when it has lasted, and ever more rarely: short slices of others come and go.
void RunQueue::tell(Waiting& waiting, std::string why) {
  if (!waiting.request.tells || (waiting.ends && system::monotonic_ns() < waiting.asked_ns + kLastsNs)) return;
  if (why == waiting.told) {
    parts_.loop.cancel(std::exchange(waiting.tell_timer, 0));
    return;
  }
  if (!waiting.told.empty() && !waiting.may_tell) return tell_later(waiting);
  parts_.send(waiting.connection, Json::object({{"ok", true}, {"waiting", why}}));
  waiting.told = std::move(why);
  waiting.rest_ns = std::min(std::max(2 * waiting.rest_ns, kLastsNs), kLongestRestNs);
  waiting.may_tell_ns = system::monotonic_ns() + waiting.rest_ns;
}

void RunQueue::tell_later(Waiting& waiting) {
  if (waiting.tell_timer != 0) return;
  const std::uint64_t now = system::monotonic_ns();
  const std::uint64_t at = std::max(now + kLastsNs, waiting.may_tell_ns);
  waiting.tell_timer = parts_.loop.after(at - now, [this, connection = waiting.connection] {
    const auto found = std::ranges::find(waiting_, connection, &Waiting::connection);
    if (found == waiting_.end()) return;
    found->tell_timer = 0;
    found->may_tell = true;
    const bool answered = try_run(*found, false);
    found->may_tell = false;
    if (!answered) return;
    forget(*found);
    waiting_.erase(found);
  });
}

bool RunQueue::try_run(Waiting& waiting, bool last) {
  if (!parts_.devices.known() || parts_.devices.all().empty()) {
    const bool failed = has_looked(parts_.devices, parts_.provider) || last;
    if (failed)
      refuse(waiting.connection,
             {ErrorCode::kNoDevice,
              "there is no GPU to share here: " +
                  (parts_.provider.trouble().empty() ? "the driver lists none" : parts_.provider.trouble())});
    return failed;
  }
  const auto allocations = parts_.tenants.allocations();
  const auto places = parts_.devices.places();
  const auto placement = pool::place(places, allocations, place_request(waiting.request));
  // One of the same name may have come while this one stood in line.
  const std::string& name = waiting.request.name;
  if (Tenant* namesake = placement && !name.empty() ? parts_.tenants.find(name) : nullptr) {
    if (!last && waiting.ends && parts_.tenants.is_ending(*namesake)) return false;
    refuse(waiting.connection, taken(name));
    return true;
  }
  // Not what will never be, or only on a broken card: nobody waits for that.
  if ((placement || (!placement.error().never && !placement.error().broken)) && has_all(waiting.peer)) {
    if (last)
      refuse(waiting.connection,
             {ErrorCode::kNoCapacity, "you have " + std::to_string(parts_.slices_per_user) +
                                          " slices, as many as one user may have here (`tensor-fusion hypervisor "
                                          "--slices-per-user`); end one of them" +
                                          (waiting.request.wait_ms == 0 ? ", or --wait until one has ended" : "")});
    else
      tell(waiting, "you have " + std::to_string(parts_.slices_per_user) +
                        " slices, as many as one user may have here; one of them must end");
    return last;
  }
  if (placement) {
    give(waiting, *placement);
    return true;
  }
  if (!last && !placement.error().never && !placement.error().broken) {
    std::string why = placement.error().message;
    for (const std::string& reason : placement.error().reasons) why += "\n  " + reason;
    tell(waiting, std::move(why));
    return false;
  }
  base::Error error = error_for(placement.error());
  if (error.code == ErrorCode::kNoDevice)
    error.message += "; `tensor-fusion doctor` says what is wrong";
  else if (error.code == ErrorCode::kNoCapacity && waiting.request.wait_ms == 0)
    error.message += "; --wait queues until there is room";
  refuse(waiting.connection, error, placement.error().reasons);
  return true;
}

void RunQueue::give(const Waiting& waiting, const pool::Placement& placement) {
  TenantRecord record;
  do {  // others may have taken for a name what would be made of this one
    record.id = parts_.tenants.free_id();
    record.name = name_for(waiting.request, record.id);
  } while (waiting.request.name.empty() && parts_.tenants.find(record.name));
  record.request = waiting.request;
  record.user = waiting.peer.uid;
  record.group = waiting.peer.gid;
  record.created_ms = system::wall_ms();
  record.boot = system::boot_id();
  record.ends_unlimited = !record.request.allow_unlimited;
  record.outer_namespace = system::namespace_inode(waiting.peer.pid, "mnt");
  if (placement.devices.size() > contract::kMaxDevices)
    return refuse(
        waiting.connection,
        {ErrorCode::kUsage, "one slice may hold " + std::to_string(contract::kMaxDevices) + " devices at most"});
  RunReply reply;
  std::vector<std::string> uuids;
  for (const pool::PlacedDevice& placed : placement.devices) {
    const Device* device = parts_.devices.find(placed.uuid);
    record.devices.push_back({device->uuid, device->index, device->model, device->memory_bytes, placed.memory_bytes,
                              placed.request_share, placed.limit_share});
    RunDevice row{
        device->uuid, device->index, device->model, placed.memory_bytes, placed.request_share, placed.limit_share, {}};
    if (!device->node.empty()) row.device_files.push_back(device->node);
    for (const std::string& file : device->files) {
      if (file == device->node) continue;
      auto& shared = reply.shared_device_files;
      if (std::find(shared.begin(), shared.end(), file) == shared.end()) shared.push_back(file);
    }
    uuids.push_back(device->native_uuid);
    if (placed.memory_bytes < device->context_overhead_bytes)
      reply.notices.push_back("the memory limit is below what one context needs on " + device->model + " (" +
                              base::to_text(base::Bytes{device->context_overhead_bytes}) +
                              "); give it more with --vram, that and what it allocates");
    if (!device->also_shared_by.empty())
      reply.notices.push_back("GPU " + std::to_string(device->index) + ": " + also_shared_text(*device));
    reply.devices.push_back(std::move(row));
  }
  const bool keeps_log = waiting.request.detach;
  if (keeps_log) {
    if (const auto made = parts_.state.make_log(record.id, record.user, waiting.peer.gid); !made)
      return refuse(waiting.connection, made.error());
  }
  const auto tenant = parts_.tenants.create(record, waiting.connection);
  if (!tenant) {
    if (keeps_log) parts_.state.remove_log(record.id);
    base::Error error = tenant.error();
    if (error.code == ErrorCode::kNoSpace) {
      constexpr std::uint64_t kMi = 1 << 20;
      constexpr std::uint64_t kPages = sizeof(contract::GrantPage) + sizeof(contract::ClaimPage);
      constexpr std::string_view kAdvice = "free some space";
      if (const auto at = error.message.find(kAdvice); at != error.message.npos)
        error.message.insert(at + kAdvice.size(),
                             ": a slice needs about " + base::to_text(base::Bytes{kPages / kMi * kMi + kMi}));
    }
    if (error.message.ends_with(std::strerror(EMFILE)))
      error.message +=
          "; start the hypervisor anew where `ulimit -n` allows it more (`tensor-fusion hypervisor --stop`)";
    return refuse(waiting.connection, error);
  }
  if (keeps_log) {
    if (const auto named = parts_.state.name_log(record.id, record.name, record.user); !named)
      reply.notices.push_back("its output is kept, but found by its id only: " + named.error().message);
  }
  reply.id = record.id;
  reply.name = record.name;
  reply.slice_directory = parts_.state.tenant(record.id);
  reply.log_path = parts_.state.log(record.id);
  reply.envs = {{contract::kSliceVariable, reply.slice_directory},
                {"CUDA_VISIBLE_DEVICES", base::join(uuids, ",")},
                {"NVIDIA_VISIBLE_DEVICES", base::join(uuids, ",")}};
  reply.envs.insert(reply.envs.end(), parts_.variables.begin(), parts_.variables.end());
  parts_.events.add({.kind = "started",
                     .tenant = record.name,
                     .device = uuids.front(),
                     .message = "placed on " + base::join(uuids, ", ")});
  parts_.send(waiting.connection, to_json(reply));
  if (!waiting_.empty()) retry_later();  // who stands in line waits for more now
}

}  // namespace tensor_fusion::node::hypervisor
