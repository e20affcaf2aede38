#pragma once
// What is said over the local socket: one JSON object a line. {"op": "…", …} asks, {"ok": true, …} or
// {"ok": false, "error": {"code", "message", "reasons"}} answers; docs/internals/protocol.md lists all fields.
// These structs are the typed side of the requests that carry more than a name. Pure.
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/json.h"
#include "base/quantity.h"
#include "base/result.h"

namespace tensor_fusion::node::hypervisor {

inline constexpr int kProtocolVersion = 1;
inline constexpr const char* kSocketName = "hypervisor.sock";
inline constexpr const char* kLockName = "hypervisor.lock";
inline constexpr const char* kStateVariable = "TENSOR_FUSION_STATE";

// What anybody may send is bounded before it is looked at: a request as a whole, and each text and number in it.
inline constexpr std::size_t kLongestRequest = 64u << 10;
inline constexpr std::size_t kLongestCommand = 256;
base::Result<void> check_request(const base::Json& request);

// One `run`. What is absent follows docs/guide/requests.md.
struct RunRequest {
  std::string name;                              // empty: made from the command's name and the id
  std::string command;                           // for `ps`, at most kLongestCommand bytes kept
  std::optional<base::Memory> vram;              // limit per device; absent: the whole card's memory may be used
  std::optional<base::Compute> compute;          // limit per device
  std::optional<base::Compute> compute_request;  // floor per device
  unsigned gpus = 1;
  std::string gpu;               // index, UUID or the beginning of one; comma-separated for several
  std::string qos;               // low, medium (default), high, critical
  std::uint64_t wait_ms = 0;     // how long to queue when nothing fits now
  bool tells = false;            // while it waits it is to be told for what: lines with `waiting` before the answer
  bool detach = false;           // its output is to be kept
  bool allow_unlimited = false;  // processes of it that no limiter watches go on
  std::string token;             // the same whenever one run asks again, because its hypervisor ended without an answer
};
base::Json to_json(const RunRequest& request);
base::Result<RunRequest> run_request_from(const base::Json& json);

struct RunDevice {
  std::string uuid;
  int index = 0;
  std::string model;
  std::uint64_t memory_limit_bytes = 0;
  std::uint32_t request_share = 0;  // basis points
  std::uint32_t limit_share = 0;
  std::vector<std::string> device_files;  // of this device: what a process must be able to open
};

struct RunReply {
  std::string id;
  std::string name;
  std::string slice_directory;  // holds grant, claim and bell
  std::string log_path;         // where `run` may keep the output
  std::vector<RunDevice> devices;
  std::vector<std::string> shared_device_files;           // needed whatever the device (nvidiactl, nvidia-uvm)
  std::vector<std::pair<std::string, std::string>> envs;  // for the child: TENSOR_FUSION_SLICE, CUDA_VISIBLE_DEVICES, …
  std::vector<std::string> notices;                       // one sentence each, for stderr
};
base::Json to_json(const RunReply& reply);
base::Result<RunReply> run_reply_from(const base::Json& json);

// `limit NAME`: what is absent stays as it is.
struct LimitRequest {
  std::string tenant;  // id or name
  std::optional<base::Memory> vram;
  std::optional<base::Compute> compute;
  std::optional<base::Compute> compute_request;
};
base::Json to_json(const LimitRequest& request);
base::Result<LimitRequest> limit_request_from(const base::Json& json);

base::Json error_reply(const base::Error& error, const std::vector<std::string>& reasons = {});
base::Error error_from(const base::Json& reply);

}  // namespace tensor_fusion::node::hypervisor
