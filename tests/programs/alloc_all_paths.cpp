// Takes and returns device memory by every path a program has, one JSON line each: what the call answered, how much the
// device's account grew while it was held, and how much of that was left after it was returned.
//   alloc_all_paths [--path NAME] [--bytes N] [--keep] [--list]
// Exit 0: every path answered success or (with a limit) out of memory and gave everything back; 1: not so.
#include <chrono>
#include <functional>
#include <thread>
#include <utility>
#include <vector>

#include "driver.h"

using namespace tensor_fusion::programs;

namespace {

struct Held {
  std::function<CUresult()> give;  // empty: nothing was taken
};
using Take = std::function<CUresult(Held&)>;

std::size_t granular(std::size_t bytes) {
  return (bytes + (std::size_t{2} << 20) - 1) / (std::size_t{2} << 20) * (std::size_t{2} << 20);
}

CUmemPoolProps pool_properties() {
  CUmemPoolProps properties{};
  properties.allocType = CU_MEM_ALLOCATION_TYPE_PINNED;
  properties.location = {CU_MEM_LOCATION_TYPE_DEVICE, 0};
  return properties;
}

std::vector<std::pair<const char*, Take>> paths(Driver& d, std::size_t bytes) {
  const auto async = [&d, bytes](auto alloc, auto free) -> Take {
    return [&d, bytes, alloc, free](Held& held) {
      CUdeviceptr p = 0;
      const CUresult result = alloc(&p, bytes, nullptr);
      if (result != CUDA_SUCCESS) return result;
      held.give = [&d, p, free] {
        CUmemoryPool pool = nullptr;
        if (const CUresult r = free(p, nullptr); r != CUDA_SUCCESS) return r;
        if (const CUresult r = d.cuCtxSynchronize(); r != CUDA_SUCCESS) return r;
        if (const CUresult r = d.cuDeviceGetDefaultMemPool(&pool, 0); r != CUDA_SUCCESS) return r;
        return d.cuMemPoolTrimTo(pool, 0);
      };
      return result;
    };
  };
  const auto from_pool = [&d, bytes](auto alloc, auto free) -> Take {
    return [&d, bytes, alloc, free](Held& held) {
      const CUmemPoolProps properties = pool_properties();
      CUmemoryPool pool = nullptr;
      if (const CUresult r = d.cuMemPoolCreate(&pool, &properties); r != CUDA_SUCCESS) return r;
      CUdeviceptr p = 0;
      const CUresult result = alloc(&p, bytes, pool, nullptr);
      if (result != CUDA_SUCCESS) {
        d.cuMemPoolDestroy(pool);
        return result;
      }
      held.give = [&d, p, pool, free] {
        if (const CUresult r = free(p, nullptr); r != CUDA_SUCCESS) return r;
        if (const CUresult r = d.cuCtxSynchronize(); r != CUDA_SUCCESS) return r;
        return d.cuMemPoolDestroy(pool);
      };
      return result;
    };
  };
  const auto array = [&d](auto create, auto shape) -> Take {
    return [&d, create, shape](Held& held) {
      CUarray a = nullptr;
      const CUresult result = create(&a, &shape);
      if (result == CUDA_SUCCESS) held.give = [&d, a] { return d.cuArrayDestroy(a); };
      return result;
    };
  };
  const std::size_t side = 1024, rows = bytes / (side * 4) != 0 ? bytes / (side * 4) : 1;
  return {
      {"cuMemAlloc",
       [&d, bytes](Held& held) {
         CUdeviceptr p = 0;
         const CUresult result = d.cuMemAlloc_v2(&p, bytes);
         if (result == CUDA_SUCCESS) held.give = [&d, p] { return d.cuMemFree_v2(p); };
         return result;
       }},
      {"cuMemAllocPitch",
       [&d, rows](Held& held) {
         CUdeviceptr p = 0;
         std::size_t pitch = 0;
         const CUresult result = d.cuMemAllocPitch_v2(&p, &pitch, 4096, rows, 4);
         if (result == CUDA_SUCCESS) held.give = [&d, p] { return d.cuMemFree_v2(p); };
         return result;
       }},
      {"cuMemAllocManaged",
       [&d, bytes](Held& held) {
         CUdeviceptr p = 0;
         const CUresult result = d.cuMemAllocManaged(&p, bytes, CU_MEM_ATTACH_GLOBAL);
         if (result == CUDA_SUCCESS) held.give = [&d, p] { return d.cuMemFree_v2(p); };
         return result;
       }},
      {"cuMemAllocAsync", async(d.cuMemAllocAsync, d.cuMemFreeAsync)},
      {"cuMemAllocAsync_ptsz", async(d.cuMemAllocAsync_ptsz, d.cuMemFreeAsync_ptsz)},
      {"cuMemAllocFromPoolAsync", from_pool(d.cuMemAllocFromPoolAsync, d.cuMemFreeAsync)},
      {"cuMemAllocFromPoolAsync_ptsz", from_pool(d.cuMemAllocFromPoolAsync_ptsz, d.cuMemFreeAsync_ptsz)},
      {"cuMemCreate",
       [&d, bytes](Held& held) {
         CUmemAllocationProp properties{};
         properties.type = CU_MEM_ALLOCATION_TYPE_PINNED;
         properties.location = {CU_MEM_LOCATION_TYPE_DEVICE, 0};
         CUmemGenericAllocationHandle memory = 0;
         const std::size_t size = granular(bytes);
         CUresult result = d.cuMemCreate(&memory, size, &properties, 0);
         if (result != CUDA_SUCCESS) return result;
         CUdeviceptr at = 0;
         result = d.cuMemAddressReserve(&at, size, 0, 0, 0);
         if (result == CUDA_SUCCESS) result = d.cuMemMap(at, size, 0, memory, 0);
         // Released while mapped: the mapping keeps it.
         if (result == CUDA_SUCCESS) result = d.cuMemRelease(memory);
         held.give = [&d, at, size] {
           if (const CUresult r = d.cuMemUnmap(at, size); r != CUDA_SUCCESS) return r;
           return d.cuMemAddressFree(at, size);
         };
         return result;
       }},
      {"cuMemCreate_host",
       [&d, bytes](Held& held) {
         CUmemAllocationProp properties{};
         properties.type = CU_MEM_ALLOCATION_TYPE_PINNED;
         properties.location = {CU_MEM_LOCATION_TYPE_HOST_NUMA, 0};
         CUmemGenericAllocationHandle memory = 0;
         const CUresult result = d.cuMemCreate(&memory, granular(bytes), &properties, 0);
         if (result == CUDA_SUCCESS) held.give = [&d, memory] { return d.cuMemRelease(memory); };
         return result;
       }},
      {"cuArrayCreate", array(d.cuArrayCreate_v2, CUDA_ARRAY_DESCRIPTOR{side, rows, CU_AD_FORMAT_FLOAT, 1})},
      {"cuArray3DCreate",
       array(d.cuArray3DCreate_v2, CUDA_ARRAY3D_DESCRIPTOR{side, rows, 1, CU_AD_FORMAT_FLOAT, 1, 0})},
      {"cuMipmappedArrayCreate",
       [&d, rows](Held& held) {
         const CUDA_ARRAY3D_DESCRIPTOR shape{1024, rows, 0, CU_AD_FORMAT_FLOAT, 1, 0};
         CUmipmappedArray a = nullptr;
         const CUresult result = d.cuMipmappedArrayCreate(&a, &shape, 3);
         if (result == CUDA_SUCCESS) held.give = [&d, a] { return d.cuMipmappedArrayDestroy(a); };
         return result;
       }},
      {"cuModuleGlobal",
       [&d, bytes](Held& held) {
         const std::string text = ".version 6.3\n.target sm_70\n.address_size 64\n.visible .global .align 8 .b8 pool[" +
                                  std::to_string(bytes) + "];\n.visible .entry nothing()\n{\n  ret;\n}\n";
         CUmodule module = nullptr;
         const CUresult result = d.cuModuleLoadData(&module, text.c_str());
         if (result == CUDA_SUCCESS) held.give = [&d, module] { return d.cuModuleUnload(module); };
         return result;
       }},
      {"cuGraphAddMemAllocNode",
       [&d, bytes](Held& held) {
         CUgraph graph = nullptr;
         if (const CUresult r = d.cuGraphCreate(&graph, 0); r != CUDA_SUCCESS) return r;
         CUDA_MEM_ALLOC_NODE_PARAMS params{};
         params.poolProps = pool_properties();
         params.bytesize = bytes;
         CUgraphNode taken = nullptr, given = nullptr;
         CUgraphExec exec = nullptr;
         CUresult result = d.cuGraphAddMemAllocNode(&taken, graph, nullptr, 0, &params);
         if (result == CUDA_SUCCESS) result = d.cuGraphAddMemFreeNode(&given, graph, &taken, 1, params.dptr);
         if (result == CUDA_SUCCESS) result = d.cuGraphInstantiateWithFlags(&exec, graph, 0);
         if (result == CUDA_SUCCESS) result = d.cuGraphLaunch(exec, nullptr);
         if (result == CUDA_SUCCESS) result = d.cuCtxSynchronize();
         held.give = [&d, graph, exec] {
           if (exec != nullptr) d.cuGraphExecDestroy(exec);
           d.cuGraphDestroy(graph);
           return d.cuDeviceGraphMemTrim(0);
         };
         return result;
       }},
      {"cuCtxCreate",
       [&d](Held& held) {
         CUcontext before = nullptr, made = nullptr;
         d.cuCtxGetCurrent(&before);
         const CUresult result = d.cuCtxCreate_v2(&made, 0, 0);
         if (result != CUDA_SUCCESS) return result;
         d.cuCtxSetCurrent(before);
         held.give = [&d, made] { return d.cuCtxDestroy_v2(made); };
         return result;
       }},
  };
}

long long used(Driver& d) {
  std::size_t free = 0, total = 0;
  d.cuMemGetInfo_v2(&free, &total);
  return static_cast<long long>(total) - static_cast<long long>(free);
}

}  // namespace

