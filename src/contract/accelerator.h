#ifndef TENSOR_FUSION_CONTRACT_ACCELERATOR_H_
#define TENSOR_FUSION_CONTRACT_ACCELERATOR_H_
/* The provider C ABI: what a vendor library (libaccelerator_<vendor>.so) exports so that a hypervisor can list,
 * measure, partition and limit its devices. Layouts and numbers are those that existing libraries are built for; they
 * never change. What we add stands behind one optional symbol, AccelGetExtension, with its own version and sizes.
 * Functions are thread-safe; the caller allocates every output; strings are NUL-terminated; process ids are the host's.
 */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#ifdef __cplusplus
extern "C" {
#endif

#define MAX_DEVICE_PROPERTIES 64
#define MAX_TOPOLOGY_DEVICES 64
#define MAX_PARTITION_ENVS 16
#define MAX_ENV_KEY_LENGTH 64
#define MAX_ENV_VALUE_LENGTH 256
#define MAX_PROCESSES 1024
#define MAX_EXTRA_METRICS 64
#define MAX_MOUNT_PATH 512
#define MAX_PARTITION_DEVICE_NODES 16

typedef enum {
  ACCEL_SUCCESS = 0,
  ACCEL_ERROR_INVALID_PARAM = 1,
  ACCEL_ERROR_NOT_FOUND = 2,
  ACCEL_ERROR_NOT_SUPPORTED = 3,
  ACCEL_ERROR_RESOURCE_EXHAUSTED = 4,
  ACCEL_ERROR_OPERATION_FAILED = 5,
  ACCEL_ERROR_INTERNAL = 6
} AccelResult;

typedef enum {
  TOPO_LEVEL_INTERNAL = 0,
  TOPO_LEVEL_SINGLE_SWITCH = 1,
  TOPO_LEVEL_MULTI_SWITCH = 2,
  TOPO_LEVEL_HOST_BRIDGE = 3,
  TOPO_LEVEL_NUMA_NODE = 4,
  TOPO_LEVEL_SYSTEM = 5,
  TOPO_LEVEL_SELF = 6,
  TOPO_LEVEL_UNKNOWN = 7
} TopoLevel;

typedef struct {
  bool supportsPartitioning;
  bool supportsSoftIsolation;
  bool supportsHardIsolation;
  bool supportsSnapshot;
  bool supportsMetrics;
  bool supportsRemoting;
  uint32_t maxPartitions;
  uint32_t maxWorkersPerDevice;
} VirtualizationCapabilities;

typedef struct {
  char uuid[64];
  char vendor[32];
  char model[128];
  char driverVersion[80];
  char firmwareVersion[64];
  char deviceNode[64];
  int32_t index;
  int32_t numaNode;
  uint64_t totalMemoryBytes;
  uint64_t totalComputeUnits;
  double maxTflops;
  uint32_t pcieGen;
  uint32_t pcieWidth;
} DeviceBasicInfo;

typedef struct {
  char key[64];
  char value[256];
} DevicePropertyKV;

typedef struct {
  DevicePropertyKV properties[MAX_DEVICE_PROPERTIES];
  size_t count;
} DeviceProperties;

typedef struct {
  DeviceBasicInfo basic;
  DeviceProperties props;
  VirtualizationCapabilities capabilities;
} ExtendedDeviceInfo;

typedef struct {
  char templateId[64];
  char name[128];
  uint64_t memoryBytes;
  uint64_t computeUnits;
  double tflops;
  uint32_t sliceCount;
  bool isDefault;
  char description[256];
} PartitionTemplate;

typedef struct {
  char peerUUID[64];
  int32_t peerIndex;
  TopoLevel topoLevel;
} DeviceTopoNode;

typedef struct {
  char deviceUUID[64];
  int32_t deviceIndex;
  int32_t numaNode;
  DeviceTopoNode peers[MAX_TOPOLOGY_DEVICES];
  size_t peerCount;
} DeviceTopologyInfo;

typedef struct {
  DeviceTopologyInfo devices[MAX_TOPOLOGY_DEVICES];
  size_t deviceCount;
} ExtendedDeviceTopology;

typedef struct {
  pid_t* processIds;
  size_t processCount;
  const char* deviceUUID;
} SnapshotContext;

typedef struct {
  char key[64];
  double value;
} ExtraMetric;

typedef struct {
  char processId[32]; /* decimal */
  char deviceUUID[64];
  double computeUtilizationPercent;
  uint64_t activeSMs;
  uint64_t totalSMs;
  uint64_t memoryUsedBytes;
  uint64_t memoryReservedBytes;
  double memoryUtilizationPercent;
} ProcessInformation;

typedef struct {
  char deviceUUID[64];
  double powerUsageWatts;
  double temperatureCelsius;
  uint64_t pcieRxBytes;
  uint64_t pcieTxBytes;
  uint32_t utilizationPercent;
  uint64_t memoryUsedBytes;
  ExtraMetric extraMetrics[MAX_EXTRA_METRICS];
  size_t extraMetricsCount;
} DeviceMetrics;

typedef struct {
  char hostPath[MAX_MOUNT_PATH];
  char guestPath[MAX_MOUNT_PATH];
} MountPath;

typedef enum { PARTITION_TYPE_ENVIRONMENT_VARIABLE = 0, PARTITION_TYPE_DEVICE_NODE = 1 } PartitionResultType;

typedef struct {
  PartitionResultType type;
  char deviceUUID[64];                                                               /* of the partition */
  char envVars[MAX_PARTITION_ENVS][MAX_ENV_VALUE_LENGTH];                            /* "KEY=VALUE" */
  char deviceNodes[MAX_PARTITION_DEVICE_NODES][MAX_MOUNT_PATH + MAX_MOUNT_PATH + 2]; /* "host=guest" */
} PartitionResult;

typedef void (*AccelLogCallback)(const char* level, const char* message);

/* Required symbols. AccelInit comes before all others. */
typedef AccelResult (*AccelInitFn)(void);
typedef AccelResult (*AccelShutdownFn)(void);
typedef AccelResult (*AccelGetDeviceCountFn)(size_t* count);
typedef AccelResult (*AccelGetAllDevicesFn)(ExtendedDeviceInfo* devices, size_t max, size_t* count);
typedef AccelResult (*AccelGetAllDevicesTopologyFn)(ExtendedDeviceTopology* topology);
typedef AccelResult (*AccelAssignPartitionFn)(const char* templateId, const char* deviceUUID, PartitionResult* result);
typedef AccelResult (*AccelRemovePartitionFn)(const char* templateId, const char* partitionUUID);
typedef AccelResult (*AccelSetMemHardLimitFn)(const char* deviceUUID, uint64_t bytes);
typedef AccelResult (*AccelSetComputeUnitHardLimitFn)(const char* deviceUUID, uint32_t percent);
typedef AccelResult (*AccelSnapshotFn)(SnapshotContext* context);
typedef AccelResult (*AccelResumeFn)(SnapshotContext* context);
typedef AccelResult (*AccelGetProcessInformationFn)(ProcessInformation* processes, size_t max, size_t* count);
typedef AccelResult (*AccelGetDeviceMetricsFn)(const char** deviceUUIDs, size_t count, DeviceMetrics* metrics);
typedef AccelResult (*AccelGetVendorMountLibsFn)(MountPath* mounts, size_t max, size_t* count);
/* Optional symbol; some libraries call it RegisterLogCallback. */
typedef AccelResult (*AccelRegisterLogCallbackFn)(AccelLogCallback callback);

/* ---- Our extension: AccelGetExtension(version) → a table of that version, or NULL. Every struct begins with its size,
 * so that a newer table can be read by an older caller and the other way round. ---- */
#define ACCEL_EXTENSION_VERSION 1

typedef enum {
  ACCEL_EVENT_XID = 1,         /* code = Xid number */
  ACCEL_EVENT_DEVICE_LOST = 2, /* the device answers no more */
  ACCEL_EVENT_ECC = 3          /* uncorrectable memory error */
} AccelEventKind;

typedef struct {
  uint32_t structSize;
  uint32_t kind; /* AccelEventKind */
  char deviceUUID[64];
  uint64_t code;
  char message[184];
} AccelEvent;

typedef struct {
  uint32_t structSize; /* sizeof of the library's own table */
  uint32_t version;
  /* Events since the last call, never waits. *count = written. */
  AccelResult (*pollEvents)(AccelEvent* events, size_t max, size_t* count);
  /* Device files a process needs to use this device ("/dev/nvidia0", "/dev/nvidiactl", …). */
  AccelResult (*getDeviceFiles)(const char* deviceUUID, MountPath* files, size_t max, size_t* count);
} AccelExtension;

typedef const AccelExtension* (*AccelGetExtensionFn)(uint32_t version);

#ifdef __cplusplus
} /* extern "C" */

