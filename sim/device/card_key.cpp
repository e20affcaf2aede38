#include "sim/device/card_key.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstring>
#include <functional>
#include <map>
#include <vector>

namespace tensor_fusion::sim::device {

std::expected<double, Invalid> number_of(std::string_view text) {
  double value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc{} || end != text.data() + text.size() || !std::isfinite(value) || value < 0) {
    return std::unexpected(Invalid{"'" + std::string(text) + "' is not a number of zero or more"});
  }
  return value;
}

namespace {

using Set = std::expected<void, Invalid>;

// "24Gi", "512Mi", "80G", plain bytes.
[[nodiscard]] std::expected<double, Invalid> bytes_of(std::string_view text) {
  static constexpr struct {
    std::string_view suffix;
    double factor;
  } kSuffixes[] = {{"Ki", 1024.0}, {"Mi", 1048576.0}, {"Gi", 1073741824.0}, {"Ti", 1099511627776.0},
                   {"K", 1e3},     {"M", 1e6},        {"G", 1e9},           {"T", 1e12}};
  for (const auto& [suffix, factor] : kSuffixes) {
    if (!text.ends_with(suffix)) continue;
    auto value = number_of(text.substr(0, text.size() - suffix.size()));
    if (value) *value *= factor;
    return value;
  }
  return number_of(text);
}

using Setter = std::function<Set(Profile&, std::string_view)>;

template <typename T>
Setter number(T Profile::* field, double least, double most) {
  return [=](Profile& p, std::string_view text) -> Set {
    const auto value = number_of(text);
    if (!value) return std::unexpected(value.error());
    if (*value < least || *value > most) {
      return std::unexpected(
          Invalid{"'" + std::string(text) + "' is outside " + std::to_string(least) + " … " + std::to_string(most)});
    }
    p.*field = static_cast<T>(*value);
    return {};
  };
}
template <typename T>
Setter bytes(T Profile::* field) {
  return [=](Profile& p, std::string_view text) -> Set {
    const auto value = bytes_of(text);
    if (!value) return std::unexpected(value.error());
    if (*value > (sizeof(T) == 4 ? 4e9 : 1e15))
      return std::unexpected(Invalid{"'" + std::string(text) + "' is too large"});
    p.*field = static_cast<T>(*value);
    return {};
  };
}
template <std::size_t N>
Setter text(char (Profile::*field)[N]) {
  return [=](Profile& p, std::string_view value) -> Set {
    if (value.size() >= N) return std::unexpected(Invalid{"'" + std::string(value) + "' is too long"});
    std::memset(p.*field, 0, N);
    std::memcpy(p.*field, value.data(), value.size());
    return {};
  };
}

// Every key that a machine description may set on a card.
const std::map<std::string, Setter, std::less<>>& keys() {
  static const std::map<std::string, Setter, std::less<>> table = {
      {"name", text(&Profile::name)},
      {"vbios", text(&Profile::vbios)},
      {"memory", bytes(&Profile::memory_bytes)},
      {"memory_reserved", bytes(&Profile::memory_reserved_bytes)},
      {"context_overhead", bytes(&Profile::context_overhead_bytes)},
      {"bar1", bytes(&Profile::bar1_bytes)},
      {"l2", bytes(&Profile::l2_bytes)},
      {"memory_bus_bits", number(&Profile::memory_bus_bits, 1, 65536)},
      {"capability_major", number(&Profile::capability_major, 5, 20)},
      {"capability_minor", number(&Profile::capability_minor, 0, 9)},
      {"sm_count", number(&Profile::sm_count, 1, 1024)},
      {"cores_per_sm", number(&Profile::cores_per_sm, 1, 1024)},
      {"max_threads_per_sm", number(&Profile::max_threads_per_sm, 32, 4096)},
      {"max_blocks_per_sm", number(&Profile::max_blocks_per_sm, 1, 64)},
      {"max_threads_per_block", number(&Profile::max_threads_per_block, 32, 4096)},
      {"registers_per_sm", number(&Profile::registers_per_sm, 1024, 1 << 20)},
      {"registers_per_block", number(&Profile::registers_per_block, 1024, 1 << 20)},
      {"shared_per_sm", bytes(&Profile::shared_bytes_per_sm)},
      {"shared_per_block", bytes(&Profile::shared_bytes_per_block)},
      {"shared_per_block_optin", bytes(&Profile::shared_bytes_per_block_optin)},
      {"copy_engines", number(&Profile::copy_engines, 1, 16)},
      {"sm_clock_mhz", number(&Profile::sm_clock_mhz, 1, 10000)},
      {"memory_clock_mhz", number(&Profile::memory_clock_mhz, 1, 20000)},
      {"power_limit_mw", number(&Profile::power_limit_mw, 1, 4e6)},
      {"power_idle_mw", number(&Profile::power_idle_mw, 0, 4e6)},
      {"pcie_generation", number(&Profile::pcie_generation, 1, 7)},
      {"pcie_width", number(&Profile::pcie_width, 1, 32)},
      {"fp32_tflops", number(&Profile::fp32_tflops, 0.001, 1e6)},
      {"fp16_tflops", number(&Profile::fp16_tflops, 0.001, 1e6)},
      {"memory_gb_per_s", number(&Profile::memory_gb_per_s, 0.001, 1e6)},
      {"pcie_gb_per_s", number(&Profile::pcie_gb_per_s, 0.001, 1e6)},
      {"nvlink_gb_per_s", number(&Profile::nvlink_gb_per_s, 0, 1e6)},
      {"nvlink_links", number(&Profile::nvlink_links, 0, 36)},
      {"nvlink_version", number(&Profile::nvlink_version, 0, 9)},
      {"ecc", number(&Profile::ecc, 0, 1)},
      {"slice_us", number(&Profile::slice_us, 1, 1e7)},
      {"switch_us", number(&Profile::switch_us, 0, 1e6)},
      {"launch_overhead_us", number(&Profile::launch_overhead_us, 0, 1e6)},
      {"min_kernel_us", number(&Profile::min_kernel_us, 0, 1e6)},
      {"copy_latency_us", number(&Profile::copy_latency_us, 0, 1e6)},
      {"instructions_per_s", number(&Profile::instructions_per_s, 1e3, 1e18)},
      {"speed", number(&Profile::speed, 1e-6, 1e6)},
      {"stall_ms", number(&Profile::stall_ms, 1, 1e9)},
      {"link",
       [](Profile& p, std::string_view value) -> Set {
         if (value == "none")
           p.link_kind = LinkKind::none;
         else if (value == "nvlink")
           p.link_kind = LinkKind::nvlink_mesh;
         else if (value == "nvswitch")
           p.link_kind = LinkKind::nvswitch;
         else
           return std::unexpected(Invalid{"'" + std::string(value) + "' is none of none, nvlink, nvswitch"});
         return {};
       }},
  };
  return table;
}

// Edit distance, for the nearest known word.
[[nodiscard]] std::size_t distance(std::string_view a, std::string_view b) {
  std::vector<std::size_t> row(b.size() + 1);
  for (std::size_t j = 0; j <= b.size(); ++j) row[j] = j;
  for (std::size_t i = 1; i <= a.size(); ++i) {
    std::size_t diagonal = row[0];
    row[0] = i;
    for (std::size_t j = 1; j <= b.size(); ++j) {
      const std::size_t up = row[j];
      row[j] = std::min({row[j] + 1, row[j - 1] + 1, diagonal + (a[i - 1] == b[j - 1] ? 0u : 1u)});
      diagonal = up;
    }
  }
  return row[b.size()];
}

}  // namespace

std::expected<void, Error> set_key(Profile& profile, const std::string& key, std::string_view value,
                                   const std::string& where) {
  const auto bad = [](const std::string& message) { return std::unexpected(Error{Errc::bad_spec, message}); };
  const auto found = keys().find(key);
  if (found == keys().end()) {
    std::string nearest;
    std::size_t best = ~std::size_t{0};
    for (const auto& [name, setter] : keys()) {
      if (const auto d = distance(key, name); d < best) {
        best = d;
        nearest = name;
      }
    }
    return bad(where + ": there is no key '" + key + "'; did you mean '" + nearest + "'?");
  }
  if (const Set set = found->second(profile, value); !set) return bad(where + ": " + key + ": " + set.error().message);
  return {};
}

}  // namespace tensor_fusion::sim::device
