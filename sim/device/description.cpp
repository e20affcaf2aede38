#include "sim/device/description.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <map>
#include <sstream>

#include "sim/device/card_key.h"
#include "sim/device/outline.h"

namespace tensor_fusion::sim::device {
namespace {

[[nodiscard]] std::unexpected<Error> bad(const std::string& message) {
  return std::unexpected(Error{Errc::bad_spec, message});
}

[[nodiscard]] std::string known_profiles() {
  std::string list;
  for (const auto key : builtin_profile_keys()) list += (list.empty() ? "" : ", ") + std::string(key);
  return list;
}

[[nodiscard]] std::uint64_t mix(std::uint64_t h) {
  h ^= h >> 33;
  h *= 0xff51afd7ed558ccdull;
  h ^= h >> 33;
  h *= 0xc4ceb9fe1a85ec53ull;
  h ^= h >> 33;
  return h;
}

// What a machine gives each card by its place: identity, bus address, NUMA node, switch. The same description gives the
// same machine everywhere.
void place_devices(Description& d, const std::vector<std::int32_t>& numa_wish) {
  const auto total = static_cast<std::uint32_t>(d.devices.size());
  std::uint64_t seed = 0xcbf29ce484222325ull;
  for (const DeviceInfo& device : d.devices) {
    for (const char c : std::string_view(device.profile.key))
      seed = (seed ^ static_cast<unsigned char>(c)) * 0x100000001b3ull;
  }
  for (std::uint32_t i = 0; i < total; ++i) {
    DeviceInfo& device = d.devices[i];
    device.index = i;
    const std::uint64_t high = mix(seed + 2 * i + 1);
    const std::uint64_t low = mix(seed + 2 * i + 2);
    for (unsigned b = 0; b < 8; ++b) {
      device.uuid_bytes[b] = static_cast<std::uint8_t>(high >> (56 - 8 * b));
      device.uuid_bytes[8 + b] = static_cast<std::uint8_t>(low >> (56 - 8 * b));
    }
    device.uuid_bytes[6] = static_cast<std::uint8_t>((device.uuid_bytes[6] & 0x0f) | 0x50);
    device.uuid_bytes[8] = static_cast<std::uint8_t>((device.uuid_bytes[8] & 0x3f) | 0x80);
    const auto* u = device.uuid_bytes;
    std::snprintf(device.uuid, sizeof(device.uuid),
                  "GPU-%02x%02x%02x%02x-%02x%02x-%02x%02x-%02x%02x-%02x%02x%02x%02x%02x%02x", u[0], u[1], u[2], u[3],
                  u[4], u[5], u[6], u[7], u[8], u[9], u[10], u[11], u[12], u[13], u[14], u[15]);
    std::snprintf(device.serial, sizeof(device.serial), "%013llu",
                  static_cast<unsigned long long>(low % 10'000'000'000'000ull));
    device.pci_domain = 0;
    device.pci_bus = 0x10 + 0x0f * i;
    device.pci_device = 0;
    const std::uint32_t per_node = total >= 4 ? (total + 1) / 2 : total;
    device.numa_node = numa_wish[i] >= 0 ? numa_wish[i] : static_cast<std::int32_t>(i / per_node);
    device.module_id = i + 1;
    device.pci_switch = i / 2;
    std::snprintf(device.cpu_list, sizeof(device.cpu_list), "%d-%d", device.numa_node * 32, device.numa_node * 32 + 31);
  }
}

constexpr std::uint64_t kLeastMemory = 16ull << 20;

[[nodiscard]] std::expected<void, Error> add(Description& d, const Profile& profile, double count,
                                             const std::string& where) {
  if (count < 1 || count != std::floor(count) || count > kMaxMachineDevices ||
      d.devices.size() + static_cast<std::size_t>(count) > kMaxMachineDevices) {
    return bad(where + ": a machine has 1 to " + std::to_string(kMaxMachineDevices) + " cards");
  }
  if (profile.memory_bytes < kLeastMemory) return bad(where + ": memory: a card has 16 MiB or more");
  DeviceInfo device{};
  device.profile = profile;
  d.devices.insert(d.devices.end(), static_cast<std::size_t>(count), device);
  return {};
}

[[nodiscard]] std::string line_of(const Outline& node) { return "line " + std::to_string(node.line); }

// Sets on a profile all keys of a map but those that say where it comes from and goes to.
[[nodiscard]] std::expected<void, Error> apply(Profile& profile, const Outline& map) {
  if (map.kind != Outline::Kind::map) return bad(line_of(map) + ": a map is wanted");
  for (std::size_t i = 0; i < map.keys.size(); ++i) {
    const std::string& key = map.keys[i];
    const Outline& value = map.values[i];
    if (key == "profile" || key == "count" || key == "numa" || key == "base") continue;
    if (value.kind != Outline::Kind::scalar) return bad(line_of(value) + ": " + key + " wants one value");
    if (auto set = set_key(profile, key, value.scalar, line_of(value)); !set) return set;
  }
  return {};
}

[[nodiscard]] std::expected<double, Error> number_at(const Outline& map, std::string_view key, double otherwise) {
  const Outline* node = map.find(key);
  if (node == nullptr) return otherwise;
  const auto value = number_of(node->scalar);
  if (!value) return bad(line_of(*node) + ": " + std::string(key) + ": " + value.error().message);
  return *value;
}

// The machine file's own profiles, by name.
[[nodiscard]] std::expected<std::map<std::string, Profile>, Error> own_profiles(const Outline& root) {
  std::map<std::string, Profile> own;
  const Outline* profiles = root.find("profiles");
  if (profiles == nullptr) return own;
  for (std::size_t i = 0; i < profiles->keys.size(); ++i) {
    const std::string& key = profiles->keys[i];
    const Outline& node = profiles->values[i];
    const Outline* base = node.find("base");
    if (base == nullptr) return bad(line_of(node) + ": profile " + key + ": 'base' names the profile it starts from");
    auto profile = builtin_profile(base->scalar);
    if (!profile)
      return bad(line_of(*base) + ": there is no profile '" + base->scalar + "'; known are " + known_profiles());
    if (key.empty() || key.size() >= sizeof(profile->key))
      return bad(line_of(node) + ": a profile's name has 1 to 31 characters");
    std::memset(profile->key, 0, sizeof(profile->key));
    std::memcpy(profile->key, key.data(), key.size());
    if (auto applied = apply(*profile, node); !applied) return std::unexpected(applied.error());
    own[key] = *profile;
  }
  return own;
}

[[nodiscard]] std::expected<void, Error> add_devices(Description& d, const Outline& root,
                                                     std::vector<std::int32_t>& numa) {
  const auto own = own_profiles(root);
  if (!own) return std::unexpected(own.error());
  const Outline* devices = root.find("devices");
  if (devices == nullptr || devices->kind != Outline::Kind::list || devices->values.empty())
    return bad("devices: a list with at least one card is wanted");
  for (const Outline& node : devices->values) {
    const Outline* key = node.find("profile");
    if (key == nullptr) return bad(line_of(node) + ": 'profile' is missing");
    std::optional<Profile> profile = builtin_profile(key->scalar);
    if (const auto found = own->find(key->scalar); found != own->end()) profile = found->second;
    if (!profile)
      return bad(line_of(*key) + ": there is no profile '" + key->scalar + "'; known are " + known_profiles());
    if (const Outline* defaults = root.find("defaults")) {
      if (auto applied = apply(*profile, *defaults); !applied) return applied;
    }
    if (auto applied = apply(*profile, node); !applied) return applied;
    const auto count = number_at(node, "count", 1);
    if (!count) return std::unexpected(count.error());
    const auto node_number = number_at(node, "numa", -1);
    if (!node_number) return std::unexpected(node_number.error());
    if (*node_number > 63) return bad(line_of(node) + ": numa: 0 to 63 are wanted");
    if (auto added = add(d, *profile, *count, line_of(node)); !added) return added;
    numa.resize(d.devices.size(), static_cast<std::int32_t>(*node_number));
  }
  return {};
}

}  // namespace

std::expected<Description, Error> parse_yaml_description(const std::string& yaml) {
  if (yaml.size() >= kMaxDescription) return bad("the machine description is too long");
  const auto root = read_outline(yaml);
  if (!root) return bad(root.error());
  if (root->kind != Outline::Kind::map) return bad("a machine description is a map with the key 'devices'");
  Description d;
  for (std::size_t i = 0; i < root->keys.size(); ++i) {
    const std::string& key = root->keys[i];
    const Outline& node = root->values[i];
    if (key == "driver") {
      if (node.scalar.empty() || node.scalar.size() > 31)
        return bad(line_of(node) + ": driver: a version like 580.95.05 is wanted");
      d.driver_version = node.scalar;
    } else if (key == "cuda") {
      const auto version = number_of(node.scalar);
      if (!version || *version < 8 || *version > 99)
        return bad(line_of(node) + ": cuda: a version like 13.0 is wanted");
      const double major = std::floor(*version);  // 12.4 is 12040
      d.cuda_version = static_cast<std::uint32_t>(std::lround(major * 1000 + (*version - major) * 100));
    } else if (key != "devices" && key != "defaults" && key != "profiles") {
      return bad(line_of(node) + ": there is no key '" + key +
                 "'; known are driver, cuda, defaults, profiles, devices");
    }
  }
  std::vector<std::int32_t> numa;
  if (auto added = add_devices(d, *root, numa); !added) return std::unexpected(added.error());
  place_devices(d, numa);
  d.text = yaml;
  return d;
}

std::expected<Description, Error> parse_list_description(std::string_view list) {
  Description d;
  d.text = std::string(list);
  const std::string_view cards = list.substr(0, list.find(';'));
  for (std::size_t at = 0; at <= cards.size();) {
    const std::size_t end = std::min(cards.find(',', at), cards.size());
    std::string_view item = cards.substr(at, end - at);
    at = end + 1;
    double count = 1;
    if (const auto x = item.find('x');
        x != std::string_view::npos && x > 0 && item.find_first_not_of("0123456789") == x) {
      count = number_of(item.substr(0, x)).value_or(0);
      item.remove_prefix(x + 1);
    }
    auto profile = builtin_profile(item);
    if (!profile) {
      return bad("there is no card '" + std::string(item) +
                 "'; write a card, '2xh100', 'h100,2xt4', or the path of a YAML "
                 "file; the cards are " +
                 known_profiles());
    }
    std::string_view rest = list.substr(std::min(cards.size(), list.size()));
    while (!rest.empty()) {
      rest.remove_prefix(1);
      const std::string_view pair = rest.substr(0, rest.find(';'));
      rest.remove_prefix(pair.size());
      const auto equals = pair.find('=');
      if (equals == std::string_view::npos) return bad("'" + std::string(pair) + "': key=value is wanted after ';'");
      if (auto set = set_key(*profile, std::string(pair.substr(0, equals)), pair.substr(equals + 1), std::string(list));
          !set) {
        return std::unexpected(set.error());
      }
    }
    if (auto added = add(d, *profile, count, std::string(list)); !added) return std::unexpected(added.error());
  }
  place_devices(d, std::vector<std::int32_t>(d.devices.size(), -1));
  return d;
}

std::expected<Description, Error> read_description(const std::string& given) {
  const bool path = given.find('/') != std::string::npos || given.ends_with(".yaml") || given.ends_with(".yml");
  std::expected<Description, Error> d;
  if (path) {
    if (std::filesystem::is_directory(given)) return bad("TENSOR_FUSION_SIM: '" + given + "' is a folder, no file");
    std::ifstream file(given);
    if (!file) return bad("TENSOR_FUSION_SIM: cannot read the file '" + given + "'");
    std::ostringstream content;
    content << file.rdbuf();
    d = parse_yaml_description(content.str());
  } else {
    d = parse_list_description(given);
  }
  if (!d) {
    const std::string& why = d.error().message;  // begins with the list itself where a part of it is wrong
    return bad("TENSOR_FUSION_SIM=" + (why.starts_with(given) ? why : given + ": " + why));
  }
  d->name = given;
  return d;
}

}  // namespace tensor_fusion::sim::device
