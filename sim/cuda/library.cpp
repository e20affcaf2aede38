#include "sim/cuda/library.h"

namespace tensor_fusion::sim::cuda {

HandleTable<Library>& libraries() {
  static auto* table = new HandleTable<Library>;
  return *table;
}

HandleTable<LibraryKernel>& kernels() {
  static auto* table = new HandleTable<LibraryKernel>;
  return *table;
}

CUresult LibraryKernel::function(Context& context, std::shared_ptr<Function>& out) const {
  std::shared_ptr<Module> module;
  TF_TRY(library->module(context, module));
  return module->function(name, out);
}

CUresult Library::module(Context& context, std::shared_ptr<Module>& out) {
  const std::lock_guard lock(mutex_);
  auto& mine = modules_[context.id()];
  if (!mine) TF_TRY(Module::load(context, code_, mine));
  out = mine;
  return CUDA_SUCCESS;
}

CUresult Library::kernel(std::string_view name, CUkernel& out) {
  if (code_->find_kernel(name) == nullptr) return CUDA_ERROR_NOT_FOUND;
  const std::lock_guard lock(mutex_);
  auto found = kernels_.find(name);
  if (found == kernels_.end()) {
    auto kernel = std::make_shared<LibraryKernel>(shared_from_this(), std::string(name));
    kernel->handle_value = cuda::kernels().insert(kernel);
    found = kernels_.emplace(name, std::move(kernel)).first;
  }
  out = as_handle<CUkernel>(found->second->handle_value);
  return CUDA_SUCCESS;
}

std::vector<CUkernel> Library::all_kernels() {
  std::vector<CUkernel> all;
  for (const auto& entry : code_->kernels()) {
    CUkernel kernel = nullptr;
    if (this->kernel(entry.name, kernel) == CUDA_SUCCESS) all.push_back(kernel);
  }
  return all;
}

void Library::unload() {
  libraries().remove(handle_value);
  const std::lock_guard lock(mutex_);
  for (const auto& [name, kernel] : kernels_) cuda::kernels().remove(kernel->handle_value);
  kernels_.clear();
  for (const auto& [id, module] : modules_)
    if (module) module->unload();
  modules_.clear();
}

void Library::forget(const Context& context) {
  const std::lock_guard lock(mutex_);
  modules_.erase(context.id());
}

void forget_in_libraries(const Context& context) {
  for (const auto& library : libraries().all()) library->forget(context);
}

}  // namespace tensor_fusion::sim::cuda
