// A tenant that uses memory pools to their limits.
//   pools fill BYTES [own|_ptsz]   takes pieces from the default pool, or one of its own, until refused; gives all back
//   pools churn BYTES              takes until refused, then gives back and takes again, many times
//   pools outlive BYTES            ends a pool whose memory is still out, and gives that back afterwards
#include <cstdlib>
#include <string>
#include <vector>

#include "tests/limiter/lookup.h"

using namespace tensor_fusion::tests;

namespace {

CUmemoryPool make_pool() {
  CUmemPoolProps props{};
  props.allocType = CU_MEM_ALLOCATION_TYPE_PINNED;
  props.location = {CU_MEM_LOCATION_TYPE_DEVICE, 0};
  CUmemoryPool pool = nullptr;
  find<CUmemoryPool*, const CUmemPoolProps*>("cuMemPoolCreate")(&pool, &props);
  return pool;
}

CUresult take(CUdeviceptr& pointer, std::size_t bytes, CUmemoryPool pool, CUstream stream, const std::string& flavour) {
  if (pool != nullptr)
    return find<CUdeviceptr*, std::size_t, CUmemoryPool, CUstream>("cuMemAllocFromPoolAsync")(&pointer, bytes, pool,
                                                                                              stream);
  return find<CUdeviceptr*, std::size_t, CUstream>(("cuMemAllocAsync" + flavour).c_str())(&pointer, bytes, stream);
}
CUresult give(CUdeviceptr pointer, CUstream stream) {
  return find<CUdeviceptr, CUstream>("cuMemFreeAsync")(pointer, stream);
}

void fill(std::size_t bytes, const std::string& kind) {
  CUstream stream = nullptr;
  find<CUstream*, unsigned>("cuStreamCreate")(&stream, CU_STREAM_NON_BLOCKING);
  const CUmemoryPool pool = kind == "own" ? make_pool() : nullptr;
  const std::string flavour = kind == "own" ? "" : kind;
  std::vector<CUdeviceptr> held;
  CUdeviceptr pointer = 0;
  CUresult result = CUDA_SUCCESS;
  while ((result = take(pointer, bytes, pool, stream, flavour)) == CUDA_SUCCESS) held.push_back(pointer);
  say("refused", result);
  say("pieces", static_cast<long long>(held.size()));
  CUresult given = CUDA_SUCCESS;
  for (const CUdeviceptr one : held)
    if (const CUresult each = give(one, stream); each != CUDA_SUCCESS) given = each;
  find<CUstream>("cuStreamSynchronize")(stream);
  say("given", given);
}

void churn(std::size_t bytes) {
  std::vector<CUdeviceptr> held;
  CUdeviceptr pointer = 0;
  std::size_t fewest = ~std::size_t{0};
  CUresult wrong = CUDA_SUCCESS;
  for (int round = 0; round < 20; ++round) {
    CUresult result = CUDA_SUCCESS;
    while ((result = take(pointer, bytes, nullptr, nullptr, "")) == CUDA_SUCCESS) held.push_back(pointer);
    if (result != CUDA_ERROR_OUT_OF_MEMORY) wrong = result;
    fewest = held.size() < fewest ? held.size() : fewest;
    while (!held.empty()) {
      if (const CUresult each = give(held.back(), nullptr); each != CUDA_SUCCESS) wrong = each;
      held.pop_back();
    }
  }
  find<>("cuCtxSynchronize")();
  std::printf("fewest=%zu\n", fewest);
  say("wrong", wrong);
}

void outlive(std::size_t bytes) {
  CUmemoryPool pool = make_pool();
  CUdeviceptr pointer = 0;
  find<CUdevice, CUmemoryPool>("cuDeviceSetMemPool")(0, pool);
  say("taken", take(pointer, bytes, pool, nullptr, ""));
  say("ended", find<CUmemoryPool>("cuMemPoolDestroy")(pool));
  CUmemoryPool current = nullptr;
  CUmemoryPool first = nullptr;
  find<CUmemoryPool*, CUdevice>("cuDeviceGetMemPool")(&current, 0);
  find<CUmemoryPool*, CUdevice>("cuDeviceGetDefaultMemPool")(&first, 0);
  say("default_again", current == first ? 1 : 0);
  CUdeviceptr none = 0;
  say("from_ended", take(none, 1024, pool, nullptr, ""));
  say("ended_twice", find<CUmemoryPool>("cuMemPoolDestroy")(pool));
  give(pointer, nullptr);
  find<CUstream>("cuStreamSynchronize")(nullptr);
  say("freed", 0);
}

}  // namespace

int main(int count, char** arguments) {
  const std::string command = count > 1 ? arguments[1] : "";
  const std::size_t bytes = count > 2 ? std::strtoull(arguments[2], nullptr, 0) : 1 << 20;
  g_library = dlopen("libcuda.so.1", RTLD_NOW);
  if (g_library == nullptr) return 4;
  start();
  if (command == "fill") {
    fill(bytes, count > 3 ? arguments[3] : "");
  } else if (command == "churn") {
    churn(bytes);
  } else if (command == "outlive") {
    outlive(bytes);
  } else {
    return 2;
  }
  return 0;
}
