#include "sim/cuda/module.h"

#include <algorithm>
#include <cstring>

#include "sim/cuda/device.h"
#include "sim/cuda/driver.h"
#include "sim/cuda/library.h"
#include "sim/cuda/memory.h"

namespace tensor_fusion::sim::cuda {
namespace {
constexpr std::string_view kBusyKernel = "tensor_fusion_busy";
}

HandleTable<Module>& modules() {
  static auto* table = new HandleTable<Module>;
  return *table;
}

HandleTable<Function>& functions() {
  static auto* table = new HandleTable<Function>;
  return *table;
}

Function::Function(std::shared_ptr<Module> owner, const ptx::Kernel& entry)
    : module(std::move(owner)),
      kernel(entry),
      busy(entry.name == kBusyKernel && entry.parameter_bytes == 8),
      effect_free(busy || entry.effect_free) {
  const auto& profile = module->context().device().profile();
  max_dynamic_shared = static_cast<int>(std::max<std::int64_t>(
      static_cast<std::int64_t>(profile.shared_bytes_per_block) - static_cast<std::int64_t>(entry.shared_bytes), 0));
}

int Function::max_threads() const {
  const auto& profile = module->context().device().profile();
  std::uint64_t most = profile.max_threads_per_block;
  if (kernel.maxntid)
    most = std::min<std::uint64_t>(most,
                                   std::uint64_t{(*kernel.maxntid)[0]} * (*kernel.maxntid)[1] * (*kernel.maxntid)[2]);
  if (kernel.reqntid)
    most = std::min<std::uint64_t>(most,
                                   std::uint64_t{(*kernel.reqntid)[0]} * (*kernel.reqntid)[1] * (*kernel.reqntid)[2]);
  return static_cast<int>(most);
}

CUresult Function::attribute(CUfunction_attribute name, int& value) const {
  const auto& code = module->code();
  switch (name) {
    case CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK:
      value = max_threads();
      break;
    case CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES:
      value = static_cast<int>(kernel.shared_bytes);
      break;
    case CU_FUNC_ATTRIBUTE_CONST_SIZE_BYTES: {
      std::size_t bytes = 0;
      for (const auto& global : code.globals())
        if (global.space == ptx::GlobalSpace::constant) bytes += global.size;
      value = static_cast<int>(bytes);
      break;
    }
    case CU_FUNC_ATTRIBUTE_LOCAL_SIZE_BYTES:
      value = static_cast<int>(kernel.local_bytes);
      break;
    case CU_FUNC_ATTRIBUTE_NUM_REGS:
      value = std::clamp(kernel.registers, 8, 255);
      break;
    case CU_FUNC_ATTRIBUTE_PTX_VERSION:
      value = code.target();
      break;
    case CU_FUNC_ATTRIBUTE_BINARY_VERSION: {
      const auto& profile = module->context().device().profile();
      value = static_cast<int>(profile.capability_major * 10 + profile.capability_minor);
      break;
    }
    case CU_FUNC_ATTRIBUTE_CACHE_MODE_CA:
      value = 0;
      break;
    case CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES:
      value = max_dynamic_shared;
      break;
    case CU_FUNC_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT:
      value = carveout;
      break;
    case CU_FUNC_ATTRIBUTE_CLUSTER_SIZE_MUST_BE_SET:
    case CU_FUNC_ATTRIBUTE_REQUIRED_CLUSTER_WIDTH:
    case CU_FUNC_ATTRIBUTE_REQUIRED_CLUSTER_HEIGHT:
    case CU_FUNC_ATTRIBUTE_REQUIRED_CLUSTER_DEPTH:
      value = 0;
      break;
    case CU_FUNC_ATTRIBUTE_NON_PORTABLE_CLUSTER_SIZE_ALLOWED:
      value = non_portable_cluster;
      break;
    case CU_FUNC_ATTRIBUTE_CLUSTER_SCHEDULING_POLICY_PREFERENCE:
      value = cluster_policy;
      break;
    default:
      return CUDA_ERROR_INVALID_VALUE;
  }
  return CUDA_SUCCESS;
}

CUresult Function::set_attribute(CUfunction_attribute name, int value) {
  const auto& profile = module->context().device().profile();
  switch (name) {
    case CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES:
      if (value < 0 || static_cast<std::uint64_t>(value) + kernel.shared_bytes > profile.shared_bytes_per_block_optin)
        return CUDA_ERROR_INVALID_VALUE;
      max_dynamic_shared = value;
      return CUDA_SUCCESS;
    case CU_FUNC_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT:
      if (value < -1 || value > 100) return CUDA_ERROR_INVALID_VALUE;
      carveout = value;
      return CUDA_SUCCESS;
    case CU_FUNC_ATTRIBUTE_NON_PORTABLE_CLUSTER_SIZE_ALLOWED:
      non_portable_cluster = value != 0;
      return CUDA_SUCCESS;
    case CU_FUNC_ATTRIBUTE_CLUSTER_SCHEDULING_POLICY_PREFERENCE:
      cluster_policy = value;
      return CUDA_SUCCESS;
    default:
      return CUDA_ERROR_INVALID_VALUE;
  }
}

Module::Module(Context& owner, std::shared_ptr<const ptx::Module> code) : context_(owner.shared_from_this()) {
  image_.module = std::move(code);
}

Module::~Module() = default;

CUresult Module::load(Context& owner, std::shared_ptr<const ptx::Module> code, std::shared_ptr<Module>& out) {
  auto module = std::make_shared<Module>(owner, std::move(code));
  const auto globals = module->code().globals();
  auto& addresses = module->image_.global_addresses;
  CUresult result = CUDA_SUCCESS;
  for (const auto& global : globals) {
    if (global.is_extern) {
      result = CUDA_ERROR_INVALID_PTX;
      break;
    }
    CUdeviceptr address = 0;
    result = allocate_device(owner, std::max<std::size_t>(global.size, 1), Allocation::Kind::device, 0, address);
    if (result != CUDA_SUCCESS) break;
    addresses.push_back(address);
  }
  if (result == CUDA_SUCCESS) {
    for (std::size_t i = 0; i < globals.size(); ++i) {
      const auto bytes = module->code().initial_bytes(i, addresses);
      std::memcpy(reinterpret_cast<void*>(addresses[i]), bytes.data(), bytes.size());
    }
    module->handle_value = modules().insert(module);
    out = std::move(module);
    return CUDA_SUCCESS;
  }
  for (const std::uint64_t address : addresses)
    if (const auto gone = Driver::get().addresses().remove(address)) give_back(*gone);
  return result;
}

void Module::unload() {
  modules().remove(handle_value);
  const std::lock_guard lock(mutex_);
  for (const auto& [name, function] : functions_) cuda::functions().remove(function->handle_value);
  functions_.clear();
  for (const std::uint64_t address : image_.global_addresses)
    if (const auto gone = Driver::get().addresses().remove(address)) give_back(*gone);
}

CUresult Module::function(std::string_view name, std::shared_ptr<Function>& out) {
  const std::lock_guard lock(mutex_);
  if (const auto found = functions_.find(name); found != functions_.end()) {
    out = found->second;
    return CUDA_SUCCESS;
  }
  const ptx::Kernel* kernel = code().find_kernel(name);
  if (kernel == nullptr) return CUDA_ERROR_NOT_FOUND;
  auto function = std::make_shared<Function>(shared_from_this(), *kernel);
  function->handle_value = cuda::functions().insert(function);
  functions_.emplace(name, function);
  out = std::move(function);
  return CUDA_SUCCESS;
}

CUresult Module::global(std::string_view name, CUdeviceptr* address, std::size_t* bytes) const {
  const auto globals = code().globals();
  for (std::size_t i = 0; i < globals.size(); ++i) {
    if (globals[i].name != name) continue;
    if (address != nullptr) *address = image_.global_addresses[i];
    if (bytes != nullptr) *bytes = globals[i].size;
    return CUDA_SUCCESS;
  }
  return CUDA_ERROR_NOT_FOUND;
}

CUresult find_function(CUfunction handle, Context& context, std::shared_ptr<Function>& out) {
  if (handle == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  if (functions().find(handle) != nullptr) {
    out = functions().share(handle);
    return out ? CUDA_SUCCESS : CUDA_ERROR_INVALID_HANDLE;
  }
  const auto kernel = kernels().share(handle);
  return kernel ? kernel->function(context, out) : CUDA_ERROR_INVALID_HANDLE;
}

}  // namespace tensor_fusion::sim::cuda
