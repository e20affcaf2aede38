#include "node/hypervisor/tenant_record.h"

#include "base/id.h"
#include "contract/grant.h"
#include "system/file.h"

namespace tensor_fusion::node::hypervisor {
namespace {

using base::ErrorCode;
using base::Json;

constexpr int kFormat = 1;

base::Result<TenantDeviceRecord> device_from(const Json& json) {
  TenantDeviceRecord device;
  device.uuid = json["uuid"].as_string();
  device.index = static_cast<int>(json["index"].as_int());
  device.model = json["model"].as_string();
  device.device_memory_bytes = json["device_memory_bytes"].as_uint();
  device.memory_limit_bytes = json["memory_limit_bytes"].as_uint();
  device.request_share = static_cast<std::uint32_t>(json["request_share"].as_uint());
  device.limit_share = static_cast<std::uint32_t>(json["limit_share"].as_uint());
  const bool sound = !device.uuid.empty() && device.uuid.size() < contract::kUuidLength &&
                     device.memory_limit_bytes > 0 && device.limit_share >= 1 &&
                     device.limit_share <= contract::kWholeShare && device.request_share <= device.limit_share;
  if (!sound) return base::fail(ErrorCode::kProtocol, "a device of the record makes no sense");
  return device;
}

}  // namespace

Json to_json(const TenantRecord& record) {
  Json devices = Json::array();
  for (const TenantDeviceRecord& device : record.devices)
    devices.push(Json::object({{"uuid", device.uuid},
                               {"index", device.index},
                               {"model", device.model},
                               {"device_memory_bytes", device.device_memory_bytes},
                               {"memory_limit_bytes", device.memory_limit_bytes},
                               {"request_share", device.request_share},
                               {"limit_share", device.limit_share}}));
  Json json = Json::object({{"format", kFormat},
                            {"id", record.id},
                            {"name", record.name},
                            {"request", to_json(record.request)},
                            {"user", static_cast<std::uint64_t>(record.user)},
                            {"created_ms", record.created_ms},
                            {"boot", record.boot},
                            {"root_pid", static_cast<std::int64_t>(record.root_pid)},
                            {"root_ticks", record.root_ticks},
                            {"mount_namespace", record.mount_namespace},
                            {"outer_namespace", record.outer_namespace},
                            {"devices", devices}});
  if (record.ends_unlimited) json.set("ends_unlimited", true);
  if (record.group) json.set("group", static_cast<std::uint64_t>(*record.group));
  return json;
}

base::Result<TenantRecord> tenant_record_from(const Json& json) {
  if (json["format"].as_int() < 1) return base::fail(ErrorCode::kProtocol, "this is no tenant record");
  TenantRecord record;
  record.id = json["id"].as_string();
  record.name = json["name"].as_string();
  if (!base::check_name(record.id) || !base::check_name(record.name))
    return base::fail(ErrorCode::kProtocol, "the record has no sound name");
  auto request = run_request_from(json["request"]);
  if (!request) return std::unexpected(request.error());
  record.request = *std::move(request);
  record.user = static_cast<uid_t>(json["user"].as_uint());
  if (json.has("group")) record.group = static_cast<gid_t>(json["group"].as_uint());
  record.created_ms = json["created_ms"].as_uint();
  record.boot = json["boot"].as_string();
  record.root_pid = static_cast<pid_t>(json["root_pid"].as_int());
  record.root_ticks = json["root_ticks"].as_uint();
  record.mount_namespace = json["mount_namespace"].as_uint();
  record.outer_namespace = json["outer_namespace"].as_uint();
  record.ends_unlimited = json["ends_unlimited"].as_bool();
  for (const Json& item : json["devices"].items()) {
    auto device = device_from(item);
    if (!device) return std::unexpected(device.error());
    record.devices.push_back(*std::move(device));
  }
  if (record.devices.empty() || record.devices.size() > contract::kMaxDevices)
    return base::fail(ErrorCode::kProtocol, "the record has no devices, or too many");
  return record;
}

base::Result<TenantRecord> load_record(const std::string& path) {
  constexpr std::size_t kLargest = 64u << 10;
  auto content = system::read_file(path, kLargest);
  if (!content) return std::unexpected(content.error());
  auto json = base::Json::parse(*content);
  if (!json) return base::fail(json.error().code, path + ": " + json.error().message);
  auto record = tenant_record_from(*json);
  if (!record) return base::fail(record.error().code, path + ": " + record.error().message);
  return record;
}

base::Result<void> save_record(const std::string& path, const TenantRecord& record) {
  return system::replace_file(path, to_json(record).pretty() + "\n", 0600);
}

}  // namespace tensor_fusion::node::hypervisor
