#include "sim/device/profile.h"

#include <cstring>
#include <string>

namespace tensor_fusion::sim::device {
namespace {

constexpr std::uint64_t kMi = 1ull << 20;
constexpr std::uint64_t kGi = 1ull << 30;

void put(char* to, std::size_t size, std::string_view text) {
  const std::size_t n = text.size() < size - 1 ? text.size() : size - 1;
  std::memcpy(to, text.data(), n);
  to[n] = 0;
}
template <std::size_t N>
void put(char (&to)[N], std::string_view text) {
  put(to, N, text);
}

// What all cards have in common, and what a plain one does.
Profile plain(std::string_view key, std::string_view name) {
  Profile p{};
  put(p.key, key);
  put(p.name, name);
  put(p.vbios, "96.00.89.00.01");
  p.memory_reserved_bytes = 512 * kMi;
  p.bar1_bytes = 128 * kGi;
  p.warp_size = 32;
  p.max_blocks_per_sm = 32;
  p.max_threads_per_block = 1024;
  p.registers_per_sm = p.registers_per_block = 65536;
  p.shared_bytes_per_block = 48 * 1024;
  p.copy_engines = 3;
  p.ecc = 1;
  p.slice_us = 2000;
  p.switch_us = 20;
  p.launch_overhead_us = 2;
  p.min_kernel_us = 1.5;
  p.copy_latency_us = 1;
  p.instructions_per_s = 0.7e9;
  p.speed = 1;
  p.stall_ms = 10'000;
  return p;
}

struct MigRow {
  const char* suffix;
  std::uint32_t id, constant, slices, slots, max;
  std::uint32_t memory_parts;  // of `memory_slots` equal parts
  std::uint32_t count;
  std::uint32_t starts[kMaxMigPlacements];
};
// The sizes of a seven-slice part; ids and placements are the same on every one of them.
constexpr MigRow kSevenSlices[] = {
    {"1g", 19, 0, 1, 1, 7, 1, 7, {0, 1, 2, 3, 4, 5, 6}},
    {"1g+me", 20, 7, 1, 1, 1, 1, 7, {0, 1, 2, 3, 4, 5, 6}},
    {"1g*2", 15, 9, 1, 2, 4, 2, 4, {0, 2, 4, 6}},
    {"2g", 14, 1, 2, 2, 3, 2, 3, {0, 2, 4}},
    {"3g", 9, 2, 3, 4, 2, 4, 2, {0, 4}},
    {"4g", 5, 3, 4, 4, 1, 4, 1, {0}},
    {"7g", 0, 4, 7, 8, 1, 8, 1, {0}},
};

void cut_in_seven(Profile& p, std::uint32_t sms_per_slice, const std::uint32_t (&gigabytes)[7]) {
  p.mig_capable = 1;
  p.mig_compute_slices = 7;
  p.mig_memory_slots = 8;
  p.mig_profile_count = 7;
  for (std::size_t i = 0; i < 7; ++i) {
    const MigRow& row = kSevenSlices[i];
    MigProfile& m = p.mig_profiles[i];
    const bool media = std::strstr(row.suffix, "+me") != nullptr;
    put(m.name, std::to_string(row.slices) + "g." + std::to_string(gigabytes[i]) + "gb" + (media ? "+me" : ""));
    m.id = row.id;
    m.constant = row.constant;
    m.compute_slices = row.slices;
    m.memory_slots = row.slots;
    m.sm_count = row.slices == 7 ? sms_per_slice * 7 : sms_per_slice * row.slices;
    m.max_instances = row.max;
    m.copy_engines = row.slices;
    m.decoders = row.slices == 1 && !media ? 0 : row.slices;
    m.memory_bytes = p.memory_bytes / 8 * row.memory_parts / (2 * kMi) * (2 * kMi);
    m.placement_count = row.count;
    std::memcpy(m.placements, row.starts, sizeof(m.placements));
  }
}

Profile h100() {
  Profile p = plain("h100", "NVIDIA H100 80GB HBM3");
  put(p.board_part_number, "692-2G520-0200-000");
  p.architecture = Architecture::hopper;
  p.capability_major = 9;
  p.capability_minor = 0;
  p.pci_device_id = 0x233010de;
  p.pci_subsystem_id = 0x16c110de;
  p.memory_bytes = 81079 * kMi;
  p.memory_reserved_bytes = 480 * kMi;
  p.context_overhead_bytes = 400 * kMi;
  p.memory_bus_bits = 5120;
  p.l2_bytes = 50 * kMi;
  p.sm_count = 132;
  p.cores_per_sm = 128;
  p.max_threads_per_sm = 2048;
  p.shared_bytes_per_sm = 228 * 1024;
  p.shared_bytes_per_block_optin = 227 * 1024;
  p.shared_bytes_reserved_per_block = 1024;
  p.sm_clock_mhz = 1980;
  p.memory_clock_mhz = 2619;
  p.power_limit_mw = 700'000;
  p.power_idle_mw = 70'000;
  p.pcie_generation = 5;
  p.pcie_width = 16;
  p.fp32_tflops = 66.9;
  p.fp16_tflops = 989;
  p.memory_gb_per_s = 3352;
  p.pcie_gb_per_s = 52;
  p.nvlink_gb_per_s = 450;
  p.nvlink_links = 18;
  p.nvlink_version = 4;
  p.link_kind = LinkKind::nvswitch;
  cut_in_seven(p, 16, {10, 10, 20, 20, 40, 40, 80});
  p.mig_profiles[6].sm_count = 132;
  return p;
}

Profile h200() {
  Profile p = h100();
  put(p.key, "h200");
  put(p.name, "NVIDIA H200");
  put(p.board_part_number, "699-2G520-0287-000");
  p.pci_device_id = 0x233510de;
  p.memory_bytes = 143156 * kMi;
  p.memory_reserved_bytes = 615 * kMi;
  p.memory_bus_bits = 6144;
  p.memory_clock_mhz = 3201;
  p.memory_gb_per_s = 4917;
  p.instructions_per_s = 0.75e9;
  cut_in_seven(p, 16, {18, 18, 35, 35, 71, 71, 141});
  p.mig_profiles[6].sm_count = 132;
  return p;
}

Profile a100() {
  Profile p = plain("a100-40g", "NVIDIA A100-SXM4-40GB");
  put(p.board_part_number, "692-2G506-0200-002");
  put(p.vbios, "92.00.45.00.03");
  p.architecture = Architecture::ampere;
  p.capability_major = 8;
  p.capability_minor = 0;
  p.pci_device_id = 0x20b010de;
  p.pci_subsystem_id = 0x144e10de;
  p.memory_bytes = 40442 * kMi;
  p.memory_reserved_bytes = 518 * kMi;
  p.context_overhead_bytes = 360 * kMi;
  p.bar1_bytes = 64 * kGi;
  p.memory_bus_bits = 5120;
  p.l2_bytes = 40 * kMi;
  p.sm_count = 108;
  p.cores_per_sm = 64;
  p.max_threads_per_sm = 2048;
  p.shared_bytes_per_sm = 164 * 1024;
  p.shared_bytes_per_block_optin = 163 * 1024;
  p.shared_bytes_reserved_per_block = 1024;
  p.sm_clock_mhz = 1410;
  p.memory_clock_mhz = 1215;
  p.power_limit_mw = 400'000;
  p.power_idle_mw = 55'000;
  p.pcie_generation = 4;
  p.pcie_width = 16;
  p.fp32_tflops = 19.5;
  p.fp16_tflops = 312;
  p.memory_gb_per_s = 1555;
  p.pcie_gb_per_s = 25;
  p.nvlink_gb_per_s = 300;
  p.nvlink_links = 12;
  p.nvlink_version = 3;
  p.link_kind = LinkKind::nvswitch;
  p.instructions_per_s = 0.6e9;
  cut_in_seven(p, 14, {5, 5, 10, 10, 20, 20, 40});
  return p;
}

Profile l40s() {
  Profile p = plain("l40s", "NVIDIA L40S");
  put(p.board_part_number, "900-2G133-0080-000");
  put(p.vbios, "95.02.66.00.02");
  p.architecture = Architecture::ada;
  p.capability_major = 8;
  p.capability_minor = 9;
  p.pci_device_id = 0x26b910de;
  p.pci_subsystem_id = 0x185110de;
  p.memory_bytes = 45468 * kMi;
  p.memory_reserved_bytes = 600 * kMi;
  p.context_overhead_bytes = 330 * kMi;
  p.bar1_bytes = 64 * kGi;
  p.memory_bus_bits = 384;
  p.l2_bytes = 96 * kMi;
  p.sm_count = 142;
  p.cores_per_sm = 128;
  p.max_threads_per_sm = 1536;
  p.max_blocks_per_sm = 24;
  p.shared_bytes_per_sm = 100 * 1024;
  p.shared_bytes_per_block_optin = 99 * 1024;
  p.shared_bytes_reserved_per_block = 1024;
  p.sm_clock_mhz = 2520;
  p.memory_clock_mhz = 9001;
  p.power_limit_mw = 350'000;
  p.power_idle_mw = 35'000;
  p.pcie_generation = 4;
  p.pcie_width = 16;
  p.fp32_tflops = 91.6;
  p.fp16_tflops = 362;
  p.memory_gb_per_s = 864;
  p.pcie_gb_per_s = 25;
  p.instructions_per_s = 0.65e9;
  return p;
}

Profile t4() {
  Profile p = plain("t4", "Tesla T4");
  put(p.board_part_number, "900-2G183-0000-001");
  put(p.vbios, "90.04.A7.00.01");
  p.architecture = Architecture::turing;
  p.capability_major = 7;
  p.capability_minor = 5;
  p.pci_device_id = 0x1eb810de;
  p.pci_subsystem_id = 0x12a210de;
  p.memory_bytes = 14910 * kMi;
  p.memory_reserved_bytes = 450 * kMi;
  p.context_overhead_bytes = 105 * kMi;
  p.bar1_bytes = 256 * kMi;
  p.memory_bus_bits = 256;
  p.l2_bytes = 4 * kMi;
  p.sm_count = 40;
  p.cores_per_sm = 64;
  p.max_threads_per_sm = 1024;
  p.max_blocks_per_sm = 16;
  p.shared_bytes_per_sm = 64 * 1024;
  p.shared_bytes_per_block_optin = 64 * 1024;
  p.sm_clock_mhz = 1590;
  p.memory_clock_mhz = 5001;
  p.power_limit_mw = 70'000;
  p.power_idle_mw = 9'000;
  p.pcie_generation = 3;
  p.pcie_width = 16;
  p.fp32_tflops = 8.1;
  p.fp16_tflops = 65;
  p.memory_gb_per_s = 320;
  p.pcie_gb_per_s = 12;
  p.instructions_per_s = 0.5e9;
  return p;
}

Profile tiny() {
  Profile p = t4();
  put(p.key, "tiny");
  put(p.name, "Simulated Tiny GPU");
  put(p.board_part_number, "000-00000-0000-000");
  p.memory_bytes = kGi;
  p.memory_reserved_bytes = 16 * kMi;
  p.context_overhead_bytes = 8 * kMi;
  p.sm_count = 4;
  p.power_limit_mw = 20'000;
  p.power_idle_mw = 2'000;
  p.fp32_tflops = 0.8;
  p.fp16_tflops = 6.5;
  p.memory_gb_per_s = 40;
  return p;
}

constexpr std::string_view kKeys[] = {"h100", "h200", "a100-40g", "l40s", "t4", "tiny"};

}  // namespace

std::optional<Profile> builtin_profile(std::string_view key) {
  if (key == "h100") return h100();
  if (key == "h200") return h200();
  if (key == "a100-40g" || key == "a100") return a100();
  if (key == "l40s") return l40s();
  if (key == "t4") return t4();
  if (key == "tiny") return tiny();
  return std::nullopt;
}

std::span<const std::string_view> builtin_profile_keys() { return kKeys; }

}  // namespace tensor_fusion::sim::device
