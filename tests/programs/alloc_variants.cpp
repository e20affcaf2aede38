// Every other way to take memory or a context, and what handles can do with it: what alloc_all_paths leaves out. One
// JSON line each: what the call answered and how much of the device's account was left when all was given back. Exit 0:
// each answered success, or that this driver has it no more, and gave everything back; 1: not so.
#include <unistd.h>

#include <chrono>
#include <functional>
#include <thread>
#include <vector>

#include "driver.h"

using namespace tensor_fusion::programs;

namespace {

constexpr std::size_t kBytes = std::size_t{4} << 20;

struct Path {
  const char* name;
  std::function<CUresult()> run;  // takes and gives back
};

// The first failure of several calls in turn.
CUresult all(std::initializer_list<std::function<CUresult()>> calls) {
  for (const auto& call : calls)
    if (const CUresult result = call(); result != CUDA_SUCCESS) return result;
  return CUDA_SUCCESS;
}

CUresult context(Driver& d, CUcontext home, const std::function<CUresult(CUcontext*)>& create,
                 const std::function<CUresult(CUcontext)>& destroy) {
  CUcontext made = nullptr;
  if (const CUresult r = create(&made); r != CUDA_SUCCESS) return r;
  CUdeviceptr pointer = 0;
  CUresult result = d.cuMemAlloc_v2(&pointer, kBytes);  // goes with the context
  if (const CUresult r = destroy(made); result == CUDA_SUCCESS) result = r;
  d.cuCtxSetCurrent(home);
  return result;
}

CUresult pushed(Driver& d, const Library& l, CUcontext home, const char* push, const char* pop) {
  CUcontext popped = nullptr;
  CUdeviceptr pointer = 0;
  CUresult result = d.cuCtxSetCurrent(nullptr);
  if (result == CUDA_SUCCESS) result = l.find<CUcontext>(push)(home);
  if (result == CUDA_SUCCESS) result = d.cuMemAlloc_v2(&pointer, kBytes);
  if (result == CUDA_SUCCESS) result = d.cuMemFree_v2(pointer);
  if (result == CUDA_SUCCESS) result = l.find<CUcontext*>(pop)(&popped);
  if (result == CUDA_SUCCESS && popped != home) result = CUDA_ERROR_UNKNOWN;
  d.cuCtxSetCurrent(home);
  return result;
}

// Another handle for what is mapped, its first one gone.
CUresult retained(Driver& d) {
  const CUmemAllocationProp prop = on_device();
  CUmemGenericAllocationHandle memory = 0;
  CUmemGenericAllocationHandle again = 0;
  CUdeviceptr at = 0;
  return all({[&] { return d.cuMemCreate(&memory, kBytes, &prop, 0); },
              [&] { return d.cuMemAddressReserve(&at, kBytes, 0, 0, 0); },
              [&] { return d.cuMemMap(at, kBytes, 0, memory, 0); }, [&] { return d.cuMemRelease(memory); },
              [&] { return d.cuMemRetainAllocationHandle(&again, reinterpret_cast<void*>(at)); },
              [&] { return d.cuMemUnmap(at, kBytes); }, [&] { return d.cuMemRelease(again); },
              [&] { return d.cuMemAddressFree(at, kBytes); }});
}

CUresult shared(Driver& d) {
  const CUmemAllocationProp prop = on_device();
  CUmemGenericAllocationHandle memory = 0;
  CUmemGenericAllocationHandle again = 0;
  int file = -1;
  const CUresult result =
      all({[&] { return d.cuMemCreate(&memory, kBytes, &prop, 0); },
           [&] { return d.cuMemExportToShareableHandle(&file, memory, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0); },
           [&] {
             return d.cuMemImportFromShareableHandle(&again, reinterpret_cast<void*>(static_cast<std::intptr_t>(file)),
                                                     CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR);
           },
           [&] { return d.cuMemRelease(again); }, [&] { return d.cuMemRelease(memory); }});
  if (file >= 0) ::close(file);
  return result;
}

long long used(Driver& d) {
  std::size_t free_bytes = 0;
  std::size_t total_bytes = 0;
  d.cuMemGetInfo_v2(&free_bytes, &total_bytes);
  return static_cast<long long>(total_bytes) - static_cast<long long>(free_bytes);
}

// In a slice what the ledger does not count is measured, so the view follows a moment later.
long long left_of(Driver& d, long long before) {
  const auto patience = std::chrono::steady_clock::now() + std::chrono::seconds(30);
  while (used(d) != before && std::chrono::steady_clock::now() < patience)
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  return used(d) - before;
}

// Memory in four tiles of an array, of which one goes by itself and the others in one list, the handle long gone.
CUresult sparse(Driver& d, const char* map, const Library& l) {
  constexpr unsigned kTile = 128;
  const CUDA_ARRAY3D_DESCRIPTOR shape{1024, 1024, 0, CU_AD_FORMAT_FLOAT, 1, CUDA_ARRAY3D_SPARSE};
  CUmemAllocationProp prop = on_device();
  prop.allocFlags.usage = 1;  // for tiles
  CUarray array = nullptr;
  CUmemGenericAllocationHandle memory = 0;
  const auto region = [&](CUmemOperationType operation, unsigned x, unsigned y, unsigned width, unsigned height) {
    CUarrayMapInfo info{};
    info.resource.array = array;
    auto& level = info.subresource.sparseLevel;
    level.offsetX = x * kTile;
    level.offsetY = y * kTile;
    level.extentWidth = width * kTile;
    level.extentHeight = height * kTile;
    level.extentDepth = 1;
    info.memOperationType = operation;
    info.memHandle.memHandle = operation == CU_MEM_OPERATION_TYPE_MAP ? memory : 0;
    info.deviceBitMask = 1;
    return info;
  };
  const auto change = l.find<CUarrayMapInfo*, unsigned, CUstream>(map);
  if (const CUresult r = d.cuArray3DCreate_v2(&array, &shape); r != CUDA_SUCCESS) return r;
  const long long before = used(d);
  const CUresult result =
      all({[&] { return d.cuMemCreate(&memory, std::size_t{2} << 20, &prop, 0); },
           [&] {
             CUarrayMapInfo info = region(CU_MEM_OPERATION_TYPE_MAP, 0, 0, 2, 2);
             return change(&info, 1, nullptr);
           },
           [&] { return d.cuMemRelease(memory); },
           [&] {
             CUarrayMapInfo info = region(CU_MEM_OPERATION_TYPE_UNMAP, 1, 0, 1, 1);
             return change(&info, 1, nullptr);
           },
           [&] { return d.cuCtxSynchronize(); }, [&] { return used(d) > before ? CUDA_SUCCESS : CUDA_ERROR_UNKNOWN; },
           [&] {
             CUarrayMapInfo rest[] = {region(CU_MEM_OPERATION_TYPE_UNMAP, 0, 0, 1, 1),
                                      region(CU_MEM_OPERATION_TYPE_UNMAP, 0, 1, 2, 1)};
             return change(rest, 2, nullptr);
           },
           [&] { return d.cuCtxSynchronize(); }});
  const long long left = left_of(d, before);
  d.cuArrayDestroy(array);
  return result == CUDA_SUCCESS && left != 0 ? CUDA_ERROR_UNKNOWN : result;
}

CUresult pool_at(const Library& l, const char* ask, CUmemLocationType type) {
  CUmemLocation location{type, 0};
  CUmemoryPool pool = nullptr;
  return l.find<CUmemoryPool*, CUmemLocation*, CUmemAllocationType>(ask)(&pool, &location,
                                                                         CU_MEM_ALLOCATION_TYPE_PINNED);
}

// What a driver since 3.2 has for old programs only, with 32-bit addresses.
CUresult old_memory(const Library& l) {
  CUdeviceptr_v1 pointer = 0;
  unsigned pitch = 0;
  CUresult result = l.find<CUdeviceptr_v1*, unsigned>("cuMemAlloc")(&pointer, kBytes);
  if (result == CUDA_SUCCESS) result = l.find<CUdeviceptr_v1>("cuMemFree")(pointer);
  if (result != CUDA_SUCCESS) return result;
  result = l.find<CUdeviceptr_v1*, unsigned*, unsigned, unsigned, unsigned>("cuMemAllocPitch")(&pointer, &pitch, 1000,
                                                                                               1000, 4);
  return result == CUDA_SUCCESS ? l.find<CUdeviceptr_v1>("cuMemFree")(pointer) : result;
}

CUresult limit_of_heap(const Library& l) {
  std::size_t before = 0;
  const auto set = l.find<CUlimit, std::size_t>("cuCtxSetLimit");
  return all({[&] { return l.find<std::size_t*, CUlimit>("cuCtxGetLimit")(&before, CU_LIMIT_MALLOC_HEAP_SIZE); },
              [&] { return set(CU_LIMIT_MALLOC_HEAP_SIZE, before + kBytes); },
              [&] { return set(CU_LIMIT_MALLOC_HEAP_SIZE, before); }});
}

CUresult checkpointed(Driver& d, const Library& l) {
  const int own = ::getpid();
  int thread = 0;
  CUprocessState state{};
  CUcheckpointLockArgs lock{};
  CUdeviceptr pointer = 0;
  return all({[&] { return d.cuMemAlloc_v2(&pointer, kBytes); },
              [&] { return l.find<int, int*>("cuCheckpointProcessGetRestoreThreadId")(own, &thread); },
              [&] { return l.find<int, CUcheckpointLockArgs*>("cuCheckpointProcessLock")(own, &lock); },
              [&] { return l.find<int, CUcheckpointCheckpointArgs*>("cuCheckpointProcessCheckpoint")(own, nullptr); },
              [&] { return l.find<int, CUprocessState*>("cuCheckpointProcessGetState")(own, &state); },
              [&] { return l.find<int, CUcheckpointRestoreArgs*>("cuCheckpointProcessRestore")(own, nullptr); },
              [&] { return l.find<int, CUcheckpointUnlockArgs*>("cuCheckpointProcessUnlock")(own, nullptr); },
              [&] { return d.cuMemFree_v2(pointer); }});
}

std::vector<Path> paths(Driver& d, const Library& l, CUcontext home) {
  const auto destroy = [&l](const char* name) {
    return [&l, name](CUcontext made) { return l.find<CUcontext>(name)(made); };
  };
  return {
      {"cuCtxCreate",
       [&d, &l, home, destroy] {
         return context(
             d, home,
             [&](CUcontext* made) { return l.find<CUcontext*, unsigned, CUdevice>("cuCtxCreate")(made, 0, 0); },
             destroy("cuCtxDestroy"));
       }},
      {"cuCtxCreate_v3",
       [&d, &l, home, destroy] {
         return context(
             d, home,
             [&](CUcontext* made) {
               return l.find<CUcontext*, CUexecAffinityParam*, int, unsigned, CUdevice>("cuCtxCreate_v3")(made, nullptr,
                                                                                                          0, 0, 0);
             },
             destroy("cuCtxDestroy_v2"));
       }},
      {"cuCtxCreate_v4",
       [&d, &l, home, destroy] {
         return context(
             d, home,
             [&](CUcontext* made) {
               return l.find<CUcontext*, CUctxCreateParams*, unsigned, CUdevice>("cuCtxCreate_v4")(made, nullptr, 0, 0);
             },
             destroy("cuCtxDestroy_v2"));
       }},
      {"cuCtxPushCurrent", [&d, &l, home] { return pushed(d, l, home, "cuCtxPushCurrent", "cuCtxPopCurrent"); }},
      {"cuCtxPushCurrent_v2",
       [&d, &l, home] { return pushed(d, l, home, "cuCtxPushCurrent_v2", "cuCtxPopCurrent_v2"); }},
      {"cuCtxSetLimit", [&l] { return limit_of_heap(l); }},
      {"cuMemAlloc", [&l] { return old_memory(l); }},
      {"cuMemGetInfo",
       [&l] {
         unsigned free_bytes = 0;
         unsigned total_bytes = 0;
         return l.find<unsigned*, unsigned*>("cuMemGetInfo")(&free_bytes, &total_bytes);
       }},
      {"cuDeviceTotalMem",
       [&l] {
         unsigned bytes = 0;
         return l.find<unsigned*, CUdevice>("cuDeviceTotalMem")(&bytes, 0);
       }},
      {"cuMemRetainAllocationHandle", [&d] { return retained(d); }},
      {"cuMemImportFromShareableHandle", [&d] { return shared(d); }},
      {"cuMemMapArrayAsync", [&d, &l] { return sparse(d, "cuMemMapArrayAsync", l); }},
      {"cuMemMapArrayAsync_ptsz", [&d, &l] { return sparse(d, "cuMemMapArrayAsync_ptsz", l); }},
      {"cuMemGetDefaultMemPool", [&l] { return pool_at(l, "cuMemGetDefaultMemPool", CU_MEM_LOCATION_TYPE_DEVICE); }},
      {"cuMemGetDefaultMemPool_host", [&l] { return pool_at(l, "cuMemGetDefaultMemPool", CU_MEM_LOCATION_TYPE_HOST); }},
      {"cuMemGetMemPool", [&l] { return pool_at(l, "cuMemGetMemPool", CU_MEM_LOCATION_TYPE_DEVICE); }},
      {"cuMemPoolImportFromShareableHandle",
       [&l] {
         CUmemoryPool pool = nullptr;
         const CUresult r = l.find<CUmemoryPool*, void*, CUmemAllocationHandleType, std::uint64_t>(
             "cuMemPoolImportFromShareableHandle")(&pool, nullptr, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0);
         return r != CUDA_SUCCESS ? CUDA_SUCCESS : CUDA_ERROR_UNKNOWN;  // there is nothing to import
       }},
      // These end the context that the others use.
      {"cuDevicePrimaryCtxReset",
       [&d, &l] {
         CUcontext again = nullptr;
         CUdeviceptr pointer = 0;
         return all({[&] { return d.cuMemAlloc_v2(&pointer, kBytes); },
                     [&] { return l.find<CUdevice>("cuDevicePrimaryCtxReset")(0); },
                     [&] { return d.cuDevicePrimaryCtxRetain(&again, 0); }, [&] { return d.cuCtxSetCurrent(again); }});
       }},
      {"cuDevicePrimaryCtxRelease",
       [&d, &l] {
         CUcontext again = nullptr;
         CUdeviceptr pointer = 0;
         return all({[&] { return d.cuMemAlloc_v2(&pointer, kBytes); },
                     [&] { return l.find<CUdevice>("cuDevicePrimaryCtxRelease")(0); },
                     [&] { return d.cuDevicePrimaryCtxRetain(&again, 0); }, [&] { return d.cuCtxSetCurrent(again); }});
       }},
      // Last: a measurement in the middle of it would see nothing held.
      {"cuCheckpointProcess", [&d, &l] { return checkpointed(d, l); }},
  };
}

// In a slice the context's own memory is measured a moment after it was taken: starts from a view that has come to
// rest.
void await_rest(Driver& d) {
  using Clock = std::chrono::steady_clock;
  const auto patience = Clock::now() + std::chrono::seconds(10);
  auto since = Clock::now();
  for (long long seen = used(d); Clock::now() - since < std::chrono::milliseconds(1200) && Clock::now() < patience;) {
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    if (const long long now = used(d); now != seen) seen = now, since = Clock::now();
  }
}

}  // namespace

int main() {
  Driver d;
  if (d.library == nullptr || d.cuInit(0) != CUDA_SUCCESS) return std::fprintf(stderr, "no CUDA device here\n"), 77;
  const Library l{d.library};
  CUcontext home = nullptr;
  if (d.cuDevicePrimaryCtxRetain(&home, 0) != CUDA_SUCCESS || d.cuCtxSetCurrent(home) != CUDA_SUCCESS) return 1;
  await_rest(d);
  bool good = true;
  for (const auto& [name, run] : paths(d, l, home)) {
    const long long before = used(d);
    const CUresult result = run();
    const long long left = left_of(d, before);
    Line(name, d.name_of(result)).number("left_bytes", left);
    good = good && (result == CUDA_SUCCESS || result == CUDA_ERROR_NOT_SUPPORTED) && left == 0;
  }
  return good ? 0 : 1;
}
