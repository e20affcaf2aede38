// not a test by itself: its figure is one to compare; tests/e2e/test_symptoms.py calls it
// Keeps two cards busy at once, as a service that has two models does.
//   two_cards LAUNCHES NANOSECONDS
// One JSON line: seconds from the first launch until both cards are done.
#include <chrono>

#include "driver.h"

using namespace tensor_fusion::programs;

int main(int argc, char** argv) {
  if (argc != 3) return std::fprintf(stderr, "usage: two_cards LAUNCHES NANOSECONDS\n"), 2;
  const int launches = std::atoi(argv[1]);
  std::uint64_t ns = std::strtoull(argv[2], nullptr, 10);
  Driver d;
  if (d.library == nullptr || d.cuInit(0) != CUDA_SUCCESS) return std::fprintf(stderr, "no CUDA device here\n"), 77;
  CUcontext contexts[2] = {};
  CUfunction busy[2] = {};
  for (int card = 0; card < 2; ++card) {
    CUmodule module = nullptr;
    MUST(d.cuCtxCreate_v2(&contexts[card], 0, card));
    MUST(d.cuModuleLoadData(&module, kKernels));
    MUST(d.cuModuleGetFunction(&busy[card], module, "tensor_fusion_busy"));
  }
  const auto begin = std::chrono::steady_clock::now();
  void* params[] = {&ns};
  for (int i = 0; i < launches; ++i)
    for (int card = 0; card < 2; ++card) {
      MUST(d.cuCtxSetCurrent(contexts[card]));
      MUST(d.cuLaunchKernel(busy[card], 1, 1, 1, 1, 1, 1, 0, nullptr, params, nullptr));
    }
  for (const CUcontext context : contexts) {
    MUST(d.cuCtxSetCurrent(context));
    MUST(d.cuCtxSynchronize());
  }
  const std::chrono::duration<double> took = std::chrono::steady_clock::now() - begin;
  std::printf("{\"launches\": %d, \"seconds\": %.6f}\n", launches, took.count());
  return 0;
}