int main(int argc, char** argv) {
  std::string only;
  std::size_t bytes = std::size_t{8} << 20;
  bool keep = false, list = false;
  for (int i = 1; i < argc; ++i) {
    const std::string word = argv[i];
    if (word == "--path" && i + 1 < argc)
      only = argv[++i];
    else if (word == "--bytes" && i + 1 < argc)
      bytes = std::strtoull(argv[++i], nullptr, 10);
    else if (word == "--keep")
      keep = true;  // holds everything until the end: for limits over several paths
    else if (word == "--list")
      list = true;
    else
      return std::fprintf(stderr, "usage: alloc_all_paths [--path NAME] [--bytes N] [--keep] [--list]\n"), 2;
  }
  Driver d;
  if (d.library == nullptr || d.cuInit(0) != CUDA_SUCCESS) return std::fprintf(stderr, "no CUDA device here\n"), 77;
  CUcontext context = nullptr;
  if (d.cuDevicePrimaryCtxRetain(&context, 0) != CUDA_SUCCESS || d.cuCtxSetCurrent(context) != CUDA_SUCCESS) return 1;
  bool good = true;
  std::vector<Held> kept;
  for (const auto& [name, take] : paths(d, bytes)) {
    if (list) {
      std::printf("%s\n", name);
      continue;
    }
    if (!only.empty() && only != name) continue;
    const long long before = used(d);
    Held held;
    const CUresult result = take(held);
    const long long during = used(d);
    CUresult given = CUDA_SUCCESS;
    if (keep)
      kept.push_back(std::move(held));
    else if (held.give)
      given = held.give();
    long long after = used(d);
    // In a slice a module's data is not on the ledger but measured, so the view follows a moment later.
    const bool measured = std::string(name) == "cuModuleGlobal";
    const auto patience = std::chrono::steady_clock::now() + std::chrono::seconds(30);
    while (measured && !keep && after != before && std::chrono::steady_clock::now() < patience) {
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
      after = used(d);
    }
    Line(name, d.name_of(result))
        .number("held_bytes", during - before)
        .number("left_bytes", after - before)
        .number("give", given);
    good = good && (result == CUDA_SUCCESS || result == CUDA_ERROR_OUT_OF_MEMORY) && given == CUDA_SUCCESS &&
           (keep || after == before);
  }
  for (auto it = kept.rbegin(); it != kept.rend(); ++it)
    if (it->give && it->give() != CUDA_SUCCESS) good = false;
  return good ? 0 : 1;
}
