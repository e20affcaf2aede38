#include "node/hypervisor/report.h"

#include <unistd.h>

#include <algorithm>

#include "node/hypervisor/claim_view.h"
#include "system/clock.h"
#include "system/process.h"

namespace tensor_fusion::node::hypervisor {
namespace {

using base::Json;

Json text_list(const std::vector<std::string>& list) {
  Json array = Json::array();
  for (const std::string& text : list) array.push(text);
  return array;
}

Json row_json(const Tenant& tenant, std::uint32_t row, const DeviceTable& devices, const ShareLoop& share) {
  const TenantDeviceRecord& record = tenant.record.devices[row];
  const TenantUsage& usage = tenant.usage[row];
  const DeviceView claim = device_view(tenant.pages.claim(), tenant.pages.slots(), row, record.device_memory_bytes);
  Json json =
      Json::object({{"uuid", record.uuid},
                    {"index", record.index},
                    {"model", record.model},
                    {"memory_limit_bytes", record.memory_limit_bytes},
                    {"memory_used_bytes", std::max(claim.used_bytes, claim.ledger_bytes) + usage.unledgered_bytes},
                    {"memory_peak_bytes", claim.peak_bytes},
                    {"ledger_bytes", claim.ledger_bytes},
                    {"unledgered_bytes", usage.unledgered_bytes},
                    {"observed_bytes", usage.observed_bytes},
                    {"request_share", record.request_share},
                    {"limit_share", record.limit_share},
                    {"used_share", static_cast<std::int64_t>(usage.used_share)},
                    {"utilization_percent", usage.utilisation_percent},
                    {"launches", claim.launches},
                    {"held_launches", claim.held_launches},
                    {"blocked_threads", claim.blocked},
                    {"contexts", claim.contexts},
                    {"refused", claim.refused}});
  for (const Device& device : devices.all()) {
    if (device.uuid != record.uuid) continue;
    const ShareUsage used = share.usage(tenant.share_id, device.ordinal);
    json.set("service_ns", used.service_ns).set("held_ns", used.held_ns).set("bypass_suspected", used.bypass_suspected);
  }
  return json;
}

Json process_json(const Tenant& tenant, const LiveProcess& process, const Meter& meter) {
  const SlotView slot = slot_view(tenant.pages.claim(), process.slot);
  std::uint64_t observed = 0, ledger = 0;
  if (const auto found = meter.observed().find(process.host_pid); found != meter.observed().end())
    for (const auto& [uuid, bytes] : found->second) observed += bytes;
  for (std::uint32_t row = 0; row < tenant.record.devices.size(); ++row)
    ledger += ledger_of(tenant.pages.claim(), process.slot, row, tenant.record.devices[row].device_memory_bytes);
  Json json = Json::object({{"pid", process.host_pid},
                            {"tenant_pid", process.tenant_pid},
                            {"command", system::process_name(process.host_pid)}});
  json.set("limiter", "live")
      .set("limiter_version", slot.limiter_version)
      .set("self_test", slot.self_test)
      .set("flags", slot.flags);
  json.set("memory_bytes", std::max(observed, ledger));
  return json;
}

const char* state_of(const Tenant& tenant) {
  if (!tenant.record.started() && !tenant.has_live_process()) return "starting";
  return tenant.root_dead ? "detached" : "running";
}

// `stops`: no slice starts while it is so, or its limits mean nothing.
Json fact(const char* name, bool ok, std::string detail, std::string advice, bool stops = false) {
  Json json = Json::object({{"name", name}, {"ok", ok}, {"stops", !ok && stops}, {"detail", std::move(detail)}});
  if (!ok && !advice.empty()) json.set("advice", std::move(advice));
  return json;
}

}  // namespace

Json tenants_json(TenantTable& tenants, const Meter& meter, const DeviceTable& devices, const ShareLoop& share) {
  Json list = Json::array();
  for (const Tenant* tenant : tenants.all()) {
    Json rows = Json::array(), processes = Json::array();
    for (std::uint32_t row = 0; row < tenant->record.devices.size(); ++row)
      rows.push(row_json(*tenant, row, devices, share));
    const auto is_unlimited = [&](pid_t pid) {
      return std::ranges::any_of(meter.unlimited(), [pid](const UnlimitedProcess& one) { return one.pid == pid; });
    };
    for (const LiveProcess& process : tenant->processes)
      if (!process.dead && process.host_pid != 0 && !is_unlimited(process.host_pid))
        processes.push(process_json(*tenant, process, meter));
    for (const UnlimitedProcess& process : meter.unlimited())
      if (process.tenant_id == tenant->record.id)
        processes.push(Json::object({{"pid", process.pid},
                                     {"tenant_pid", process.pid},
                                     {"command", process.command},
                                     {"limiter", "none"},
                                     {"memory_bytes", process.memory_bytes}}));
    const std::string& qos = tenant->record.request.qos;
    list.push(Json::object({{"id", tenant->record.id},
                            {"name", tenant->record.name},
                            {"command", tenant->record.request.command},
                            {"state", state_of(*tenant)},
                            {"pid", tenant->record.root_pid},
                            {"user", static_cast<std::uint64_t>(tenant->record.user)},
                            {"qos", qos.empty() ? "medium" : qos},
                            {"created_ms", tenant->record.created_ms},
                            {"tampered", !tenant->tampered.empty()},
                            {"tampering", text_list(tenant->tampered)},
                            {"devices", rows},
                            {"processes", processes}}));
  }
  return list;
}

Json unlimited_json(const Meter& meter) {
  Json list = Json::array();
  for (const UnlimitedProcess& process : meter.unlimited())
    list.push(Json::object({{"pid", process.pid},
                            {"uuid", process.uuid},
                            {"command", process.command},
                            {"tenant", process.tenant},
                            {"memory_bytes", process.memory_bytes}}));
  return list;
}

Json devices_json(const DeviceTable& devices, TenantTable& tenants) {
  Json list = Json::array();
  for (const Device& device : devices.all()) {
    std::uint64_t requests = 0, limits = 0, memory = 0;
    Json names = Json::array();
    for (const Tenant* tenant : tenants.all())
      for (const TenantDeviceRecord& record : tenant->record.devices) {
        if (record.uuid != device.uuid) continue;
        requests += record.request_share;
        limits += record.limit_share;
        memory += record.memory_limit_bytes;
        names.push(tenant->record.name);
      }
    list.push(Json::object({{"uuid", device.uuid},
                            {"index", device.index},
                            {"model", device.model},
                            {"vendor", device.vendor},
                            {"driver", device.driver},
                            {"node", device.node},
                            {"numa", device.numa},
                            {"memory_bytes", device.memory_bytes},
                            {"memory_used_bytes", device.memory_used_bytes},
                            {"memory_reserved_bytes", memory},
                            {"outside_bytes", device.outside_bytes},
                            {"tflops", device.tflops},
                            {"utilization_percent", device.utilisation_percent},
                            {"temperature_celsius", device.temperature_celsius},
                            {"power_watts", device.power_watts},
                            {"healthy", device.trouble.empty()},
                            {"health", device.trouble.empty() ? "ok" : device.trouble},
                            {"also_shared_by", device.also_shared_by},
                            {"request_share_total", requests},
                            {"limit_share_total", limits},
                            {"context_overhead_bytes", device.context_overhead_bytes},
                            {"tenants", names}}));
  }
  return list;
}

Json provider_json(const device::ProviderProcess& provider) {
  return Json::object({{"name", provider.name()},
                       {"ready", provider.ready()},
                       {"pid", provider.pid()},
                       {"restarts", provider.restarts()},
                       {"trouble", provider.trouble()}});
}

Json facts_json(const StateDirectory& state, const DeviceTable& devices, TenantTable& tenants, const Meter& meter,
                const device::ProviderProcess& provider) {
  Json facts = Json::array();
  facts.push(fact("state", true, state.path(), ""));
  facts.push(fact("provider", provider.ready(), provider.ready() ? provider.name() : provider.trouble(),
                  "install the GPU's driver, or name a provider library with --accelerator-lib", true));
  facts.push(fact("devices", !devices.all().empty(), std::to_string(devices.all().size()) + " found",
                  "see the provider's trouble above", true));
  const bool none_works = std::ranges::all_of(devices.all(), [](const Device& one) { return !one.trouble.empty(); });
  for (const Device& device : devices.all())
    if (!device.trouble.empty())
      facts.push(fact("device", false, device.uuid + ": " + device.trouble,
                      "nothing new is placed there; reset or replace the card, then restart the hypervisor",
                      none_works));
  for (const Device& device : devices.all())
    if (!device.also_shared_by.empty())
      facts.push(fact("device", false, device.uuid + ": " + also_shared_text(device),
                      "`tensor-fusion --state FOLDER hypervisor --stop` ends the one with that state directory", true));
  std::uint64_t strangers = 0;
  for (const UnlimitedProcess& process : meter.unlimited()) {
    if (!process.reported) continue;
    ++strangers;
    facts.push(fact("unlimited", false,
                    "process " + std::to_string(process.pid) + " (" + process.command + ") uses " + process.uuid +
                        " without a limiter",
                    process.tenant.empty()
                        ? "start it with 'tensor-fusion run', or leave its memory out of what you ask for"
                        : "it belongs to " + process.tenant +
                              ": a statically linked program, or one that cleared its environment"));
  }
  if (strangers == 0) facts.push(fact("unlimited", true, "no process uses a GPU without a limiter", ""));
  for (const Tenant* tenant : tenants.all()) {
    for (const std::string& what : tenant->tampered)
      facts.push(fact("tampering", false, tenant->record.name + ": " + what, "it was put right; its limits hold"));
    for (const LiveProcess& process : tenant->processes) {
      const std::uint32_t flags = slot_view(tenant->pages.claim(), process.slot).flags;
      if (process.dead || (flags & (contract::kFlagDoorOpen | contract::kFlagSecondDriver)) == 0) continue;
      facts.push(fact("limiter", false,
                      tenant->record.name + ": process " + std::to_string(process.host_pid) +
                          " has a way to the driver that the limiter does not cover",
                      "its memory is counted by the driver's account only; its compute is not limited on that way"));
    }
  }
  if (provider.pid() > 0)
    facts.push(fact("hypervisor", true,
                    "process " + std::to_string(::getpid()) + ", " +
                        std::to_string(system::resident_bytes(::getpid()) >> 20) + " MiB",
                    ""));
  return facts;
}

}  // namespace tensor_fusion::node::hypervisor
