#include "node/hypervisor/hypervisor.h"

#include <signal.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <cstring>
#include <ctime>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "base/quantity.h"
#include "base/text.h"
#include "node/hypervisor/card_watch.h"
#include "node/hypervisor/claim_view.h"
#include "node/hypervisor/desk.h"
#include "node/hypervisor/idleness.h"
#include "node/hypervisor/meter.h"
#include "node/hypervisor/server.h"
#include "node/hypervisor/share_loop.h"
#include "node/hypervisor/state_directory.h"
#include "node/hypervisor/tenant_table.h"
#include "pool/over_limit.h"
#include "system/clock.h"

namespace tensor_fusion::node::hypervisor {
namespace {

using device::ProviderCall;
using device::ProviderProcess;

constexpr std::uint64_t kMs = 1'000'000;
constexpr std::uint64_t kScanNs = 100 * kMs;
constexpr std::uint64_t kIdleScanNs = 500 * kMs;  // the share loop tells of a new process at once
constexpr std::uint64_t kLookAfterNs = 1000 * kMs;
constexpr std::uint64_t kIdleLookAfterNs = 2000 * kMs;
constexpr std::uint64_t kDiscoverNs = 60'000 * kMs;
constexpr std::uint64_t kPruneNs = 1000 * kMs;
constexpr std::uint64_t kPruneAllNs = 30'000 * kMs;
constexpr std::uint64_t kPollEventsNs = 2000 * kMs;

// A slice takes some ten descriptors here, and what most systems allow at first is 1024. Not all that a container may
// allow: libraries in the provider may go through all numbers there are.
void raise_descriptor_limit() {
  constexpr rlim_t kEnough = 65'536;
  rlimit limit{};
  if (::getrlimit(RLIMIT_NOFILE, &limit) != 0 || limit.rlim_cur >= kEnough) return;
  const rlimit enough{kEnough, std::max(limit.rlim_max, kEnough)};  // root may go beyond what its shell allows
  if (::setrlimit(RLIMIT_NOFILE, &enough) == 0) return;
  limit.rlim_cur = std::min(limit.rlim_max, kEnough);
  static_cast<void>(::setrlimit(RLIMIT_NOFILE, &limit));
}

void write_event(const Event& event) {
  const auto part = [](const char* label, const std::string& text) {
    return text.empty() ? std::string() : std::string(" ") + label + "=" + text;
  };
  const std::string line =
      event.kind + part("tenant", event.tenant) + part("device", event.device) + ": " + event.message;
  const auto seconds = static_cast<std::time_t>(event.time_ms / 1000);
  std::tm utc{};
  std::array<char, 32> when{};
  if (::gmtime_r(&seconds, &utc) != nullptr) std::strftime(when.data(), when.size(), "%FT%TZ", &utc);
  std::fprintf(stderr, "%s tensor-fusion hypervisor: %s\n", when.data(), base::printable(line).c_str());
}

}  // namespace

struct Hypervisor::State {
  State(HypervisorOptions given, StateDirectory opened, std::unique_ptr<system::Loop> made)
      : options(std::move(given)),
        directory(std::move(opened)),
        loop(std::move(made)),
        cards(*loop,
              [this](const std::string& uuid, const std::string& doubt) {
                events.add({.kind = "device", .tenant = "", .device = uuid, .message = doubt});
              }),
        tenants(*loop, directory, events, share, devices),
        provider(
            *loop, options.accelerator_library, options.deadlines,
            {.ready = [this] { discover(); },
             .unhealthy = [this](const std::string& why) { on_provider_trouble(why); },
             .log = [this](const std::string& level, const std::string& message) { on_provider_log(level, message); }}),
        meter(*loop, provider, devices, tenants, share, events),
        desk({*loop, directory, events, devices, tenants, meter, share, provider, [this] { loop->stop(); },
              options.version, options.slices_per_user, options.variables}),
        idleness(options.idle_exit_ms * kMs) {
    meter.overheads().keep_in(directory.path() + "/overheads");
    tenants.set_hooks({.rang = [this] { settle_all(); },
                       .changed =
                           [this](Tenant& tenant) {
                             list_processes(tenant);
                             meter.read_now();
                           },
                       .capacity = [this] { desk.retry_waiting(); }});
    events.tell_users_by([this](const std::string& name) {
      const Tenant* tenant = tenants.find(name);
      return tenant ? static_cast<std::int64_t>(tenant->record.user) : Event::kNobody;
    });
    events.listen([this](const Event& event) {
      const bool again = event.kind == "provider" && event.message == last_provider_line;
      if (event.kind == "provider") last_provider_line = event.message;
      if (event.kind == "ended") slice_ended = true;
      if (options.log_events && !again) write_event(event);  // tried again and again, it would fill the log
      desk.on_event(event);
    });
  }

