// Handles, and who a card is.
#include <strings.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <string_view>

#include "sim/nvml/session.h"

namespace tensor_fusion::sim::nvml {
namespace {

[[nodiscard]] Return give(device::Machine& machine, unsigned card, abi::Device* out, unsigned engine = 0) {
  if (machine.lost(card)) return abi::kGpuIsLost;
  *out = device_handle(card, engine);
  return abi::kSuccess;
}

[[nodiscard]] Return by_index(unsigned index, abi::Device* out) {
  const auto machine = session();
  if (!machine) return abi::kUninitialized;
  const auto cards = enumerated();
  if (out == nullptr || index >= cards.size()) return abi::kInvalidArgument;
  return give(*machine, cards[index], out);
}

[[nodiscard]] Return by_uuid(const char* uuid, abi::Device* out) {
  const auto machine = session();
  if (!machine) return abi::kUninitialized;
  if (out == nullptr || uuid == nullptr) return abi::kInvalidArgument;
  for (const unsigned card : enumerated()) {
    if (::strcasecmp(machine->device(card).uuid, uuid) == 0) return give(*machine, card, out);
    for (const auto& engine : machine->engines_of(card)) {
      if (engine.gpu_instance >= 0 && ::strcasecmp(engine.uuid, uuid) == 0) {
        return give(*machine, card, out, engine.id % device::kEnginesPerDevice);
      }
    }
  }
  return abi::kNotFound;
}

// By text, which may end without a zero, or by the sixteen bytes of a card's.
[[nodiscard]] Return by_query(const abi::UuidQuery* query, abi::Device* out) {
  if (query == nullptr) return abi::kInvalidArgument;
  if (query->version != abi::version_word<abi::UuidQuery>(1)) return abi::kArgumentVersionMismatch;
  const auto& value = query->value;
  if (query->type == abi::kUuidText)
    return by_uuid(std::string(value.text, ::strnlen(value.text, sizeof(value.text))).c_str(), out);
  if (query->type != abi::kUuidBytes) return abi::kInvalidArgument;
  std::string text = "GPU-";
  for (int i = 0; i < 16; ++i) {
    char digits[4];
    std::snprintf(digits, sizeof(digits), i == 4 || i == 6 || i == 8 || i == 10 ? "-%02x" : "%02x", value.bytes[i]);
    text += digits;
  }
  return by_uuid(text.c_str(), out);
}

[[nodiscard]] Return by_pci(const char* text, abi::Device* out) {
  const auto machine = session();
  if (!machine) return abi::kUninitialized;
  if (out == nullptr || text == nullptr) return abi::kInvalidArgument;
  unsigned domain = 0, bus = 0, slot = 0, function = 0;
  if (std::sscanf(text, "%x:%x:%x.%x", &domain, &bus, &slot, &function) < 3) {
    domain = 0;
    if (std::sscanf(text, "%x:%x.%x", &bus, &slot, &function) < 2) return abi::kInvalidArgument;
  }
  for (const unsigned card : enumerated()) {
    const auto& info = machine->device(card);
    if (info.pci_domain == domain && info.pci_bus == bus && info.pci_device == slot && function == 0)
      return give(*machine, card, out);
  }
  return abi::kNotFound;
}

[[nodiscard]] Return pci_info(abi::Device handle, abi::PciInfo* out) {
  return with_card(handle, [&](Target& t) -> Return {
    if (out == nullptr) return abi::kInvalidArgument;
    *out = {};
    const auto& c = t.card;
    std::snprintf(out->bus_id_legacy, sizeof(out->bus_id_legacy), "%04X:%02X:%02X.0", c.pci_domain & 0xffff,
                  c.pci_bus & 0xff, c.pci_device & 0xff);
    std::snprintf(out->bus_id, sizeof(out->bus_id), "%08X:%02X:%02X.0", c.pci_domain, c.pci_bus & 0xff,
                  c.pci_device & 0xff);
    out->domain = c.pci_domain;
    out->bus = c.pci_bus;
    out->device = c.pci_device;
    out->pci_device_id = t.profile.pci_device_id;
    out->pci_subsystem_id = t.profile.pci_subsystem_id;
    return abi::kSuccess;
  });
}

}  // namespace

extern "C" {

Return nvmlDeviceGetHandleByIndex_v2(unsigned index, abi::Device* out) { return by_index(index, out); }
Return nvmlDeviceGetHandleByIndex(unsigned index, abi::Device* out) { return by_index(index, out); }
Return nvmlDeviceGetHandleByUUID(const char* uuid, abi::Device* out) { return by_uuid(uuid, out); }
Return nvmlDeviceGetHandleByUUIDV(const abi::UuidQuery* query, abi::Device* out) { return by_query(query, out); }
Return nvmlDeviceGetHandleByPciBusId_v2(const char* id, abi::Device* out) { return by_pci(id, out); }
Return nvmlDeviceGetHandleByPciBusId(const char* id, abi::Device* out) { return by_pci(id, out); }
Return nvmlDeviceGetHandleBySerial(const char* serial, abi::Device* out) {
  const auto machine = session();
  if (!machine) return abi::kUninitialized;
  if (out == nullptr || serial == nullptr) return abi::kInvalidArgument;
  for (const unsigned card : enumerated()) {
    if (std::strcmp(machine->device(card).serial, serial) == 0) return give(*machine, card, out);
  }
  return abi::kNotFound;
}

Return nvmlDeviceGetName(abi::Device handle, char* out, unsigned length) {
  return with_device(handle, [&](Target& t) -> Return {
    if (!t.is_mig()) return put_text(t.profile.name, out, length);
    const auto engine = t.machine.engine(t.engine_id());
    return engine ? put_text(engine->name, out, length) : abi::kNotFound;
  });
}
Return nvmlDeviceGetUUID(abi::Device handle, char* out, unsigned length) {
  return with_device(handle, [&](Target& t) -> Return {
    if (!t.is_mig()) return put_text(t.card.uuid, out, length);
    const auto engine = t.machine.engine(t.engine_id());
    return engine ? put_text(engine->uuid, out, length) : abi::kNotFound;
  });
}
Return nvmlDeviceGetSerial(abi::Device handle, char* out, unsigned length) {
  return with_card(handle, [&](Target& t) { return put_text(t.card.serial, out, length); });
}
Return nvmlDeviceGetVbiosVersion(abi::Device handle, char* out, unsigned length) {
  return with_card(handle, [&](Target& t) { return put_text(t.profile.vbios, out, length); });
}
Return nvmlDeviceGetBoardPartNumber(abi::Device handle, char* out, unsigned length) {
  return with_card(handle, [&](Target& t) { return put_text(t.profile.board_part_number, out, length); });
}
Return nvmlDeviceGetIndex(abi::Device handle, unsigned* out) {
  return card_value(handle, out, [&](Target& t) {
    const auto cards = enumerated();
    return static_cast<unsigned>(std::find(cards.begin(), cards.end(), t.device) - cards.begin());
  });
}
Return nvmlDeviceGetMinorNumber(abi::Device handle, unsigned* out) {
  return card_value(handle, out, [](Target& t) { return t.card.index; });
}
Return nvmlDeviceGetBoardId(abi::Device handle, unsigned* out) {
  return card_value(handle, out, [](Target& t) { return t.card.pci_bus << 8; });
}
Return nvmlDeviceGetMultiGpuBoard(abi::Device handle, unsigned* out) {
  return card_value(handle, out, [](Target&) { return 0; });
}
Return nvmlDeviceGetModuleId(abi::Device handle, unsigned* out) {
  return card_value(handle, out,
                    [](Target& t) { return t.profile.link_kind == device::LinkKind::nvswitch ? t.card.module_id : 0; });
}
Return nvmlDeviceGetBrand(abi::Device handle, int* out) {
  return card_value(handle, out, [](Target& t) {
    return t.profile.architecture == device::Architecture::turing ? abi::kBrandTesla : abi::kBrandNvidia;
  });
}
Return nvmlDeviceGetArchitecture(abi::Device handle, unsigned* out) {
  return with_device(handle, [&](Target& t) -> Return {
    if (out == nullptr) return abi::kInvalidArgument;
    *out = static_cast<unsigned>(t.profile.architecture);
    return abi::kSuccess;
  });
}
Return nvmlDeviceGetCudaComputeCapability(abi::Device handle, int* major, int* minor) {
  return with_device(handle, [&](Target& t) -> Return {
    if (major == nullptr || minor == nullptr) return abi::kInvalidArgument;
    *major = static_cast<int>(t.profile.capability_major);
    *minor = static_cast<int>(t.profile.capability_minor);
    return abi::kSuccess;
  });
}
Return nvmlDeviceGetPciInfo_v3(abi::Device handle, abi::PciInfo* out) { return pci_info(handle, out); }
Return nvmlDeviceGetPciInfo_v2(abi::Device handle, abi::PciInfo* out) { return pci_info(handle, out); }
Return nvmlDeviceGetPciInfoExt(abi::Device handle, abi::PciInfoExt* out) {
  abi::PciInfo plain;
  if (out != nullptr && out->version != abi::version_word<abi::PciInfoExt>(1)) return abi::kArgumentVersionMismatch;
  const Return result = pci_info(handle, out == nullptr ? nullptr : &plain);
  if (result != abi::kSuccess) return result;
  *out = {out->version, plain.domain, plain.bus, plain.device, plain.pci_device_id, plain.pci_subsystem_id, 3, 2, {}};
  std::memcpy(out->bus_id, plain.bus_id, sizeof(out->bus_id));
  return abi::kSuccess;
}

}  // extern "C"
}  // namespace tensor_fusion::sim::nvml