static_assert(sizeof(VirtualizationCapabilities) == 16 && offsetof(VirtualizationCapabilities, maxPartitions) == 8);
static_assert(sizeof(DeviceBasicInfo) == 472 && offsetof(DeviceBasicInfo, index) == 432);
static_assert(offsetof(DeviceBasicInfo, maxTflops) == 456 && offsetof(DeviceBasicInfo, pcieWidth) == 468);
static_assert(sizeof(DevicePropertyKV) == 320 && sizeof(DeviceProperties) == 20488);
static_assert(sizeof(ExtendedDeviceInfo) == 20976 && offsetof(ExtendedDeviceInfo, capabilities) == 20960);
static_assert(sizeof(PartitionTemplate) == 480 && offsetof(PartitionTemplate, description) == 221);
static_assert(sizeof(DeviceTopoNode) == 72 && offsetof(DeviceTopoNode, topoLevel) == 68);
static_assert(sizeof(DeviceTopologyInfo) == 4688 && offsetof(DeviceTopologyInfo, peerCount) == 4680);
static_assert(sizeof(ExtendedDeviceTopology) == 300040 && offsetof(ExtendedDeviceTopology, deviceCount) == 300032);
static_assert(sizeof(SnapshotContext) == 24 && sizeof(ExtraMetric) == 72);
static_assert(sizeof(ProcessInformation) == 144 && offsetof(ProcessInformation, memoryUsedBytes) == 120);
static_assert(sizeof(DeviceMetrics) == 4728 && offsetof(DeviceMetrics, extraMetricsCount) == 4720);
static_assert(sizeof(MountPath) == 1024);
static_assert(sizeof(PartitionResult) == 20580 && offsetof(PartitionResult, deviceNodes) == 4164);
static_assert(sizeof(AccelEvent) == 264);
#endif
#endif /* TENSOR_FUSION_CONTRACT_ACCELERATOR_H_ */