  void settle_all() {
    for (Tenant* tenant : tenants.all()) meter.settle(*tenant);
  }

  void discover() {
    provider.call(ProviderCall::kDevices, {}, [this](base::Result<ProviderProcess::Body> reply) {
      if (!reply) return;
      const bool first = !devices.known();
      for (const DeviceChange& change : devices.update(ProviderProcess::items<ExtendedDeviceInfo>(*reply)))
        events.add({.kind = "device", .tenant = "", .device = change.uuid, .message = change.message});
      for (Device& device : devices.all()) look_for_others(device);
      meter.overheads().recall();
      if (first) tenants.settle_shares();
      ask_for_files(0);
    });
  }

  void look_for_others(Device& device) {
    std::string others = cards.look(device.uuid, device.node);
    if (others == device.also_shared_by) return;
    device.also_shared_by = std::move(others);
    events.add({.kind = "device",
                .tenant = "",
                .device = device.uuid,
                .message = device.also_shared_by.empty() ? "no other hypervisor gives it out any more"
                                                         : also_shared_text(device)});
  }

  // Device files one device after another, then whoever waits for the inventory is served.
  void ask_for_files(std::size_t index) {
    if (index >= devices.all().size()) {
      desk.retry_waiting();
      meter.read_now();
      return;
    }
    const std::string& uuid = devices.all()[index].native_uuid;
    ProviderProcess::Body body(64, '\0');
    std::memcpy(body.data(), uuid.data(), std::min<std::size_t>(uuid.size(), 63));
    provider.call(ProviderCall::kDeviceFiles, std::move(body),
                  [this, index](base::Result<ProviderProcess::Body> reply) {
                    if (reply && index < devices.all().size()) {
                      auto& files = devices.all()[index].files;
                      files.clear();
                      for (const MountPath& file : ProviderProcess::items<MountPath>(*reply))
                        files.emplace_back(file.hostPath, ::strnlen(file.hostPath, sizeof file.hostPath));
                    }
                    ask_for_files(index + 1);
                  });
  }

  void on_provider_trouble(const std::string& why) {
    events.add({.kind = "provider", .tenant = "", .device = "", .message = why});
    desk.retry_waiting();
  }

  // A library's word for a severity has no power here: "FATAL" is a line in the events like any other.
  void on_provider_log(const std::string& level, const std::string& message) {
    if (level == "ERROR" || level == "FATAL" || level == "error" || level == "fatal")
      events.add({.kind = "provider", .tenant = "", .device = "", .message = message.substr(0, 512)});
  }

  void poll_events() {
    if (!provider.ready() || !events_supported) return;
    provider.call(ProviderCall::kEvents, {}, [this](base::Result<ProviderProcess::Body> reply) {
      if (!reply) {
        events_supported =
            provider.ready() ? reply.error().message.find("not supported") == std::string::npos : events_supported;
        return;
      }
      for (const AccelEvent& event : ProviderProcess::items<AccelEvent>(*reply)) on_device_event(event);
    });
  }

