// Modules, and the linker in front of them.
#include <chrono>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <sstream>

#include "sim/cuda/device.h"
#include "sim/cuda/driver.h"
#include "sim/cuda/module.h"

namespace tensor_fusion::sim::cuda {
namespace {

CUresult load(const char* symbol, CUmodule* out, const void* image, JitOptions options) {
  Context* context = nullptr;
  TF_TRY(enter(symbol, {}, context));
  if (out == nullptr || image == nullptr || !options.valid()) return CUDA_ERROR_INVALID_VALUE;
  const auto begin = std::chrono::steady_clock::now();
  std::shared_ptr<const ptx::Module> code;
  std::string log;
  const CUresult parsed = parse_image(image, context->device(), code, log);
  options.write_wall_time(std::chrono::duration<float, std::milli>(std::chrono::steady_clock::now() - begin).count());
  options.write_error(log);
  options.write_info({});
  TF_TRY(parsed);
  std::shared_ptr<Module> module;
  TF_TRY(Module::load(*context, std::move(code), module));
  *out = module->handle();
  return CUDA_SUCCESS;
}

CUresult find_module(const char* symbol, CUmodule handle, std::shared_ptr<Module>& module) {
  Context* context = nullptr;
  TF_TRY(enter(symbol, {}, context));
  module = modules().share(handle);
  return module ? CUDA_SUCCESS : CUDA_ERROR_INVALID_HANDLE;
}

}  // namespace

TF_API(cuModuleLoadData, (CUmodule * out, const void* image)) {
  return load("cuModuleLoadData", out, image, {0, nullptr, nullptr});
}
TF_API(cuModuleLoadDataEx, (CUmodule * out, const void* image, unsigned count, CUjit_option* options, void** values)) {
  return load("cuModuleLoadDataEx", out, image, {count, options, values});
}
TF_API(cuModuleLoadFatBinary, (CUmodule * out, const void* image)) {
  return load("cuModuleLoadFatBinary", out, image, {0, nullptr, nullptr});
}
TF_API(cuModuleLoad, (CUmodule * out, const char* path)) {
  TF_TRY(check_ready());
  if (out == nullptr || path == nullptr) return CUDA_ERROR_INVALID_VALUE;
  std::ifstream file(path, std::ios::binary);
  if (!file) return CUDA_ERROR_FILE_NOT_FOUND;
  std::ostringstream text;
  text << file.rdbuf();
  return load("cuModuleLoad", out, text.str().c_str(), {0, nullptr, nullptr});
}

TF_API(cuModuleUnload, (CUmodule handle)) {
  std::shared_ptr<Module> module;
  TF_TRY(find_module("cuModuleUnload", handle, module));
  TF_TRY(module->context().synchronize());
  module->unload();
  return CUDA_SUCCESS;
}

TF_API(cuModuleGetFunction, (CUfunction * out, CUmodule handle, const char* name)) {
  std::shared_ptr<Module> module;
  TF_TRY(find_module("cuModuleGetFunction", handle, module));
  if (out == nullptr || name == nullptr) return CUDA_ERROR_INVALID_VALUE;
  std::shared_ptr<Function> function;
  TF_TRY(module->function(name, function));
  *out = function->handle();
  return CUDA_SUCCESS;
}

TF_API(cuModuleGetFunctionCount, (unsigned* out, CUmodule handle)) {
  std::shared_ptr<Module> module;
  TF_TRY(find_module("cuModuleGetFunctionCount", handle, module));
  if (out == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *out = static_cast<unsigned>(module->code().kernels().size());
  return CUDA_SUCCESS;
}

TF_API(cuModuleEnumerateFunctions, (CUfunction * out, unsigned count, CUmodule handle)) {
  std::shared_ptr<Module> module;
  TF_TRY(find_module("cuModuleEnumerateFunctions", handle, module));
  if (out == nullptr || count == 0) return CUDA_ERROR_INVALID_VALUE;
  for (const auto& kernel : module->code().kernels()) {
    if (count-- == 0) break;
    std::shared_ptr<Function> function;
    TF_TRY(module->function(kernel.name, function));
    *out++ = function->handle();
  }
  return CUDA_SUCCESS;
}

TF_API(cuModuleGetGlobal_v2, (CUdeviceptr * address, std::size_t* bytes, CUmodule handle, const char* name)) {
  std::shared_ptr<Module> module;
  TF_TRY(find_module("cuModuleGetGlobal", handle, module));
  if (name == nullptr) return CUDA_ERROR_INVALID_VALUE;
  return module->global(name, address, bytes);
}

// --- linker: PTX texts into one module. Each input is checked when it is added, as a JIT compiler would.
namespace {

struct Link {
  static constexpr HandleKind kHandleKind = HandleKind::link;
  JitOptions options{0, nullptr, nullptr};
  Device* device = nullptr;
  std::string text;
};

HandleTable<Link>& links() {
  static auto* table = new HandleTable<Link>;
  return *table;
}

CUresult link_create(unsigned count, CUjit_option* options, void** values, CUlinkState* out) {
  Context* context = nullptr;
  TF_TRY(enter("cuLinkCreate", {}, context));
  if (out == nullptr || (count != 0 && (options == nullptr || values == nullptr))) return CUDA_ERROR_INVALID_VALUE;
  auto link = std::make_shared<Link>();
  link->options = {count, options, values};
  link->device = &context->device();
  *out = as_handle<CUlinkState>(links().insert(link));
  return CUDA_SUCCESS;
}

// The second and later inputs follow without their header: version, target and address size are those of the first.
std::string without_header(std::string_view text) {
  std::string rest;
  std::size_t at = 0;
  while (at < text.size()) {
    const auto end = std::min(text.find('\n', at), text.size());
    auto line = text.substr(at, end - at);
    const auto first = line.find_first_not_of(" \t");
    if (first != std::string_view::npos) line.remove_prefix(first);
    const bool header =
        line.starts_with(".version") || line.starts_with(".target") || line.starts_with(".address_size");
    if (!header) rest.append(text.substr(at, end - at));
    rest.push_back('\n');
    at = end + 1;
  }
  return rest;
}

CUresult link_add(CUlinkState handle, CUjitInputType type, const void* data, std::size_t bytes) {
  TF_TRY(enter("cuLinkAddData"));
  const auto link = links().share(handle);
  if (!link) return CUDA_ERROR_INVALID_HANDLE;
  if (data == nullptr || bytes == 0) return CUDA_ERROR_INVALID_VALUE;
  std::string text;
  const int capability =
      static_cast<int>(link->device->profile().capability_major * 10 + link->device->profile().capability_minor);
  if (type == CU_JIT_INPUT_PTX)
    text.assign(static_cast<const char*>(data), bytes);
  else if (type == CU_JIT_INPUT_FATBINARY && bytes >= 4 && is_fat_binary(data))
    TF_TRY(fat_binary_text(data, capability, text));
  else
    return CUDA_ERROR_NO_BINARY_FOR_GPU;
  while (!text.empty() && text.back() == '\0') text.pop_back();
  std::string together = link->text + (link->text.empty() ? text : without_header(text)) + '\n';
  std::shared_ptr<const ptx::Module> code;
  std::string log;
  const CUresult result = parse_text(together, *link->device, code, log);
  if (result == CUDA_SUCCESS)
    link->text = std::move(together);
  else
    link->options.write_error(log);
  return result;
}

CUresult link_add_file(CUlinkState handle, CUjitInputType type, const char* path) {
  TF_TRY(check_ready());
  if (path == nullptr) return CUDA_ERROR_INVALID_VALUE;
  std::ifstream file(path, std::ios::binary);
  if (!file) return CUDA_ERROR_FILE_NOT_FOUND;
  std::ostringstream text;
  text << file.rdbuf();
  return link_add(handle, type, text.str().data(), text.str().size());
}

}  // namespace

TF_API(cuLinkCreate_v2, (unsigned count, CUjit_option* options, void** values, CUlinkState* out)) {
  return link_create(count, options, values, out);
}
TF_API(cuLinkCreate, (unsigned count, CUjit_option* options, void** values, CUlinkState* out)) {
  return link_create(count, options, values, out);
}
TF_API(cuLinkAddData_v2, (CUlinkState link, CUjitInputType type, void* data, std::size_t bytes, const char*, unsigned,
                          CUjit_option*, void**)) {
  return link_add(link, type, data, bytes);
}
TF_API(cuLinkAddData, (CUlinkState link, CUjitInputType type, void* data, std::size_t bytes, const char*, unsigned,
                       CUjit_option*, void**)) {
  return link_add(link, type, data, bytes);
}
TF_API(cuLinkAddFile_v2, (CUlinkState link, CUjitInputType type, const char* path, unsigned, CUjit_option*, void**)) {
  return link_add_file(link, type, path);
}
TF_API(cuLinkAddFile, (CUlinkState link, CUjitInputType type, const char* path, unsigned, CUjit_option*, void**)) {
  return link_add_file(link, type, path);
}
TF_API(cuLinkComplete, (CUlinkState handle, void** image, std::size_t* bytes)) {
  TF_TRY(enter("cuLinkComplete"));
  const auto link = links().share(handle);
  if (!link) return CUDA_ERROR_INVALID_HANDLE;
  if (image == nullptr || link->text.empty()) return CUDA_ERROR_INVALID_VALUE;
  *image = link->text.data();
  if (bytes != nullptr) *bytes = link->text.size() + 1;
  link->options.write_info({});
  link->options.write_error({});
  return CUDA_SUCCESS;
}
TF_API(cuLinkDestroy, (CUlinkState handle)) {
  TF_TRY(enter("cuLinkDestroy"));
  return links().remove(handle) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_HANDLE;
}

}  // namespace tensor_fusion::sim::cuda
