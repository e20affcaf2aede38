#pragma once
// What is remembered of one tenant across restarts: one small JSON file, replaced as a whole. A file of a newer version
// is read by what it has in common; a torn or foreign one is refused with a sentence. Pure but for load and save.
#include <sys/types.h>

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/json.h"
#include "node/hypervisor/protocol.h"

namespace tensor_fusion::node::hypervisor {

struct TenantDeviceRecord {
  std::string uuid;
  int index = 0;
  std::string model;
  std::uint64_t device_memory_bytes = 0;
  std::uint64_t memory_limit_bytes = 0;
  std::uint32_t request_share = 0;
  std::uint32_t limit_share = 0;
  bool operator==(const TenantDeviceRecord&) const = default;
};

inline constexpr std::uint64_t kNumberUnknown = ~std::uint64_t{0};  // of a mount namespace

struct TenantRecord {
  std::string id;
  std::string name;
  RunRequest request;  // as asked: what a later `limit` changes one part of
  uid_t user = 0;
  std::optional<gid_t> group;  // may look into the slice's directory; unknown in records of earlier versions
  std::uint64_t created_ms = 0;
  std::string boot;    // of this boot only
  pid_t root_pid = 0;  // 0 until started
  std::uint64_t root_ticks = 0;
  std::uint64_t mount_namespace = 0;  // of the tenant, when it is its own; kNumberUnknown: it has one
  std::uint64_t outer_namespace = 0;  // of who asked: the tenant's must differ from it to be its own
  // Whether a process of it that leaves the limiter out may be ended. Not where it is not known what its `run` allowed:
  // in records of earlier versions, and in one that was made again.
  bool ends_unlimited = false;
  std::string grant_mount;  // its grant among the mounts of who has its view (view_mount.h); found anew, not kept
  std::vector<TenantDeviceRecord> devices;  // in the order of the rows of the grant page

  bool started() const { return root_pid > 0; }
};

base::Json to_json(const TenantRecord& record);
base::Result<TenantRecord> tenant_record_from(const base::Json& json);
base::Result<TenantRecord> load_record(const std::string& path);
base::Result<void> save_record(const std::string& path, const TenantRecord& record);

}  // namespace tensor_fusion::node::hypervisor