  void on_device_event(const AccelEvent& event) {
    Device* device = devices.find(std::string(event.deviceUUID, ::strnlen(event.deviceUUID, sizeof event.deviceUUID)));
    std::string message(event.message, ::strnlen(event.message, sizeof event.message));
    const bool xid = event.kind == ACCEL_EVENT_XID;
    if (message.empty())
      message = xid                                     ? "Xid " + std::to_string(event.code)
                : event.kind == ACCEL_EVENT_DEVICE_LOST ? "the device is lost"
                                                        : "uncorrectable memory error";
    const bool condemned = !xid || xid_condemns(event.code);
    if (device && condemned && device->trouble.empty()) device->trouble = message;
    events.add({.kind = "device",
                .tenant = "",
                .device = device ? device->uuid : "",
                .message = message + (condemned ? "; nothing new is placed there" : "")});
    if (!device || !condemned) return;
    for (const Tenant* tenant : tenants.all())
      for (const TenantDeviceRecord& record : tenant->record.devices)
        if (record.uuid == device->uuid)
          events.add({.kind = "device", .tenant = tenant->record.name, .device = device->uuid, .message = message});
  }

  // Again and again, slower while no process is on a GPU: an idle machine should stay asleep.
  void repeat(std::uint64_t busy_ns, std::uint64_t idle_ns, std::function<void()> task) {
    loop->after(tenants.busy() ? busy_ns : idle_ns, [this, busy_ns, idle_ns, task = std::move(task)] {
      task();
      repeat(busy_ns, idle_ns, task);
    });
  }

  // Looks every time, so that the first who comes after an idle while is not left waiting for the long period to end.
  void measure() {
    const std::uint64_t now = system::monotonic_ns();
    if (!tenants.busy() && now - measured_ns + options.measure_ms * kMs / 2 < options.measure_idle_ms * kMs) return;
    measured_ns = now;
    if (provider.ready()) meter.read_periodically(now);
    note_slices_over_limit();
  }

  // Once each time it begins, and without the amount, so that one who goes up and down stays one entry. As far above as
  // `ps` raises its alarm: the driver's own share comes and goes.
  void note_slices_over_limit() {
    std::set<std::string> above;
    for (const Tenant* tenant : tenants.all()) {
      for (std::size_t row = 0; row < tenant->record.devices.size() && row < tenant->usage.size(); ++row) {
        const TenantDeviceRecord& device = tenant->record.devices[row];
        const DeviceView claim = device_view(tenant->pages.claim(), tenant->pages.slots(),
                                             static_cast<std::uint32_t>(row), device.device_memory_bytes);
        const std::uint64_t used = claim.used_bytes + tenant->usage[row].unledgered_bytes;
        if (!pool::is_far_above(used, device.memory_limit_bytes)) continue;
        above.insert(tenant->record.id);
        if (!over_limit.contains(tenant->record.id))
          events.add({.kind = "over limit",
                      .tenant = tenant->record.name,
                      .device = device.uuid,
                      .message = "holds far more memory than it may; its limit is " +
                                 base::to_text(base::Bytes{device.memory_limit_bytes})});
      }
    }
    over_limit = std::move(above);
  }

  void end_by(int signal_number) {
    events.add({.kind = "hypervisor",
                .tenant = "",
                .device = "",
                .message = "ends by SIG" + std::string(signal_number == SIGTERM ? "TERM" : "INT") +
                           "; slices keep their last limits"});
    loop->stop();
  }

  void leave_when_idle() {
    const bool busy = !tenants.empty() || (server && server->connections() > 0);
    if (!idleness.is_over(busy, server ? server->next() : 0, system::monotonic_ns())) return;
    events.add({.kind = "hypervisor",
                .tenant = "",
                .device = "",
                .message = "leaves: nothing has been asked of it for a while"});
    loop->stop();
  }

  // Often only what somebody may be printing. Who has ended since may have printed much just before.
  void prune_logs() {
    const std::uint64_t now = system::monotonic_ns();
    if (std::exchange(slice_ended, false) || now - pruned_ns >= kPruneAllNs) {
      pruned_ns = now;
      return directory.prune_logs();
    }
    std::vector<std::string> printing;
    for (const Tenant* tenant : tenants.all())
      if (tenant->record.request.detach) printing.push_back(tenant->record.id);
    directory.cut_logs(printing);
  }

