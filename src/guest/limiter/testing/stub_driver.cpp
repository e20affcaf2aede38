// A driver of a few functions and no device: enough to test the three front doors and the ledger where the simulated
// GPU is not built (another architecture), and to test a driver that lacks most of the table. Memory is only counted.
// Environment: STUB_DEVICES (1), STUB_MEMORY bytes per device (1 GiB), STUB_OVERHEAD bytes per context (0).
#include <atomic>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <map>
#include <mutex>

#include "contract/cuda.h"
#include "contract/cuda_symbols.h"

using namespace tensor_fusion::cuda;

namespace {

std::uint64_t setting(const char* name, std::uint64_t fallback) {
  const char* text = std::getenv(name);
  return text == nullptr ? fallback : std::strtoull(text, nullptr, 10);
}
int device_count() { return static_cast<int>(setting("STUB_DEVICES", 1)); }

struct Context {
  int device;
};
std::mutex g_mutex;
bool g_initialised = false;
std::map<CUdeviceptr, std::pair<int, std::uint64_t>> g_memory;
std::uint64_t g_used[16];
std::uint64_t g_peak[16];
CUdeviceptr g_next = 0x7000'0000'0000;
thread_local Context* t_context = nullptr;
std::atomic<std::uint64_t> g_plain_launches{0};
std::atomic<std::uint64_t> g_own_launches{0};
Context* g_primary[16];
int g_primary_count[16];

CUresult take(int device, std::uint64_t bytes) {
  const std::uint64_t up = (bytes + 511) / 512 * 512;
  if (up < bytes || g_used[device] + up > setting("STUB_MEMORY", 1ull << 30)) return CUDA_ERROR_OUT_OF_MEMORY;
  g_used[device] += up;
  if (g_used[device] > g_peak[device]) g_peak[device] = g_used[device];
  return CUDA_SUCCESS;
}

}  // namespace

#define STUB extern "C" [[gnu::visibility("default")]]

STUB std::uint64_t stub_used(int device) { return g_used[device]; }
STUB std::uint64_t stub_peak(int device) { return g_peak[device]; }
STUB std::uint64_t stub_launches(int own) { return own != 0 ? g_own_launches.load() : g_plain_launches.load(); }

