// Where a card sits: PCIe, processors, NVLink, fabric.
#include <algorithm>
#include <climits>
#include <cstdio>
#include <cstring>

#include "sim/nvml/session.h"

namespace tensor_fusion::sim::nvml {
namespace {

constexpr unsigned kCpusPerNode = 32;  // as Machine's cpu_list says

[[nodiscard]] int common_ancestor(const device::DeviceInfo& a, const device::DeviceInfo& b) {
  if (a.index == b.index) return abi::kTopologyInternal;
  if (a.pci_switch == b.pci_switch && a.numa_node == b.numa_node) return abi::kTopologySingle;
  return a.numa_node == b.numa_node ? abi::kTopologyNode : abi::kTopologySystem;
}

[[nodiscard]] bool linked(const device::Profile& p) {
  return p.link_kind != device::LinkKind::none && p.nvlink_links != 0;
}
[[nodiscard]] bool linked(const Target& a, const Target& b) {
  return linked(a.profile) && linked(b.profile) && a.profile.link_kind == b.profile.link_kind && a.device != b.device;
}

// Both cards, resolved; a MIG device counts as nothing here.
template <typename Body>
[[nodiscard]] Return with_pair(abi::Device a, abi::Device b, Body body) {
  return with_card(a, [&](Target& first) { return with_card(b, [&](Target& second) { return body(first, second); }); });
}

[[nodiscard]] Return put_mask(unsigned size, unsigned long* out, unsigned from, unsigned count) {
  if (size == 0 || out == nullptr) return abi::kInvalidArgument;
  std::fill(out, out + size, 0ul);
  constexpr unsigned kBits = sizeof(unsigned long) * CHAR_BIT;
  for (unsigned bit = from; bit < from + count && bit < size * kBits; ++bit) out[bit / kBits] |= 1ul << (bit % kBits);
  return abi::kSuccess;
}

// The card at the other end of a link of a mesh: the links are dealt out among the other cards in turn.
[[nodiscard]] std::optional<unsigned> link_peer(Target& t, unsigned link) {
  std::vector<unsigned> peers;
  for (unsigned d = 0; d < t.machine.device_count(); ++d) {
    if (d != t.device && t.machine.device(d).profile.link_kind == device::LinkKind::nvlink_mesh) peers.push_back(d);
  }
  if (peers.empty()) return {};
  return peers[link % peers.size()];
}

template <typename Body>
[[nodiscard]] Return with_link(abi::Device handle, unsigned link, Body body) {
  return with_card(handle, [&](Target& t) -> Return {
    if (!linked(t.profile)) return abi::kNotSupported;
    if (link >= t.profile.nvlink_links) return abi::kInvalidArgument;
    return body(t);
  });
}

}  // namespace

extern "C" {

Return nvmlDeviceGetTopologyCommonAncestor(abi::Device a, abi::Device b, int* out) {
  return with_pair(a, b, [&](Target& x, Target& y) -> Return {
    if (out == nullptr) return abi::kInvalidArgument;
    *out = common_ancestor(x.card, y.card);
    return abi::kSuccess;
  });
}

Return nvmlDeviceGetTopologyNearestGpus(abi::Device handle, int level, unsigned* count, abi::Device* out) {
  return with_card(handle, [&](Target& t) -> Return {
    if (count == nullptr || level < abi::kTopologyInternal || level > abi::kTopologySystem)
      return abi::kInvalidArgument;
    std::vector<abi::Device> near;
    for (const unsigned d : enumerated()) {
      if (d != t.device && common_ancestor(t.card, t.machine.device(d)) == level) near.push_back(device_handle(d));
    }
    if (out == nullptr) {
      *count = static_cast<unsigned>(near.size());
      return abi::kSuccess;
    }
    *count = std::min(*count, static_cast<unsigned>(near.size()));
    std::copy_n(near.begin(), *count, out);
    return abi::kSuccess;
  });
}

Return nvmlSystemGetTopologyGpuSet(unsigned cpu, unsigned* count, abi::Device* out) {
  const auto machine = session();
  if (!machine) return abi::kUninitialized;
  if (count == nullptr) return abi::kInvalidArgument;
  std::vector<abi::Device> set;
  for (const unsigned d : enumerated()) {
    if (machine->device(d).numa_node == static_cast<int>(cpu / kCpusPerNode)) set.push_back(device_handle(d));
  }
  if (out == nullptr) {
    *count = static_cast<unsigned>(set.size());
    return abi::kSuccess;
  }
  *count = std::min(*count, static_cast<unsigned>(set.size()));
  std::copy_n(set.begin(), *count, out);
  return abi::kSuccess;
}

Return nvmlDeviceOnSameBoard(abi::Device a, abi::Device b, int* out) {
  return with_pair(a, b, [&](Target& x, Target& y) -> Return {
    if (out == nullptr) return abi::kInvalidArgument;
    *out = x.device == y.device ? 1 : 0;
    return abi::kSuccess;
  });
}

Return nvmlDeviceGetP2PStatus(abi::Device a, abi::Device b, int capability, int* out) {
  return with_pair(a, b, [&](Target& x, Target& y) -> Return {
    if (out == nullptr || capability < abi::kP2pRead || capability > 5) return abi::kInvalidArgument;
    const bool near = x.card.numa_node == y.card.numa_node;
    bool yes = false;
    switch (capability) {
      case abi::kP2pNvlink:
        yes = linked(x, y);
        break;
      case abi::kP2pAtomics:
        yes = linked(x, y);
        break;
      case abi::kP2pPci:
        yes = near && x.device != y.device;
        break;
      default:
        yes = (linked(x, y) || near) && x.device != y.device;
    }
    *out = yes                                                               ? abi::kP2pOk
           : capability == abi::kP2pNvlink || capability == abi::kP2pAtomics ? abi::kP2pNotSupported
                                                                             : abi::kP2pChipset;
    return abi::kSuccess;
  });
}

Return nvmlDeviceGetCpuAffinity(abi::Device handle, unsigned size, unsigned long* out) {
  return with_card(handle, [&](Target& t) {
    return put_mask(size, out, static_cast<unsigned>(t.card.numa_node) * kCpusPerNode, kCpusPerNode);
  });
}
Return nvmlDeviceGetCpuAffinityWithinScope(abi::Device handle, unsigned size, unsigned long* out, unsigned scope) {
  if (scope > 1) return session() ? abi::kInvalidArgument : abi::kUninitialized;
  return nvmlDeviceGetCpuAffinity(handle, size, out);
}
Return nvmlDeviceGetMemoryAffinity(abi::Device handle, unsigned size, unsigned long* out, unsigned scope) {
  if (scope > 1) return session() ? abi::kInvalidArgument : abi::kUninitialized;
  return with_card(handle, [&](Target& t) { return put_mask(size, out, static_cast<unsigned>(t.card.numa_node), 1); });
}
// The node of the card's own memory: these cards' memory is no NUMA node of the host.
Return nvmlDeviceGetNumaNodeId(abi::Device handle, unsigned*) {
  return with_card(handle, [](Target&) { return abi::kNotSupported; });
}

Return nvmlDeviceGetNvLinkState(abi::Device handle, unsigned link, int* out) {
  return with_link(handle, link, [&](Target&) -> Return {
    if (out == nullptr) return abi::kInvalidArgument;
    *out = 1;
    return abi::kSuccess;
  });
}
Return nvmlDeviceGetNvLinkVersion(abi::Device handle, unsigned link, unsigned* out) {
  return with_link(handle, link, [&](Target& t) -> Return {
    if (out == nullptr) return abi::kInvalidArgument;
    *out = t.profile.nvlink_version;
    return abi::kSuccess;
  });
}
// 0 P2P, 1 system memory, 2 P2P atomics, 3 system memory atomics, 4 SLI bridge, 5 valid
Return nvmlDeviceGetNvLinkCapability(abi::Device handle, unsigned link, int capability, unsigned* out) {
  return with_link(handle, link, [&](Target&) -> Return {
    if (out == nullptr || capability < 0 || capability > 5) return abi::kInvalidArgument;
    *out = capability == 0 || capability == 2 || capability == 5 ? 1 : 0;
    return abi::kSuccess;
  });
}
Return nvmlDeviceGetNvLinkRemoteDeviceType(abi::Device handle, unsigned link, int* out) {
  return with_link(handle, link, [&](Target& t) -> Return {
    if (out == nullptr) return abi::kInvalidArgument;
    *out = t.profile.link_kind == device::LinkKind::nvswitch ? abi::kRemoteSwitch
           : link_peer(t, link)                              ? abi::kRemoteGpu
                                                             : abi::kRemoteUnknown;
    return abi::kSuccess;
  });
}
Return nvmlDeviceGetNvLinkRemotePciInfo_v2(abi::Device handle, unsigned link, abi::PciInfo* out) {
  return with_link(handle, link, [&](Target& t) -> Return {
    if (out == nullptr) return abi::kInvalidArgument;
    *out = {};
    if (t.profile.link_kind == device::LinkKind::nvswitch) {  // four switches, dealt out in turn; none of them a GPU
      out->bus = 0x05 + link % 4;
      out->pci_device_id = 0x22a310de;
    } else if (const auto peer = link_peer(t, link)) {
      const auto& card = t.machine.device(*peer);
      out->domain = card.pci_domain;
      out->bus = card.pci_bus;
      out->device = card.pci_device;
      out->pci_device_id = card.profile.pci_device_id;
      out->pci_subsystem_id = card.profile.pci_subsystem_id;
    } else {
      return abi::kNotSupported;
    }
    std::snprintf(out->bus_id_legacy, sizeof(out->bus_id_legacy), "%04X:%02X:%02X.0", out->domain & 0xffff,
                  out->bus & 0xff, out->device & 0xff);
    std::snprintf(out->bus_id, sizeof(out->bus_id), "%08X:%02X:%02X.0", out->domain, out->bus & 0xff,
                  out->device & 0xff);
    return abi::kSuccess;
  });
}
Return nvmlDeviceGetNvLinkRemotePciInfo(abi::Device handle, unsigned link, abi::PciInfo* out) {
  return nvmlDeviceGetNvLinkRemotePciInfo_v2(handle, link, out);
}
Return nvmlDeviceGetNvLinkErrorCounter(abi::Device handle, unsigned link, int counter, unsigned long long* out) {
  return with_link(handle, link, [&](Target&) -> Return {
    if (out == nullptr || counter < 0 || counter > 4) return abi::kInvalidArgument;
    *out = 0;
    return abi::kSuccess;
  });
}

// A switched machine has its fabric up; single-node fabrics have no cluster identity.
Return nvmlDeviceGetGpuFabricInfo(abi::Device handle, abi::FabricInfo* out) {
  return with_card(handle, [&](Target& t) -> Return {
    if (out == nullptr) return abi::kInvalidArgument;
    *out = {};
    out->state = t.profile.link_kind == device::LinkKind::nvswitch ? 3 : 0;
    return abi::kSuccess;
  });
}
Return nvmlDeviceGetGpuFabricInfoV(abi::Device handle, abi::FabricInfoV2* out) {
  return with_card(handle, [&](Target& t) -> Return {
    if (out == nullptr) return abi::kInvalidArgument;
    const unsigned char state = t.profile.link_kind == device::LinkKind::nvswitch ? 3 : 0;
    if (out->version == abi::version_word<abi::FabricInfoV2>(2)) {
      *out = {out->version, {}, 0, 0, state, 0};
      return abi::kSuccess;
    }
    if (out->version == abi::version_word<abi::FabricInfoV3>(3)) {
      abi::FabricInfoV3 wide{out->version, {}, 0, 0, state, 0, 0};
      std::memcpy(static_cast<void*>(out), &wide, sizeof(wide));
      return abi::kSuccess;
    }
    return abi::kArgumentVersionMismatch;
  });
}

}  // extern "C"
}  // namespace tensor_fusion::sim::nvml