  base::Result<void> prepare() {
    const unsigned mode = ::geteuid() == 0 ? 0666 : 0600;
    auto listener = system::listen_unix(directory.socket(), mode);
    if (!listener) return std::unexpected(listener.error());
    socket = system::identity_of(directory.socket());
    events.keep_in(directory.path());
    // Tenants first: their shares go on before anything new is heard.
    tenants.restore();
    loop->every(kPruneNs, [this] { prune_logs(); });
    server = std::make_unique<Server>(
        *loop, *std::move(listener),
        Server::Handlers{
            .request = [this](ConnectionId c, const system::Peer& p, const base::Json& r) { desk.on_request(c, p, r); },
            .closed = [this](ConnectionId c) { desk.on_closed(c); }});
    desk.set_server(server.get());
    if (options.handle_signals)
      for (const int number : {SIGTERM, SIGINT})
        if (auto ok = loop->on_signal(number, [this, number] { end_by(number); }); !ok) return ok;
    ::signal(SIGPIPE, SIG_IGN);
    repeat(kScanNs, kIdleScanNs, [this] {
      tenants.scan_all();
      settle_all();
    });
    repeat(kLookAfterNs, kIdleLookAfterNs, [this] { tenants.look_after_all(); });
    loop->every(options.measure_ms * kMs, [this] { measure(); });
    loop->every(kPollEventsNs, [this] { poll_events(); });
    loop->every(kDiscoverNs, [this] {
      if (provider.ready()) discover();
    });
    if (options.idle_exit_ms > 0)
      loop->every(std::max<std::uint64_t>(options.idle_exit_ms / 4, 10) * kMs, [this] { leave_when_idle(); });
    provider.start();
    return {};
  }

  HypervisorOptions options;
  StateDirectory directory;
  std::unique_ptr<system::Loop> loop;
  EventRing events;
  DeviceTable devices;
  CardWatch cards;
  ShareLoop share;
  TenantTable tenants;
  ProviderProcess provider;
  Meter meter;
  Desk desk;
  std::unique_ptr<Server> server;
  std::optional<system::FileIdentity> socket;
  Idleness idleness;
  std::uint64_t measured_ns = 0;
  std::string last_provider_line;
  std::uint64_t pruned_ns = 0;
  bool slice_ended = false;          // since then
  std::set<std::string> over_limit;  // ids of slices that were far above their memory limit at the last look
  bool events_supported = true;
};

Hypervisor::Hypervisor(std::unique_ptr<State> state) : state_(std::move(state)) {}
Hypervisor::~Hypervisor() = default;

base::Result<std::unique_ptr<Hypervisor>> Hypervisor::make(HypervisorOptions options) {
  raise_descriptor_limit();
  auto directory = StateDirectory::open(options.state);
  if (!directory) return std::unexpected(directory.error());
  auto loop = system::Loop::make();
  if (!loop) return std::unexpected(loop.error());
  auto state = std::make_unique<State>(std::move(options), *std::move(directory), *std::move(loop));
  if (auto ready = state->prepare(); !ready) return std::unexpected(ready.error());
  return std::unique_ptr<Hypervisor>(new Hypervisor(std::move(state)));
}

base::Result<void> Hypervisor::run() {
  state_->loop->run();
  // Where somebody has cleared the directory, another may listen there by now.
  if (state_->socket && system::identity_of(state_->directory.socket()) == state_->socket)
    ::unlink(state_->directory.socket().c_str());
  return {};
}

void Hypervisor::stop() { state_->loop->stop(); }
std::uint64_t Hypervisor::share_cpu_ns() const { return state_->share.cpu_ns(); }
pid_t Hypervisor::provider_pid() const { return state_->provider.pid(); }

}  // namespace tensor_fusion::node::hypervisor
