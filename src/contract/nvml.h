#pragma once
// The binary interface of NVIDIA's management library as far as we call or answer it: result codes, constants and
// structs, declared from its public documentation. Names are ours; layouts are the library's and asserted. Versioned
// structs carry `size | version << 24` in their first word.
#include <cstddef>
#include <cstdint>

namespace tensor_fusion::contract::nvml {

enum Return : int {
  kSuccess = 0,
  kUninitialized = 1,
  kInvalidArgument = 2,
  kNotSupported = 3,
  kNoPermission = 4,
  kAlreadyInitialized = 5,
  kNotFound = 6,
  kInsufficientSize = 7,
  kInsufficientPower = 8,
  kDriverNotLoaded = 9,
  kTimeout = 10,
  kIrqIssue = 11,
  kLibraryNotFound = 12,
  kFunctionNotFound = 13,
  kCorruptedInforom = 14,
  kGpuIsLost = 15,
  kResetRequired = 16,
  kOperatingSystem = 17,
  kLibRmVersionMismatch = 18,
  kInUse = 19,
  kMemory = 20,
  kNoData = 21,
  kVgpuEccNotSupported = 22,
  kInsufficientResources = 23,
  kFreqNotSupported = 24,
  kArgumentVersionMismatch = 25,
  kDeprecated = 26,
  kNotReady = 27,
  kGpuNotFound = 28,
  kInvalidState = 29,
  kResetTypeNotSupported = 30,
  kUnknown = 999,
};

// Opaque handles.
using Device = struct DeviceHandle*;
using GpuInstance = struct GpuInstanceHandle*;
using ComputeInstance = struct ComputeInstanceHandle*;
using EventSet = struct EventSetHandle*;

template <typename T>
inline constexpr std::uint32_t version_word(unsigned version) {
  return static_cast<std::uint32_t>(sizeof(T)) | (version << 24);
}

inline constexpr unsigned kNoInstance = 0xffffffff;  // gpuInstanceId, computeInstanceId of a whole card
inline constexpr unsigned kUuidBuffer = 80, kUuidBufferV2 = 96;
inline constexpr unsigned kNameBuffer = 64, kNameBufferV2 = 96;
inline constexpr unsigned kMaxLinks = 18;
inline constexpr std::uint64_t kValueNotAvailable = ~std::uint64_t{0};

enum Topology : int {
  kTopologyInternal = 0,
  kTopologySingle = 10,
  kTopologyMultiple = 20,
  kTopologyHostBridge = 30,
  kTopologyNode = 40,
  kTopologySystem = 50,
};
enum P2pCapability : int { kP2pRead = 0, kP2pWrite = 1, kP2pNvlink = 2, kP2pAtomics = 3, kP2pPci = 4 };
enum P2pStatus : int { kP2pOk = 0, kP2pChipset = 1, kP2pGpu = 2, kP2pNotSupported = 5, kP2pUnknown = 6 };
enum LinkRemote : int { kRemoteGpu = 0, kRemoteIbmNpu = 1, kRemoteSwitch = 2, kRemoteUnknown = 255 };
enum Clock : int { kClockGraphics = 0, kClockSm = 1, kClockMemory = 2, kClockVideo = 3 };
enum Brand : int { kBrandTesla = 2, kBrandNvidia = 14 };

inline constexpr std::uint64_t kEventSingleBitEcc = 0x1, kEventDoubleBitEcc = 0x2, kEventXidCritical = 0x8;

// Field ids of DeviceGetFieldValues.
enum Field : unsigned {
  kFieldEnergyMj = 83,
  kFieldNvlinkSpeedCommon = 90,
  kFieldNvlinkCount = 91,
  kFieldPcieReplay = 94,
  kFieldNvlinkSpeed = 164,
  kFieldNvlinkState = 165,
  kFieldNvlinkVersion = 166,
  kFieldC2cCount = 170,
  kFieldPowerAverage = 185,
  kFieldPowerInstant = 186,
};
enum ValueType : int {
  kDouble = 0,
  kUnsignedInt = 1,
  kUnsignedLong = 2,
  kUnsignedLongLong = 3,
  kSignedLongLong = 4,
  kSignedInt = 5
};

// MIG profile constants that enumerate GPU instance profiles; the id that creates one is in the profile's info.
inline constexpr unsigned kGpuInstanceProfiles = 0x12;
inline constexpr unsigned kComputeInstanceProfiles = 0x9;

enum UuidType : int { kUuidText = 1, kUuidBytes = 2 };
struct UuidQuery {
  unsigned version;
  int type;
  union {
    char text[41];
    unsigned char bytes[16];
  } value;
};
static_assert(sizeof(UuidQuery) == 52);

struct PciInfo {
  char bus_id_legacy[16];
  unsigned domain, bus, device;
  unsigned pci_device_id;  // device << 16 | vendor
  unsigned pci_subsystem_id;
  char bus_id[32];  // eight-digit upper-case domain
};
static_assert(sizeof(PciInfo) == 68);

struct PciInfoExt {
  unsigned version;
  unsigned domain, bus, device;
  unsigned pci_device_id, pci_subsystem_id;
  unsigned base_class, sub_class;
  char bus_id[32];
};
static_assert(sizeof(PciInfoExt) == 64);

struct Memory {
  std::uint64_t total, free, used;  // used includes what the driver reserves
};
static_assert(sizeof(Memory) == 24);

struct MemoryV2 {
  unsigned version;
  std::uint64_t total, reserved, free, used;
};
static_assert(sizeof(MemoryV2) == 40);

struct Bar1Memory {
  std::uint64_t total, free, used;
};

struct Utilization {
  unsigned gpu, memory;
};

struct ProcessInfoV1 {
  unsigned pid;
  std::uint64_t used_bytes;
};
static_assert(sizeof(ProcessInfoV1) == 16);

struct ProcessInfo {  // v2 and v3
  unsigned pid;
  std::uint64_t used_bytes;
  unsigned gpu_instance, compute_instance;
};
static_assert(sizeof(ProcessInfo) == 24);

struct ProcessDetail {
  unsigned pid;
  std::uint64_t used_bytes;
  unsigned gpu_instance, compute_instance;
  std::uint64_t protected_bytes;
};
struct ProcessDetailList {
  unsigned version, mode, count;
  ProcessDetail* list;
};
static_assert(sizeof(ProcessDetail) == 32 && sizeof(ProcessDetailList) == 24);

struct ProcessUtilization {
  unsigned pid;
  std::uint64_t timestamp_us;
  unsigned sm, memory, encoder, decoder;
};
static_assert(sizeof(ProcessUtilization) == 32);

struct ProcessUtilizationInfo {
  std::uint64_t timestamp_us;
  unsigned pid, sm, memory, encoder, decoder, jpeg, ofa;
};
static_assert(sizeof(ProcessUtilizationInfo) == 40);

struct ProcessesUtilization {
  unsigned version, count;
  std::uint64_t last_seen_us;
  ProcessUtilizationInfo* list;
};
static_assert(sizeof(ProcessesUtilization) == 24);

union Value {
  double f64;
  unsigned u32;
  unsigned long ulong;
  std::uint64_t u64;
  std::int64_t i64;
  int i32;
};
struct Sample {
  std::uint64_t timestamp_us;
  Value value;
};
static_assert(sizeof(Sample) == 16);

struct FieldValue {
  unsigned field, scope;
  std::int64_t timestamp_us, latency_us;
  int value_type;
  int result;
  Value value;
};
static_assert(sizeof(FieldValue) == 40);

struct EventDataV1 {
  Device device;
  std::uint64_t type, data;
};
struct EventData {
  Device device;
  std::uint64_t type, data;
  unsigned gpu_instance, compute_instance;
};
static_assert(sizeof(EventDataV1) == 24 && sizeof(EventData) == 32);

struct FabricInfo {
  unsigned char cluster_uuid[16];
  int status;
  unsigned clique;
  unsigned char state;
};
static_assert(sizeof(FabricInfo) == 28);
struct FabricInfoV2 {
  unsigned version;
  unsigned char cluster_uuid[16];
  int status;
  unsigned clique;
  unsigned char state;
  unsigned health_mask;
};
static_assert(sizeof(FabricInfoV2) == 36);
struct FabricInfoV3 {
  unsigned version;
  unsigned char cluster_uuid[16];
  int status;
  unsigned clique;
  unsigned char state;
  unsigned health_mask;
  unsigned char health_summary;
};
static_assert(sizeof(FabricInfoV3) == 40);

struct Placement {
  unsigned start, size;
};

struct GpuInstanceProfile {
  unsigned id, p2p, slices, instances, multiprocessors, copy_engines, decoders, encoders, jpegs, ofas;
  std::uint64_t memory_mib;
};
static_assert(sizeof(GpuInstanceProfile) == 48);
struct GpuInstanceProfileV2 {
  unsigned version;
  unsigned id, p2p, slices, instances, multiprocessors, copy_engines, decoders, encoders, jpegs, ofas;
  std::uint64_t memory_mib;
  char name[kNameBufferV2];
};
static_assert(sizeof(GpuInstanceProfileV2) == 152);
struct GpuInstanceInfo {
  Device device;
  unsigned id, profile;
  Placement placement;
};
static_assert(sizeof(GpuInstanceInfo) == 24);

struct ComputeInstanceProfile {
  unsigned id, slices, instances, multiprocessors, copy_engines, decoders, encoders, jpegs, ofas;
};
static_assert(sizeof(ComputeInstanceProfile) == 36);
struct ComputeInstanceProfileV2 {
  unsigned version;
  unsigned id, slices, instances, multiprocessors, copy_engines, decoders, encoders, jpegs, ofas;
  char name[kNameBufferV2];
};
static_assert(sizeof(ComputeInstanceProfileV2) == 136);
struct ComputeInstanceInfo {
  Device device;
  GpuInstance gpu_instance;
  unsigned id, profile;
  Placement placement;
};
static_assert(sizeof(ComputeInstanceInfo) == 32);

struct Attributes {
  unsigned multiprocessors, copy_engines, decoders, encoders, jpegs, ofas, gpu_instance_slices, compute_instance_slices;
  std::uint64_t memory_mib;
};
static_assert(sizeof(Attributes) == 40);

struct Temperature {
  unsigned version;
  int sensor;
  int celsius;
};
static_assert(sizeof(Temperature) == 12);

}  // namespace tensor_fusion::contract::nvml
