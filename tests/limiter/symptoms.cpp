// Tenants that do what users reported to go wrong under other limiters. Each command prints key=value lines.
#include <dlfcn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <thread>
#include <vector>

#include "contract/cuda.h"
#include "contract/cuda_symbols.h"
#include "contract/nvml.h"

using namespace tensor_fusion::cuda;
namespace nvml = tensor_fusion::contract::nvml;

namespace {

void* g_library = nullptr;

template <class... Arguments>
auto find(const char* name) {
  auto function = reinterpret_cast<CUresult (*)(Arguments...)>(dlsym(g_library, name));
  if (function != nullptr) return function;
  return +[](Arguments...) { return CUDA_ERROR_NOT_FOUND; };
}

void pause_here() {
  std::fflush(stdout);
  for (int letter; (letter = std::getchar()) != EOF && letter != '\n';) {
  }
}

CUcontext start(int device = 0) {
  CUcontext context = nullptr;
  const CUresult init = find<unsigned>("cuInit")(0);
  int count = -1;
  find<int*>("cuDeviceGetCount")(&count);
  const CUresult retain = find<CUcontext*, CUdevice>("cuDevicePrimaryCtxRetain")(&context, device);
  std::printf("init=%d devices=%d retain=%d\n", init, count, retain);
  if (retain == CUDA_SUCCESS) find<CUcontext>("cuCtxSetCurrent")(context);
  return context;
}

CUresult take(std::size_t bytes, CUdeviceptr& pointer) {
  return find<CUdeviceptr*, std::size_t>("cuMemAlloc_v2")(&pointer, bytes);
}

// Physical memory asked for on the host, as NCCL and llama.cpp do, and at places that do not exist.
void locations() {
  start();
  for (const int type : {1, 2, 3, 4, 0, 77, -1})
    for (const int id : {0, 1, 63, 64, 1 << 30, -1}) {
      CUmemAllocationProp prop{};
      prop.type = CU_MEM_ALLOCATION_TYPE_PINNED;
      prop.location.type = static_cast<CUmemLocationType>(type);
      prop.location.id = id;
      CUmemGenericAllocationHandle handle = 0;
      const CUresult result =
          find<CUmemGenericAllocationHandle*, std::size_t, const CUmemAllocationProp*, std::uint64_t>("cuMemCreate")(
              &handle, 2 << 20, &prop, 0);
      if (result == CUDA_SUCCESS) find<CUmemGenericAllocationHandle>("cuMemRelease")(handle);
      std::printf("type%d_id%d=%d\n", type, id, result);
    }
}

// What every name answers at every version and flag.
void symbols() {
  using Ask = CUresult (*)(const char*, void**, int, std::uint64_t, CUdriverProcAddressQueryResult*);
  start();
  const auto ask = reinterpret_cast<Ask>(dlsym(g_library, "cuGetProcAddress_v2"));
  std::vector<std::string> names = {"", "cuNoSuchFunction"};
  for (const CudaSymbol& symbol : kCudaSymbols) names.emplace_back(symbol.base);
  for (const std::string& name : names)
    for (const int version : {0, 2000, 3020, 4000, 7000, 11030, 11040, 12000, 12050, 13000, 99000})
      for (const std::uint64_t flags : {0u, 1u, 2u, 3u}) {
        void* function = nullptr;
        auto status = static_cast<CUdriverProcAddressQueryResult>(9);
        const CUresult result = ask(name.c_str(), &function, version, flags, &status);
        std::printf("%s@%d/%llu=%d,%d,%s\n", name.c_str(), version, static_cast<unsigned long long>(flags), result,
                    status, function != nullptr ? "found" : "null");
      }
  for (const CudaSymbol& symbol : kCudaSymbols)
    std::printf("%s=%s\n", symbol.exported, dlsym(g_library, symbol.exported) != nullptr ? "found" : "null");
}

void attributes() {
  start();
  for (int attribute = 1; attribute < 150; ++attribute) {
    int value = 0;
    const CUresult result = find<int*, CUdevice_attribute, CUdevice>("cuDeviceGetAttribute")(
        &value, static_cast<CUdevice_attribute>(attribute), 0);
    std::printf("%d=%d,%d\n", attribute, result, value);
  }
}

void share_memory() {
  start();
  CUdeviceptr pointer = 0;
  take(64 << 20, pointer);
  CUipcMemHandle handle{};
  std::printf("handle_code=%d handle=", find<CUipcMemHandle*, CUdeviceptr>("cuIpcGetMemHandle")(&handle, pointer));
  for (const char byte : handle.reserved) std::printf("%02x", static_cast<unsigned char>(byte));
  std::printf("\n");
  pause_here();
}
void open_memory(const char* text) {
  start();
  CUipcMemHandle handle{};
  for (std::size_t i = 0; i < sizeof handle.reserved; ++i) {
    const char digits[3] = {text[2 * i], text[2 * i + 1], 0};
    handle.reserved[i] = static_cast<char>(std::strtoul(digits, nullptr, 16));
  }
  CUdeviceptr pointer = 0;
  std::printf("open=%d\n", find<CUdeviceptr*, CUipcMemHandle, unsigned>("cuIpcOpenMemHandle_v2")(&pointer, handle, 1));
  pause_here();
  std::printf("close=%d\n", find<CUdeviceptr>("cuIpcCloseMemHandle")(pointer));
  pause_here();
}

void management(const char* serial) {
  void* library = dlopen("libnvidia-ml.so.1", RTLD_NOW);
  if (library == nullptr) return;
  const auto call = [&](const char* name) { return dlsym(library, name); };
  std::printf("nvml_init=%d\n", reinterpret_cast<int (*)()>(call("nvmlInit_v2"))());
  unsigned count = 0;
  reinterpret_cast<int (*)(unsigned*)>(call("nvmlDeviceGetCount_v2"))(&count);
  nvml::Device device = nullptr;
  const int handle =
      reinterpret_cast<int (*)(unsigned, nvml::Device*)>(call("nvmlDeviceGetHandleByIndex_v2"))(0, &device);
  nvml::Device none = nullptr;
  const int beyond =
      reinterpret_cast<int (*)(unsigned, nvml::Device*)>(call("nvmlDeviceGetHandleByIndex_v2"))(count, &none);
  char uuid[96] = {};
  reinterpret_cast<int (*)(nvml::Device, char*, unsigned)>(call("nvmlDeviceGetUUID"))(device, uuid, sizeof uuid);
  nvml::Memory memory{};
  reinterpret_cast<int (*)(nvml::Device, nvml::Memory*)>(call("nvmlDeviceGetMemoryInfo"))(device, &memory);
  nvml::MemoryV2 second{};
  second.version = nvml::version_word<nvml::MemoryV2>(2);
  const int second_code =
      reinterpret_cast<int (*)(nvml::Device, nvml::MemoryV2*)>(call("nvmlDeviceGetMemoryInfo_v2"))(device, &second);
  std::vector<nvml::ProcessInfo> processes(64);
  unsigned listed = 64;
  const int list_code = reinterpret_cast<int (*)(nvml::Device, unsigned*, nvml::ProcessInfo*)>(
      call("nvmlDeviceGetComputeRunningProcesses_v3"))(device, &listed, processes.data());
  std::printf("count=%u handle=%d beyond=%d uuid=%s total=%llu used=%llu free=%llu\n", count, handle, beyond, uuid,
              static_cast<unsigned long long>(memory.total), static_cast<unsigned long long>(memory.used),
              static_cast<unsigned long long>(memory.free));
  std::printf("v2=%d v2_version_kept=%d v2_total=%llu v2_free=%llu list=%d listed=%u pids=", second_code,
              second.version == nvml::version_word<nvml::MemoryV2>(2) ? 1 : 0,
              static_cast<unsigned long long>(second.total), static_cast<unsigned long long>(second.free), list_code,
              listed);
  for (unsigned i = 0; i < listed && i < 64; ++i) std::printf("%u,", processes[i].pid);
  std::printf("\n");
  if (serial == nullptr) return;
  std::printf("by_serial=%d\n", reinterpret_cast<int (*)(const char*, nvml::Device*)>(
                                    call("nvmlDeviceGetHandleBySerial"))(serial, &none));
}

void say(const char* what, CUresult result) {
  std::printf("%s=%d\n", what, result);
  pause_here();
}
CUmemoryPool make_pool(int device) {
  CUmemPoolProps props{};
  props.allocType = CU_MEM_ALLOCATION_TYPE_PINNED;
  props.location = {CU_MEM_LOCATION_TYPE_DEVICE, device};
  CUmemoryPool pool = nullptr;
  find<CUmemoryPool*, const CUmemPoolProps*>("cuMemPoolCreate")(&pool, &props);
  return pool;
}

// A pool is destroyed while memory from it is still out.
void destroy_pool(std::size_t bytes) {
  start();
  const CUmemoryPool pool = make_pool(0);
  CUdeviceptr pointer = 0;
  say("taken", find<CUdeviceptr*, std::size_t, CUmemoryPool, CUstream>("cuMemAllocFromPoolAsync")(&pointer, bytes, pool,
                                                                                                  nullptr));
  say("destroyed", find<CUmemoryPool>("cuMemPoolDestroy")(pool));
  say("more", take(bytes, pointer));
}

// A context with two users: the first to let go ends nothing.
void attach_context(std::size_t bytes) {
  CUcontext context = nullptr;
  find<unsigned>("cuInit")(0);
  find<CUcontext*, unsigned, CUdevice>("cuCtxCreate_v2")(&context, 0, 0);
  CUdeviceptr pointer = 0;
  say("taken", take(bytes, pointer));
  find<CUcontext*, unsigned>("cuCtxAttach")(&context, 0);
  say("detached", find<CUcontext>("cuCtxDetach")(context));
  say("more", take(bytes, pointer));
  say("ended", find<CUcontext>("cuCtxDetach")(context));
}

// Work for a stream by a thread that has no current context: a stream knows its own.
void without_context(std::size_t bytes) {
  const CUcontext context = start();
  CUstream stream = nullptr;
  find<CUstream*, unsigned>("cuStreamCreate")(&stream, CU_STREAM_NON_BLOCKING);
  CUmodule module = nullptr;
  CUfunction function = nullptr;
  find<CUmodule*, const void*>("cuModuleLoadData")(
      &module, ".version 6.3\n.target sm_70\n.address_size 64\n.visible .entry nothing()\n{\n  ret;\n}\n");
  find<CUfunction*, CUmodule, const char*>("cuModuleGetFunction")(&function, module, "nothing");
  find<CUcontext>("cuCtxSetCurrent")(nullptr);
  CUdeviceptr pointer = 0;
  const auto take_async = find<CUdeviceptr*, std::size_t, CUstream>("cuMemAllocAsync");
  say("taken", take_async(&pointer, bytes, stream));
  say("more", take_async(&pointer, bytes, stream));
  say("launched",
      find<CUfunction, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, CUstream, void**, void**>(
          "cuLaunchKernel")(function, 1, 1, 1, 1, 1, 1, 0, stream, nullptr, nullptr));
  find<CUcontext>("cuCtxSetCurrent")(context);
}

// A graph made on the first card that allocates on the second.
void graph_elsewhere(std::size_t bytes) {
  start();
  CUgraph graph = nullptr;
  CUgraphNode node = nullptr;
  CUgraphNode free_node = nullptr;
  CUgraphExec exec = nullptr;
  CUDA_MEM_ALLOC_NODE_PARAMS params{};
  params.poolProps.allocType = CU_MEM_ALLOCATION_TYPE_PINNED;
  params.poolProps.location = {CU_MEM_LOCATION_TYPE_DEVICE, 1};
  params.bytesize = bytes;
  find<CUgraph*, unsigned>("cuGraphCreate")(&graph, 0);
  find<CUgraphNode*, CUgraph, const CUgraphNode*, std::size_t, CUDA_MEM_ALLOC_NODE_PARAMS*>("cuGraphAddMemAllocNode")(
      &node, graph, nullptr, 0, &params);
  find<CUgraphNode*, CUgraph, const CUgraphNode*, std::size_t, CUdeviceptr>("cuGraphAddMemFreeNode")(
      &free_node, graph, &node, 1, params.dptr);
  say("made", find<CUgraphExec*, CUgraph, unsigned long long>("cuGraphInstantiateWithFlags")(&exec, graph, 0));
  say("run", find<CUgraphExec, CUstream>("cuGraphLaunch")(exec, nullptr));
  find<CUstream>("cuStreamSynchronize")(nullptr);
  find<CUgraphExec>("cuGraphExecDestroy")(exec);
  find<CUgraph>("cuGraphDestroy")(graph);
  say("trimmed", find<CUdevice>("cuDeviceGraphMemTrim")(1));
}

// Modules with 64 MiB of global variables each, by one door, until one is refused; and once more when all are unloaded.
void load_globals(const std::string& door, unsigned most) {
  const CUcontext context = start();
  const std::string image =
      ".version 6.3\n.target sm_70\n.address_size 64\n.visible .global .align 4 .b8 big[67108864];\n"
      ".visible .entry nothing()\n{\n  ret;\n}\n";
  char file[] = "/tmp/load-globals-XXXXXX";
  if (door == "cuModuleLoad" || door == "cuLibraryLoadFromFile") {
    const int fd = mkstemp(file);
    if (write(fd, image.data(), image.size()) != static_cast<ssize_t>(image.size())) std::exit(3);
    close(fd);
  }
  const bool library = door.rfind("cuLibrary", 0) == 0;
  std::vector<void*> loaded;
  const auto load = [&] {
    void* handle = nullptr;
    CUresult result = CUDA_SUCCESS;
    if (door == "cuModuleLoad") result = find<void**, const char*>("cuModuleLoad")(&handle, file);
    if (door == "cuModuleLoadData" || door == "cuModuleLoadFatBinary")
      result = find<void**, const void*>(door.c_str())(&handle, image.c_str());
    if (door == "cuModuleLoadDataEx")
      result = find<void**, const void*, unsigned, CUjit_option*, void**>("cuModuleLoadDataEx")(&handle, image.c_str(),
                                                                                                0, nullptr, nullptr);
    if (library)
      result = find<void**, const void*, CUjit_option*, void**, unsigned, void*, void**, unsigned>(
          door == "cuLibraryLoadFromFile" ? "cuLibraryLoadFromFile" : "cuLibraryLoadData")(
          &handle, door == "cuLibraryLoadFromFile" ? static_cast<const void*>(file) : image.c_str(), nullptr, nullptr,
          0, nullptr, nullptr, 0);
    CUmodule module = nullptr;
    if (library && result == CUDA_SUCCESS) {
      loaded.push_back(handle);
      return find<CUmodule*, void*>("cuLibraryGetModule")(&module, handle);
    }
    if (result == CUDA_SUCCESS) loaded.push_back(handle);
    return result;
  };
  CUresult result = CUDA_SUCCESS;
  while (loaded.size() < most && result == CUDA_SUCCESS) result = load();
  std::printf("loaded=%zu\nrefused=%d\n", loaded.size(), result);
  CUdeviceptr pointer = 0;
  say("alloc", take(1 << 20, pointer));
  for (void* handle : loaded) find<void*>(library ? "cuLibraryUnload" : "cuModuleUnload")(handle);
  loaded.clear();
  say("again", load());
  find<CUcontext>("cuCtxSetCurrent")(context);
  unlink(file);
}

// How much each card gives, in pieces.
void fill_cards(std::size_t bytes) {
  find<unsigned>("cuInit")(0);
  for (int card = 0; card < 2; ++card) {
    CUcontext context = nullptr;
    find<CUcontext*, CUdevice>("cuDevicePrimaryCtxRetain")(&context, card);
    find<CUcontext>("cuCtxSetCurrent")(context);
    std::size_t pieces = 0;
    CUdeviceptr pointer = 0;
    while (pieces < 1000 && take(bytes, pointer) == CUDA_SUCCESS) ++pieces;
    std::printf("pieces%d=%zu\n", card, pieces);
  }
}

void device_uuid() {
  CUuuid uuid{};
  find<CUuuid*, CUdevice>("cuDeviceGetUuid_v2")(&uuid, 0);
  std::printf("uuid=GPU-");
  for (int i = 0; i < 16; ++i) std::printf(i == 4 || i == 6 || i == 8 || i == 10 ? "-%02x" : "%02x", uuid.bytes[i]);
  std::printf("\n");
}

}  // namespace