STUB CUresult cuInit(unsigned) {
  g_initialised = true;
  return CUDA_SUCCESS;
}
STUB CUresult cuDriverGetVersion(int* version) {
  *version = 12080;
  return CUDA_SUCCESS;
}
STUB CUresult cuDeviceGetCount(int* count) {
  if (!g_initialised) return CUDA_ERROR_NOT_INITIALIZED;
  *count = device_count();
  return CUDA_SUCCESS;
}
STUB CUresult cuDeviceGet(CUdevice* device, int ordinal) {
  if (ordinal < 0 || ordinal >= device_count()) return CUDA_ERROR_INVALID_DEVICE;
  *device = ordinal;
  return CUDA_SUCCESS;
}
STUB CUresult cuDeviceGetUuid_v2(CUuuid* uuid, CUdevice device) {
  std::memset(uuid, 0, sizeof *uuid);
  uuid->bytes[15] = static_cast<unsigned char>(device);
  return CUDA_SUCCESS;
}
STUB CUresult cuDeviceTotalMem_v2(std::size_t* bytes, CUdevice) {
  *bytes = setting("STUB_MEMORY", 1ull << 30);
  return CUDA_SUCCESS;
}
STUB CUresult cuCtxCreate_v2(CUcontext* context, unsigned, CUdevice device) {
  const std::lock_guard lock(g_mutex);
  if (const CUresult result = take(device, setting("STUB_OVERHEAD", 0)); result != CUDA_SUCCESS) return result;
  t_context = new Context{device};
  *context = reinterpret_cast<CUcontext>(t_context);
  return CUDA_SUCCESS;
}
STUB CUresult cuCtxDestroy_v2(CUcontext context) {
  const std::lock_guard lock(g_mutex);
  auto* gone = reinterpret_cast<Context*>(context);
  for (auto it = g_memory.begin(); it != g_memory.end();)
    if (it->second.first == gone->device) {
      g_used[gone->device] -= it->second.second;
      it = g_memory.erase(it);
    } else {
      ++it;
    }
  g_used[gone->device] -= setting("STUB_OVERHEAD", 0);
  if (t_context == gone) t_context = nullptr;
  delete gone;
  return CUDA_SUCCESS;
}
STUB CUresult cuCtxSetCurrent(CUcontext context) {
  t_context = reinterpret_cast<Context*>(context);
  return CUDA_SUCCESS;
}
STUB CUresult cuCtxGetCurrent(CUcontext* context) {
  *context = reinterpret_cast<CUcontext>(t_context);
  return CUDA_SUCCESS;
}
STUB CUresult cuCtxGetDevice(CUdevice* device) {
  if (t_context == nullptr) return CUDA_ERROR_INVALID_CONTEXT;
  *device = t_context->device;
  return CUDA_SUCCESS;
}
STUB CUresult cuDevicePrimaryCtxRetain(CUcontext* context, CUdevice device) {
  const std::lock_guard lock(g_mutex);
  if (g_primary_count[device] == 0) {
    if (const CUresult result = take(device, setting("STUB_OVERHEAD", 0)); result != CUDA_SUCCESS) return result;
    g_primary[device] = new Context{device};
  }
  ++g_primary_count[device];
  *context = reinterpret_cast<CUcontext>(g_primary[device]);
  return CUDA_SUCCESS;
}
STUB CUresult cuDevicePrimaryCtxGetState(CUdevice device, unsigned* flags, int* active) {
  *flags = 0;
  *active = g_primary_count[device] > 0 ? 1 : 0;
  return CUDA_SUCCESS;
}
STUB CUresult cuDevicePrimaryCtxRelease_v2(CUdevice device) {
  const std::lock_guard lock(g_mutex);
  if (g_primary_count[device] == 0) return CUDA_ERROR_INVALID_CONTEXT;
  if (--g_primary_count[device] == 0) g_used[device] -= setting("STUB_OVERHEAD", 0);
  return CUDA_SUCCESS;
}
STUB CUresult cuMemAlloc_v2(CUdeviceptr* pointer, std::size_t bytes) {
  if (t_context == nullptr) return CUDA_ERROR_INVALID_CONTEXT;
  if (bytes == 0) return CUDA_ERROR_INVALID_VALUE;
  const std::lock_guard lock(g_mutex);
  if (const CUresult result = take(t_context->device, bytes); result != CUDA_SUCCESS) return result;
  *pointer = g_next;
  g_next += (bytes + 511) / 512 * 512;
  g_memory[*pointer] = {t_context->device, (bytes + 511) / 512 * 512};
  return CUDA_SUCCESS;
}
STUB CUresult cuMemFree_v2(CUdeviceptr pointer) {
  const std::lock_guard lock(g_mutex);
  const auto found = g_memory.find(pointer);
  if (found == g_memory.end()) return CUDA_ERROR_INVALID_VALUE;
  g_used[found->second.first] -= found->second.second;
  g_memory.erase(found);
  return CUDA_SUCCESS;
}
STUB CUresult cuMemGetInfo_v2(std::size_t* free_bytes, std::size_t* total_bytes) {
  if (t_context == nullptr) return CUDA_ERROR_INVALID_CONTEXT;
  *total_bytes = setting("STUB_MEMORY", 1ull << 30);
  *free_bytes = *total_bytes - g_used[t_context->device];
  return CUDA_SUCCESS;
}
STUB CUresult cuLaunchKernel(CUfunction, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, CUstream,
                             void**, void**) {
  g_plain_launches.fetch_add(1, std::memory_order_relaxed);
  return CUDA_SUCCESS;
}
STUB CUresult cuLaunchKernel_ptsz(CUfunction, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned,
                                  CUstream, void**, void**) {
  g_own_launches.fetch_add(1, std::memory_order_relaxed);
  return CUDA_SUCCESS;
}
// Work is done as soon as it is asked for; an event is the time at which it was recorded.
STUB CUresult cuEventCreate(CUevent* event, unsigned) {
  *event = reinterpret_cast<CUevent>(new std::atomic<std::int64_t>(0));
  return CUDA_SUCCESS;
}
STUB CUresult cuEventDestroy_v2(CUevent event) {
  delete reinterpret_cast<std::atomic<std::int64_t>*>(event);
  return CUDA_SUCCESS;
}
STUB CUresult cuEventRecord(CUevent event, CUstream) {
  *reinterpret_cast<std::atomic<std::int64_t>*>(event) = std::chrono::steady_clock::now().time_since_epoch().count();
  return CUDA_SUCCESS;
}
STUB CUresult cuEventQuery(CUevent) { return CUDA_SUCCESS; }
STUB CUresult cuEventElapsedTime(float* milliseconds, CUevent start, CUevent end) {
  const std::int64_t ns =
      *reinterpret_cast<std::atomic<std::int64_t>*>(end) - *reinterpret_cast<std::atomic<std::int64_t>*>(start);
  *milliseconds = static_cast<float>(ns) / 1e6F;
  return CUDA_SUCCESS;
}
STUB CUresult cuStreamQuery(CUstream) { return CUDA_SUCCESS; }
STUB CUresult cuStreamIsCapturing(CUstream, CUstreamCaptureStatus* status) {
  *status = CU_STREAM_CAPTURE_STATUS_NONE;
  return CUDA_SUCCESS;
}
STUB CUresult cuGetProcAddress_v2(const char* name, void** function, int version, std::uint64_t flags,
                                  CUdriverProcAddressQueryResult* status);

