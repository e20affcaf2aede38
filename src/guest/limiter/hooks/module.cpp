// Modules: code and global variables of one context. A driver may put some of a module on the card only when it is
// asked for; what goes over the limit then is no longer to be undone, for the program has the rest of the module.
#include "guest/limiter/hooks/library.h"
#include "guest/limiter/hooks/loads.h"

namespace tensor_fusion::guest::limiter {
namespace {

// Drivers without an answer load at once.
bool loads_lazily() {
  constexpr int kLazy = 2;
  int mode = 0;
  return driver().cuModuleGetLoadingMode != nullptr && driver().cuModuleGetLoadingMode(&mode) == CUDA_SUCCESS &&
         mode == kLazy;
}

template <class Call>
CUresult look_into(Call call) {
  if (current_device() == nullptr || !loads_lazily()) return call();
  return load(call, [] {});
}

}  // namespace

TF_ENTRY(cuModuleLoad, (CUmodule * module, const char* file)) {
  return load([&] { return TF_REAL(cuModuleLoad)(module, file); }, [&] { TF_REAL(cuModuleUnload)(*module); });
}
TF_ENTRY(cuModuleLoadData, (CUmodule * module, const void* image)) {
  return load([&] { return TF_REAL(cuModuleLoadData)(module, image); }, [&] { TF_REAL(cuModuleUnload)(*module); });
}
TF_ENTRY(cuModuleLoadDataEx,
         (CUmodule * module, const void* image, unsigned count, CUjit_option* options, void** values)) {
  return load([&] { return TF_REAL(cuModuleLoadDataEx)(module, image, count, options, values); },
              [&] { TF_REAL(cuModuleUnload)(*module); });
}
TF_ENTRY(cuModuleLoadFatBinary, (CUmodule * module, const void* image)) {
  return load([&] { return TF_REAL(cuModuleLoadFatBinary)(module, image); }, [&] { TF_REAL(cuModuleUnload)(*module); });
}

TF_ENTRY(cuModuleGetFunction, (CUfunction * function, CUmodule module, const char* name)) {
  return look_into([&] { return TF_REAL(cuModuleGetFunction)(function, module, name); });
}
TF_ENTRY(cuModuleGetGlobal, (CUdeviceptr_v1 * pointer, unsigned* bytes, CUmodule module, const char* name)) {
  return look_into([&] { return TF_REAL(cuModuleGetGlobal)(pointer, bytes, module, name); });
}
TF_ENTRY(cuModuleGetGlobal_v2, (CUdeviceptr * pointer, std::size_t* bytes, CUmodule module, const char* name)) {
  return look_into([&] { return TF_REAL(cuModuleGetGlobal_v2)(pointer, bytes, module, name); });
}
TF_ENTRY(cuFuncLoad, (CUfunction function)) {
  if (const CUresult refused = place_kernel(function); refused != CUDA_SUCCESS) return refused;
  return look_into([&] { return TF_REAL(cuFuncLoad)(function); });
}

}  // namespace tensor_fusion::guest::limiter