int main(int count, char** arguments) {
  const std::string command = count > 1 ? arguments[1] : "";
  g_library = dlopen("libcuda.so.1", RTLD_NOW);
  if (g_library == nullptr) return 4;
  if (command == "locations") {
    locations();
  } else if (command == "symbols") {
    symbols();
  } else if (command == "attributes") {
    attributes();
  } else if (command == "share") {
    share_memory();
  } else if (command == "open" && count > 2) {
    open_memory(arguments[2]);
  } else if (command == "management") {
    start();
    CUdeviceptr pointer = 0;
    std::printf("own=%d alloc=%d\n", getpid(), take(100 << 20, pointer));
    management(count > 2 ? arguments[2] : nullptr);
  } else if (command == "uuid") {
    start();
    device_uuid();
  } else if (command == "take" && count > 2) {
    start();
    CUdeviceptr pointer = 0;
    std::printf("take=%d\n", take(std::strtoull(arguments[2], nullptr, 0), pointer));
    pause_here();
    std::printf("more=%d\n", take(std::strtoull(arguments[2], nullptr, 0), pointer));
    pause_here();
  } else if (command == "take_and_exec" && count > 2) {
    start();
    CUdeviceptr pointer = 0;
    std::printf("before=%d\n", take(std::strtoull(arguments[2], nullptr, 0), pointer));
    std::fflush(stdout);
    execl("/proc/self/exe", arguments[0], "take", arguments[2], nullptr);
    return 3;
  } else if (command == "destroy_pool" && count > 2) {
    destroy_pool(std::strtoull(arguments[2], nullptr, 0));
  } else if (command == "attach_context" && count > 2) {
    attach_context(std::strtoull(arguments[2], nullptr, 0));
  } else if (command == "without_context" && count > 2) {
    without_context(std::strtoull(arguments[2], nullptr, 0));
  } else if (command == "graph_elsewhere" && count > 2) {
    graph_elsewhere(std::strtoull(arguments[2], nullptr, 0));
  } else if (command == "load_globals" && count > 3) {
    load_globals(arguments[2], static_cast<unsigned>(std::strtoul(arguments[3], nullptr, 0)));
  } else if (command == "fill_cards" && count > 2) {
    fill_cards(std::strtoull(arguments[2], nullptr, 0));
  } else if (command == "export_table") {
    start();
    const void* table = nullptr;
    const CUuuid unknown{};
    for (int times = 0; times < 2; ++times)
      say("table", find<const void**, const CUuuid*>("cuGetExportTable")(&table, &unknown));
  } else if (command == "hold_namespace") {
    start();
    std::printf("namespace=%d\n", dlmopen(LM_ID_NEWLM, "libc.so.6", RTLD_NOW) != nullptr ? 1 : 0);
  } else {
    return 2;
  }
  return 0;
}
