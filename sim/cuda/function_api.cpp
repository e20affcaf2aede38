// Functions, libraries' kernels, and how many blocks fit.
#include <algorithm>
#include <fstream>
#include <sstream>

#include "sim/cuda/device.h"
#include "sim/cuda/driver.h"
#include "sim/cuda/library.h"
#include "sim/cuda/module.h"

namespace tensor_fusion::sim::cuda {
namespace {

CUresult find(const char* symbol, CUfunction handle, std::shared_ptr<Function>& function) {
  Context* context = nullptr;
  TF_TRY(enter(symbol, {}, context));
  return find_function(handle, *context, function);
}

CUresult param_info(const ptx::Kernel& kernel, std::size_t index, std::size_t* offset, std::size_t* size) {
  if (offset == nullptr) return CUDA_ERROR_INVALID_VALUE;
  if (index >= kernel.parameters.size()) return CUDA_ERROR_INVALID_VALUE;
  *offset = kernel.parameters[index].offset;
  if (size != nullptr) *size = kernel.parameters[index].size;
  return CUDA_SUCCESS;
}

// Blocks of one multiprocessor by threads, registers, shared memory and slots.
int blocks_per_multiprocessor(const Function& function, std::uint64_t threads, std::uint64_t dynamic_shared) {
  const auto& p = function.module->context().device().profile();
  if (threads == 0 || threads > static_cast<std::uint64_t>(function.max_threads())) return 0;
  const std::uint64_t warps = (threads + p.warp_size - 1) / p.warp_size;
  std::uint64_t most = std::min<std::uint64_t>(p.max_blocks_per_sm, p.max_threads_per_sm / (warps * p.warp_size));
  const auto registers = static_cast<std::uint64_t>(std::clamp(function.kernel.registers, 8, 255) + 7) / 8 * 8;
  most = std::min(most, p.registers_per_sm / (registers * warps * p.warp_size));
  const std::uint64_t shared = function.kernel.shared_bytes + dynamic_shared;
  if (shared > p.shared_bytes_per_block_optin) return 0;
  if (shared != 0)
    most = std::min<std::uint64_t>(most, p.shared_bytes_per_sm / (shared + p.shared_bytes_reserved_per_block));
  return static_cast<int>(most);
}

CUresult active_blocks(int* out, CUfunction handle, int threads, std::size_t shared) {
  std::shared_ptr<Function> function;
  TF_TRY(find("cuOccupancyMaxActiveBlocksPerMultiprocessor", handle, function));
  if (out == nullptr || threads <= 0) return CUDA_ERROR_INVALID_VALUE;
  *out = blocks_per_multiprocessor(*function, static_cast<std::uint64_t>(threads), shared);
  return CUDA_SUCCESS;
}

CUresult potential_block(int* grid, int* block, CUfunction handle, CUoccupancyB2DSize shared_of, std::size_t shared,
                         int limit) {
  std::shared_ptr<Function> function;
  TF_TRY(find("cuOccupancyMaxPotentialBlockSize", handle, function));
  if (grid == nullptr || block == nullptr) return CUDA_ERROR_INVALID_VALUE;
  int most = function->max_threads();
  if (limit > 0) most = std::min(most, limit);
  const auto& device = function->module->context().device();
  const int warp = static_cast<int>(device.profile().warp_size);
  int best_threads = 0, best_block = 0, best_blocks = 0;
  for (int threads = (most + warp - 1) / warp * warp; threads > 0; threads -= warp) {
    const int size = std::min(threads, most);
    const std::size_t dynamic = shared_of != nullptr ? shared_of(size) : shared;
    const int blocks = blocks_per_multiprocessor(*function, static_cast<std::uint64_t>(size), dynamic);
    if (blocks * size <= best_threads) continue;
    best_threads = blocks * size;
    best_block = size;
    best_blocks = blocks;
  }
  *block = best_block;
  *grid = best_blocks * static_cast<int>(device.engine.sm_count);
  return CUDA_SUCCESS;
}

}  // namespace

TF_API(cuFuncGetAttribute, (int* out, CUfunction_attribute name, CUfunction handle)) {
  std::shared_ptr<Function> function;
  TF_TRY(find("cuFuncGetAttribute", handle, function));
  return out != nullptr ? function->attribute(name, *out) : CUDA_ERROR_INVALID_VALUE;
}
TF_API(cuFuncSetAttribute, (CUfunction handle, CUfunction_attribute name, int value)) {
  std::shared_ptr<Function> function;
  TF_TRY(find("cuFuncSetAttribute", handle, function));
  return function->set_attribute(name, value);
}
TF_API(cuFuncSetCacheConfig, (CUfunction handle, int value)) {
  std::shared_ptr<Function> function;
  TF_TRY(find("cuFuncSetCacheConfig", handle, function));
  if (value < 0 || value > 3) return CUDA_ERROR_INVALID_VALUE;
  function->cache_config = value;
  return CUDA_SUCCESS;
}
TF_API(cuFuncSetSharedMemConfig, (CUfunction handle, int value)) {
  std::shared_ptr<Function> function;
  TF_TRY(find("cuFuncSetSharedMemConfig", handle, function));
  return value >= 0 && value <= 2 ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}
TF_API(cuFuncGetModule, (CUmodule * out, CUfunction handle)) {
  std::shared_ptr<Function> function;
  TF_TRY(find("cuFuncGetModule", handle, function));
  if (out == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *out = function->module->handle();
  return CUDA_SUCCESS;
}
TF_API(cuFuncGetName, (const char** out, CUfunction handle)) {
  std::shared_ptr<Function> function;
  TF_TRY(find("cuFuncGetName", handle, function));
  if (out == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *out = function->kernel.name.c_str();
  return CUDA_SUCCESS;
}
TF_API(cuFuncGetParamInfo, (CUfunction handle, std::size_t index, std::size_t* offset, std::size_t* size)) {
  std::shared_ptr<Function> function;
  TF_TRY(find("cuFuncGetParamInfo", handle, function));
  return param_info(function->kernel, index, offset, size);
}
TF_API(cuFuncIsLoaded, (int* out, CUfunction handle)) {
  std::shared_ptr<Function> function;
  TF_TRY(find("cuFuncIsLoaded", handle, function));
  if (out == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *out = 1;
  return CUDA_SUCCESS;
}
TF_API(cuFuncLoad, (CUfunction handle)) {
  std::shared_ptr<Function> function;
  return find("cuFuncLoad", handle, function);
}

TF_API(cuOccupancyMaxActiveBlocksPerMultiprocessor, (int* out, CUfunction function, int threads, std::size_t shared)) {
  return active_blocks(out, function, threads, shared);
}
TF_API(cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags,
       (int* out, CUfunction function, int threads, std::size_t shared, unsigned flags)) {
  return flags > 1 ? CUDA_ERROR_INVALID_VALUE : active_blocks(out, function, threads, shared);
}
TF_API(cuOccupancyMaxPotentialBlockSize,
       (int* grid, int* block, CUfunction function, CUoccupancyB2DSize shared_of, std::size_t shared, int limit)) {
  return potential_block(grid, block, function, shared_of, shared, limit);
}
TF_API(cuOccupancyMaxPotentialBlockSizeWithFlags,
       (int* grid, int* block, CUfunction function, CUoccupancyB2DSize shared_of, std::size_t shared, int limit,
        unsigned flags)) {
  return flags > 1 ? CUDA_ERROR_INVALID_VALUE : potential_block(grid, block, function, shared_of, shared, limit);
}
TF_API(cuOccupancyAvailableDynamicSMemPerBlock, (std::size_t* out, CUfunction handle, int blocks, int threads)) {
  std::shared_ptr<Function> function;
  TF_TRY(find("cuOccupancyAvailableDynamicSMemPerBlock", handle, function));
  if (out == nullptr || blocks <= 0 || threads <= 0) return CUDA_ERROR_INVALID_VALUE;
  const auto& p = function->module->context().device().profile();
  if (blocks_per_multiprocessor(*function, static_cast<std::uint64_t>(threads), 0) < blocks)
    return CUDA_ERROR_INVALID_VALUE;
  const std::int64_t each =
      static_cast<std::int64_t>(p.shared_bytes_per_sm) / blocks - p.shared_bytes_reserved_per_block;
  const std::int64_t room = std::min<std::int64_t>(each, p.shared_bytes_per_block_optin) -
                            static_cast<std::int64_t>(function->kernel.shared_bytes);
  *out = static_cast<std::size_t>(std::max<std::int64_t>(room, 0));
  return CUDA_SUCCESS;
}
TF_API(cuOccupancyMaxPotentialClusterSize, (int* out, CUfunction handle, const CUlaunchConfig* config)) {
  std::shared_ptr<Function> function;
  TF_TRY(find("cuOccupancyMaxPotentialClusterSize", handle, function));
  if (out == nullptr || config == nullptr) return CUDA_ERROR_INVALID_VALUE;
  if (function->module->context().device().profile().capability_major < 9) return CUDA_ERROR_NOT_SUPPORTED;
  *out = function->non_portable_cluster != 0 ? 16 : 8;
  return CUDA_SUCCESS;
}
TF_API(cuOccupancyMaxActiveClusters, (int* out, CUfunction handle, const CUlaunchConfig* config)) {
  std::shared_ptr<Function> function;
  TF_TRY(find("cuOccupancyMaxActiveClusters", handle, function));
  if (out == nullptr || config == nullptr) return CUDA_ERROR_INVALID_VALUE;
  const auto& device = function->module->context().device();
  if (device.profile().capability_major < 9) return CUDA_ERROR_NOT_SUPPORTED;
  std::uint64_t cluster = 1;
  for (unsigned i = 0; i < config->numAttrs; ++i)
    if (const auto& a = config->attrs[i]; a.id == CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION)
      cluster =
          std::max<std::uint64_t>(std::uint64_t{a.value.clusterDim.x} * a.value.clusterDim.y * a.value.clusterDim.z, 1);
  const std::uint64_t threads = std::uint64_t{config->blockDimX} * config->blockDimY * config->blockDimZ;
  const auto blocks = static_cast<std::uint64_t>(blocks_per_multiprocessor(*function, threads, config->sharedMemBytes));
  *out = static_cast<int>(blocks * device.engine.sm_count / cluster);
  return CUDA_SUCCESS;
}

// --- libraries and their kernels
namespace {

CUresult load_library(CUlibrary* out, const void* image, JitOptions options) {
  TF_TRY(enter("cuLibraryLoadData"));
  if (out == nullptr || image == nullptr || !options.valid()) return CUDA_ERROR_INVALID_VALUE;
  Context* context = current_context();
  Device& device = context != nullptr ? context->device() : *Driver::get().devices().front();
  std::shared_ptr<const ptx::Module> code;
  std::string log;
  const CUresult result = parse_image(image, device, code, log);
  options.write_error(log);
  options.write_info({});
  TF_TRY(result);
  auto library = std::make_shared<Library>(std::move(code));
  library->handle_value = libraries().insert(library);
  *out = as_handle<CUlibrary>(library->handle_value);
  return CUDA_SUCCESS;
}

CUresult find_library(const char* symbol, CUlibrary handle, std::shared_ptr<Library>& library) {
  TF_TRY(enter(symbol));
  library = libraries().share(handle);
  return library ? CUDA_SUCCESS : CUDA_ERROR_INVALID_HANDLE;
}

CUresult find_kernel(const char* symbol, CUkernel handle, std::shared_ptr<LibraryKernel>& kernel) {
  TF_TRY(enter(symbol));
  kernel = kernels().share(handle);
  return kernel ? CUDA_SUCCESS : CUDA_ERROR_INVALID_HANDLE;
}

// The kernel's function on the device, in its primary context.
CUresult kernel_on(CUkernel handle, CUdevice ordinal, std::shared_ptr<Function>& function) {
  std::shared_ptr<LibraryKernel> kernel;
  TF_TRY(find_kernel("cuKernelGetAttribute", handle, kernel));
  Device* device = nullptr;
  TF_TRY(find_device(ordinal, device));
  Context* context = current_context();
  if (context != nullptr && &context->device() == device) return kernel->function(*context, function);
  const auto primary = device->primary();
  return primary ? kernel->function(*primary, function) : CUDA_ERROR_INVALID_CONTEXT;
}

}  // namespace

TF_API(cuLibraryLoadData, (CUlibrary * out, const void* image, CUjit_option* options, void** values, unsigned count,
                           int*, void**, unsigned)) {
  return load_library(out, image, {count, options, values});
}
TF_API(cuLibraryLoadFromFile, (CUlibrary * out, const char* path, CUjit_option* options, void** values, unsigned count,
                               int*, void**, unsigned)) {
  TF_TRY(check_ready());
  if (path == nullptr) return CUDA_ERROR_INVALID_VALUE;
  std::ifstream file(path, std::ios::binary);
  if (!file) return CUDA_ERROR_FILE_NOT_FOUND;
  std::ostringstream text;
  text << file.rdbuf();
  return load_library(out, text.str().c_str(), {count, options, values});
}
TF_API(cuLibraryUnload, (CUlibrary handle)) {
  std::shared_ptr<Library> library;
  TF_TRY(find_library("cuLibraryUnload", handle, library));
  library->unload();
  return CUDA_SUCCESS;
}
TF_API(cuLibraryGetKernel, (CUkernel * out, CUlibrary handle, const char* name)) {
  std::shared_ptr<Library> library;
  TF_TRY(find_library("cuLibraryGetKernel", handle, library));
  if (out == nullptr || name == nullptr) return CUDA_ERROR_INVALID_VALUE;
  return library->kernel(name, *out);
}
TF_API(cuLibraryGetKernelCount, (unsigned* out, CUlibrary handle)) {
  std::shared_ptr<Library> library;
  TF_TRY(find_library("cuLibraryGetKernelCount", handle, library));
  if (out == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *out = static_cast<unsigned>(library->code().kernels().size());
  return CUDA_SUCCESS;
}
TF_API(cuLibraryEnumerateKernels, (CUkernel * out, unsigned count, CUlibrary handle)) {
  std::shared_ptr<Library> library;
  TF_TRY(find_library("cuLibraryEnumerateKernels", handle, library));
  if (out == nullptr || count == 0) return CUDA_ERROR_INVALID_VALUE;
  const auto all = library->all_kernels();
  std::copy_n(all.begin(), std::min<std::size_t>(count, all.size()), out);
  return CUDA_SUCCESS;
}
TF_API(cuLibraryGetModule, (CUmodule * out, CUlibrary handle)) {
  std::shared_ptr<Library> library;
  Context* context = nullptr;
  TF_TRY(enter("cuLibraryGetModule", {}, context));
  if (library = libraries().share(handle); !library) return CUDA_ERROR_INVALID_HANDLE;
  if (out == nullptr) return CUDA_ERROR_INVALID_VALUE;
  std::shared_ptr<Module> module;
  TF_TRY(library->module(*context, module));
  *out = module->handle();
  return CUDA_SUCCESS;
}
TF_API(cuLibraryGetGlobal, (CUdeviceptr * address, std::size_t* bytes, CUlibrary handle, const char* name)) {
  std::shared_ptr<Library> library;
  Context* context = nullptr;
  TF_TRY(enter("cuLibraryGetGlobal", {}, context));
  if (library = libraries().share(handle); !library) return CUDA_ERROR_INVALID_HANDLE;
  if (name == nullptr) return CUDA_ERROR_INVALID_VALUE;
  std::shared_ptr<Module> module;
  TF_TRY(library->module(*context, module));
  return module->global(name, address, bytes);
}
TF_API(cuLibraryGetManaged, (CUdeviceptr*, std::size_t*, CUlibrary handle, const char*)) {
  std::shared_ptr<Library> library;
  TF_TRY(find_library("cuLibraryGetManaged", handle, library));
  return CUDA_ERROR_NOT_FOUND;  // PTX of ours declares none
}
TF_API(cuLibraryGetUnifiedFunction, (void**, CUlibrary handle, const char*)) {
  std::shared_ptr<Library> library;
  TF_TRY(find_library("cuLibraryGetUnifiedFunction", handle, library));
  return CUDA_ERROR_NOT_FOUND;
}
TF_API(cuKernelGetFunction, (CUfunction * out, CUkernel handle)) {
  std::shared_ptr<LibraryKernel> kernel;
  Context* context = nullptr;
  TF_TRY(enter("cuKernelGetFunction", {}, context));
  if (kernel = kernels().share(handle); !kernel) return CUDA_ERROR_INVALID_HANDLE;
  if (out == nullptr) return CUDA_ERROR_INVALID_VALUE;
  std::shared_ptr<Function> function;
  TF_TRY(kernel->function(*context, function));
  *out = function->handle();
  return CUDA_SUCCESS;
}
TF_API(cuKernelGetLibrary, (CUlibrary * out, CUkernel handle)) {
  std::shared_ptr<LibraryKernel> kernel;
  TF_TRY(find_kernel("cuKernelGetLibrary", handle, kernel));
  if (out == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *out = as_handle<CUlibrary>(kernel->library->handle_value);
  return CUDA_SUCCESS;
}
TF_API(cuKernelGetName, (const char** out, CUkernel handle)) {
  std::shared_ptr<LibraryKernel> kernel;
  TF_TRY(find_kernel("cuKernelGetName", handle, kernel));
  if (out == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *out = kernel->name.c_str();
  return CUDA_SUCCESS;
}
TF_API(cuKernelGetParamInfo, (CUkernel handle, std::size_t index, std::size_t* offset, std::size_t* size)) {
  std::shared_ptr<LibraryKernel> kernel;
  TF_TRY(find_kernel("cuKernelGetParamInfo", handle, kernel));
  return param_info(*kernel->library->code().find_kernel(kernel->name), index, offset, size);
}
TF_API(cuKernelGetAttribute, (int* out, CUfunction_attribute name, CUkernel handle, CUdevice device)) {
  std::shared_ptr<Function> function;
  TF_TRY(kernel_on(handle, device, function));
  return out != nullptr ? function->attribute(name, *out) : CUDA_ERROR_INVALID_VALUE;
}
TF_API(cuKernelSetAttribute, (CUfunction_attribute name, int value, CUkernel handle, CUdevice device)) {
  std::shared_ptr<Function> function;
  TF_TRY(kernel_on(handle, device, function));
  return function->set_attribute(name, value);
}
TF_API(cuKernelSetCacheConfig, (CUkernel handle, int value, CUdevice device)) {
  std::shared_ptr<Function> function;
  TF_TRY(kernel_on(handle, device, function));
  if (value < 0 || value > 3) return CUDA_ERROR_INVALID_VALUE;
  function->cache_config = value;
  return CUDA_SUCCESS;
}

}  // namespace tensor_fusion::sim::cuda
