#pragma once
// One slice as people see it: who it is, what it may use, what it uses, and what is wrong with it. Read from the
// hypervisor's `list` reply (missing fields become zeros), shown as a table or as JSON. Pure.
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/json.h"
#include "view/table.h"

namespace tensor_fusion::view {

struct SliceDevice {
  std::string uuid;
  int index = 0;
  std::uint64_t memory_limit_bytes = 0;  // 0: no limit below the card's
  std::uint64_t memory_used_bytes = 0;   // what the slice's own book and the driver together say
  std::uint64_t memory_peak_bytes = 0;
  std::uint32_t request_share = 0;  // basis points of the device's time
  std::uint32_t limit_share = 0;
  std::uint32_t used_share = 0;  // over the last second
  std::uint64_t held_launches = 0;
  std::uint64_t refused = 0;
};

struct SliceProcess {
  std::int64_t pid = 0;
  std::string command;
  std::string limiter;  // as the hypervisor judges it: "live", or what is missing
  std::uint64_t memory_bytes = 0;
};

struct Slice {
  std::string id;
  std::string name;
  std::string command;
  std::string state;
  std::string user;
  std::string qos;
  std::int64_t pid = 0;
  std::uint64_t created_ms = 0;  // since 1970
  std::vector<std::string> alarms;
  std::vector<SliceDevice> devices;
  std::vector<SliceProcess> processes;
};

// A process that uses a GPU without a limiter: beside all slices, or in one whose limiter it has left out.
struct Stranger {
  std::int64_t pid = 0;
  std::string uuid;
  std::string command;
  std::uint64_t memory_bytes = 0;
  std::string slice;  // its name, or empty
};

struct SliceList {
  std::vector<Slice> slices;
  std::vector<Stranger> strangers;
};

SliceList slice_list_from(const base::Json& reply);
base::Json to_json(const SliceList& list);
std::string to_table(const SliceList& list, std::uint64_t now_ms, const Style& style);

std::string share_text(std::uint32_t basis_points);                            // "30%", "12.5%"
std::string compute_text(const SliceDevice& device);                           // "30%", "10%-60%"
std::string compute_usage_text(const SliceDevice& device);                     // "29.9%/30%", "5%/10%-60%"
std::string age_text(std::uint64_t ms);                                        // "42s", "3m", "5h", "2d"
std::string memory_text(std::uint64_t used_bytes, std::uint64_t limit_bytes);  // "1.2Gi/2Gi"

}  // namespace tensor_fusion::view
