#include "node/hypervisor/protocol.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <limits>
#include <string_view>

namespace tensor_fusion::node::hypervisor {
namespace {

using base::ErrorCode;
using base::Json;

// Of every text that a request may hold. A longer command is cut, since it is only shown.
struct Bound {
  std::string_view field;
  std::size_t bytes;
};
constexpr std::size_t kLongestText = 128;  // a name has 63, a quantity a few
constexpr std::array kLongerTexts{Bound{"gpu", 4096}, Bound{"command", kLongestRequest}};
constexpr std::array<std::string_view, 2> kNumbersOfInt{"pid", "signal"};
constexpr std::array<std::string_view, 4> kWholeNumbers{"gpus", "wait_ms", "interval_ms", "after"};

// Exact, unlike the text shown to people.
std::string exact(const base::Memory& memory) {
  if (const auto* bytes = std::get_if<base::Bytes>(&memory)) return std::to_string(bytes->value);
  return base::to_text(std::get<base::Percent>(memory));
}

std::string exact(const base::Compute& compute) {
  const auto* tflops = std::get_if<base::Tflops>(&compute);
  if (!tflops) return base::to_text(std::get<base::Percent>(compute));
  std::array<char, 400> buffer{};  // fixed notation of any double fits
  const auto [end, problem] =
      std::to_chars(buffer.data(), buffer.data() + buffer.size(), tflops->value, std::chars_format::fixed);
  return std::string(buffer.data(), problem == std::errc() ? end : buffer.data()) + "tflops";
}

template <typename Amount>
void set_amount(Json& json, const char* key, const std::optional<Amount>& amount) {
  if (amount) json.set(key, exact(*amount));
}

template <typename Amount>
base::Result<void> read_amount(const Json& json, const char* key, base::Result<Amount> (*parse)(std::string_view),
                               std::optional<Amount>& out) {
  if (!json.has(key)) return {};
  if (!json[key].is_string()) return base::fail(ErrorCode::kUsage, std::string(key) + " must be a string");
  auto amount = parse(json[key].as_string());
  if (!amount) return std::unexpected(std::move(amount.error()));
  out = *amount;
  return {};
}

template <typename Request>
base::Result<void> read_amounts(const Json& json, Request& request) {
  if (auto ok = read_amount(json, "vram", base::parse_memory, request.vram); !ok) return ok;
  if (auto ok = read_amount(json, "compute", base::parse_compute, request.compute); !ok) return ok;
  return read_amount(json, "compute_request", base::parse_compute_request, request.compute_request);
}

Json texts(const std::vector<std::string>& list) {
  Json array = Json::array();
  for (const std::string& text : list) array.push(text);
  return array;
}

std::vector<std::string> texts_from(const Json& array) {
  std::vector<std::string> list;
  for (const Json& item : array.items()) list.push_back(item.as_string());
  return list;
}

}  // namespace

base::Result<void> check_request(const Json& request) {
  for (const auto& [field, value] : request.members()) {
    std::size_t most = kLongestText;
    for (const Bound& bound : kLongerTexts)
      if (field == bound.field) most = bound.bytes;
    if (const std::size_t size = value.as_string().size(); value.is_string() && size > most)
      return base::fail(ErrorCode::kUsage, "`" + field.substr(0, kLongestText) + "` has " + std::to_string(size) +
                                               " bytes, and at most " + std::to_string(most) + " are taken");
    if (std::ranges::find(kWholeNumbers, field) != kWholeNumbers.end() && value.is_number()) {
      constexpr std::uint64_t kNone = std::numeric_limits<std::uint64_t>::max();
      if (value.as_uint(kNone) == kNone || value.as_double() != std::floor(value.as_double()))
        return base::fail(ErrorCode::kUsage, "`" + field + "` must be a whole number from 0, not " + value.dump());
    }
    if (std::ranges::find(kNumbersOfInt, field) == kNumbersOfInt.end() || !value.is_number()) continue;
    if (const std::int64_t number = value.as_int(); number < 0 || number > std::numeric_limits<int>::max())
      return base::fail(ErrorCode::kUsage, "`" + field + "` must be from 0 to " +
                                               std::to_string(std::numeric_limits<int>::max()) + ", not " +
                                               value.dump());
  }
  return {};
}

Json to_json(const RunRequest& request) {
  Json json = Json::object({{"op", "run"}});
  if (!request.name.empty()) json.set("name", request.name);
  json.set("command", request.command.substr(0, kLongestCommand));
  set_amount(json, "vram", request.vram);
  set_amount(json, "compute", request.compute);
  set_amount(json, "compute_request", request.compute_request);
  json.set("gpus", request.gpus);
  if (!request.gpu.empty()) json.set("gpu", request.gpu);
  if (!request.qos.empty()) json.set("qos", request.qos);
  if (request.wait_ms > 0) json.set("wait_ms", request.wait_ms);
  if (request.tells) json.set("tells", true);
  if (request.detach) json.set("detach", true);
  if (request.allow_unlimited) json.set("allow_unlimited", true);
  if (!request.token.empty()) json.set("token", request.token);
  return json;
}

base::Result<RunRequest> run_request_from(const Json& json) {
  RunRequest request;
  request.name = json["name"].as_string();
  request.command = json["command"].as_string().substr(0, kLongestCommand);
  if (auto ok = read_amounts(json, request); !ok) return std::unexpected(std::move(ok.error()));
  const std::int64_t gpus = json["gpus"].as_int(1);
  if (gpus < 1 || gpus > 1024) return base::fail(ErrorCode::kUsage, "the number of GPUs must be at least 1");
  request.gpus = static_cast<unsigned>(gpus);
  request.gpu = json["gpu"].is_number() ? std::to_string(json["gpu"].as_int()) : json["gpu"].as_string();
  request.qos = json["qos"].as_string();
  request.wait_ms = json["wait_ms"].as_uint();
  request.tells = json["tells"].as_bool();
  request.detach = json["detach"].as_bool();
  request.allow_unlimited = json["allow_unlimited"].as_bool();
  request.token = json["token"].as_string();
  return request;
}

Json to_json(const RunReply& reply) {
  Json devices = Json::array();
  for (const RunDevice& device : reply.devices)
    devices.push(Json::object({{"uuid", device.uuid},
                               {"index", device.index},
                               {"model", device.model},
                               {"memory_limit_bytes", device.memory_limit_bytes},
                               {"request_share", device.request_share},
                               {"limit_share", device.limit_share},
                               {"device_files", texts(device.device_files)}}));
  Json envs = Json::object();
  for (const auto& [key, value] : reply.envs) envs.set(key, value);
  return Json::object({{"ok", true},
                       {"id", reply.id},
                       {"name", reply.name},
                       {"slice", reply.slice_directory},
                       {"log", reply.log_path},
                       {"devices", devices},
                       {"shared_device_files", texts(reply.shared_device_files)},
                       {"envs", envs},
                       {"notices", texts(reply.notices)}});
}

base::Result<RunReply> run_reply_from(const Json& json) {
  if (!json["ok"].as_bool()) return std::unexpected(error_from(json));
  RunReply reply;
  reply.id = json["id"].as_string();
  reply.name = json["name"].as_string();
  reply.slice_directory = json["slice"].as_string();
  reply.log_path = json["log"].as_string();
  for (const Json& item : json["devices"].items()) {
    RunDevice device;
    device.uuid = item["uuid"].as_string();
    device.index = static_cast<int>(item["index"].as_int());
    device.model = item["model"].as_string();
    device.memory_limit_bytes = item["memory_limit_bytes"].as_uint();
    device.request_share = static_cast<std::uint32_t>(item["request_share"].as_uint());
    device.limit_share = static_cast<std::uint32_t>(item["limit_share"].as_uint());
    device.device_files = texts_from(item["device_files"]);
    reply.devices.push_back(std::move(device));
  }
  reply.shared_device_files = texts_from(json["shared_device_files"]);
  for (const auto& [key, value] : json["envs"].members()) reply.envs.emplace_back(key, value.as_string());
  reply.notices = texts_from(json["notices"]);
  if (reply.id.empty() || reply.slice_directory.empty())
    return base::fail(ErrorCode::kProtocol, "the hypervisor's answer names no slice; it may be of another version");
  return reply;
}

Json to_json(const LimitRequest& request) {
  Json json = Json::object({{"op", "limit"}, {"tenant", request.tenant}});
  set_amount(json, "vram", request.vram);
  set_amount(json, "compute", request.compute);
  set_amount(json, "compute_request", request.compute_request);
  return json;
}

base::Result<LimitRequest> limit_request_from(const Json& json) {
  LimitRequest request;
  request.tenant = json["tenant"].as_string();
  if (request.tenant.empty()) return base::fail(ErrorCode::kUsage, "name the tenant whose limits should change");
  if (auto ok = read_amounts(json, request); !ok) return std::unexpected(std::move(ok.error()));
  if (!request.vram && !request.compute && !request.compute_request)
    return base::fail(ErrorCode::kUsage, "say what to change: --vram, --compute or --compute-request");
  return request;
}

Json error_reply(const base::Error& error, const std::vector<std::string>& reasons) {
  Json body = Json::object({{"code", base::word_of(error.code)}, {"message", error.message}});
  if (!reasons.empty()) body.set("reasons", texts(reasons));
  return Json::object({{"ok", false}, {"error", body}});
}

base::Error error_from(const Json& reply) {
  const Json& error = reply["error"];
  base::Error result{base::code_of(error["code"].as_string()),
                     error["message"].string_or("the hypervisor refuses without a reason")};
  for (const Json& reason : error["reasons"].items()) result.message += "\n  " + reason.as_string();
  return result;
}

}  // namespace tensor_fusion::node::hypervisor