namespace {

struct Exported {
  const char* name;
  void* function;
};
#define STUB_EXPORTED(symbol) \
  Exported { #symbol, reinterpret_cast<void*>(&symbol) }
const Exported kExported[] = {STUB_EXPORTED(cuInit),
                              STUB_EXPORTED(cuDriverGetVersion),
                              STUB_EXPORTED(cuDeviceGetCount),
                              STUB_EXPORTED(cuDeviceGet),
                              STUB_EXPORTED(cuDeviceGetUuid_v2),
                              STUB_EXPORTED(cuDeviceTotalMem_v2),
                              STUB_EXPORTED(cuCtxCreate_v2),
                              STUB_EXPORTED(cuCtxDestroy_v2),
                              STUB_EXPORTED(cuCtxSetCurrent),
                              STUB_EXPORTED(cuCtxGetCurrent),
                              STUB_EXPORTED(cuCtxGetDevice),
                              STUB_EXPORTED(cuDevicePrimaryCtxRetain),
                              STUB_EXPORTED(cuDevicePrimaryCtxGetState),
                              STUB_EXPORTED(cuDevicePrimaryCtxRelease_v2),
                              STUB_EXPORTED(cuMemAlloc_v2),
                              STUB_EXPORTED(cuMemFree_v2),
                              STUB_EXPORTED(cuMemGetInfo_v2),
                              STUB_EXPORTED(cuEventCreate),
                              STUB_EXPORTED(cuEventDestroy_v2),
                              STUB_EXPORTED(cuEventRecord),
                              STUB_EXPORTED(cuEventQuery),
                              STUB_EXPORTED(cuEventElapsedTime),
                              STUB_EXPORTED(cuStreamQuery),
                              STUB_EXPORTED(cuStreamIsCapturing),
                              STUB_EXPORTED(cuLaunchKernel),
                              STUB_EXPORTED(cuLaunchKernel_ptsz),
                              STUB_EXPORTED(cuGetProcAddress_v2)};

}  // namespace

STUB CUresult cuGetProcAddress_v2(const char* name, void** function, int version, std::uint64_t flags,
                                  CUdriverProcAddressQueryResult* status) {
  *function = nullptr;
  if (version > 12080) return CUDA_ERROR_INVALID_VALUE;
  int best = -1;
  bool known = false;
  for (const CudaSymbol& symbol : kCudaSymbols) {
    if (std::strcmp(symbol.base, name) != 0) continue;
    const bool own = symbol.flavour != StreamFlavour::kPlain;
    if (own && flags != CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM) continue;
    for (const Exported& exported : kExported) {
      if (std::strcmp(exported.name, symbol.exported) != 0) continue;
      known = true;
      if (symbol.version <= version && (symbol.version > best || own)) {
        best = symbol.version;
        *function = exported.function;
      }
    }
  }
  if (status != nullptr)
    *status = *function != nullptr ? CU_GET_PROC_ADDRESS_SUCCESS
              : known              ? CU_GET_PROC_ADDRESS_VERSION_NOT_SUFFICIENT
                                   : CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND;
  return CUDA_SUCCESS;
}
