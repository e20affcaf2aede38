#pragma once
// Loaded device code: a module of one context, its functions and globals. Globals lie in device memory charged to the
// context. Functions stay usable by queued work after their module was unloaded. Loading is where PTX is parsed; what
// is wrong with it comes back as text for the JIT log. Thread-safe.
#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <vector>

#include "sim/cuda/abi.h"
#include "sim/cuda/context.h"
#include "sim/cuda/handle.h"
#include "sim/ptx/ptx.h"

namespace tensor_fusion::sim::cuda {

class Module;

class Function {
 public:
  static constexpr HandleKind kHandleKind = HandleKind::function;
  Function(std::shared_ptr<Module> owner, const ptx::Kernel& entry);

  const std::shared_ptr<Module> module;
  const ptx::Kernel& kernel;
  const bool busy;         // the built-in kernel that takes exactly the time it is told
  const bool effect_free;  // need not be executed
  std::uint64_t handle_value = 0;

  std::atomic<int> max_dynamic_shared, carveout{-1}, cache_config{0};
  std::atomic<int> non_portable_cluster{0}, cluster_policy{0};

  [[nodiscard]] CUfunction handle() const { return as_handle<CUfunction>(handle_value); }
  [[nodiscard]] int max_threads() const;
  CUresult attribute(CUfunction_attribute name, int& value) const;
  CUresult set_attribute(CUfunction_attribute name, int value);
};

class Module : public std::enable_shared_from_this<Module> {
 public:
  static constexpr HandleKind kHandleKind = HandleKind::module;

  Module(Context& owner, std::shared_ptr<const ptx::Module> code);
  ~Module();
  // Allocates and fills the globals.
  static CUresult load(Context& owner, std::shared_ptr<const ptx::Module> code, std::shared_ptr<Module>& out);
  void unload();  // its handle and those of its functions, and its globals

  [[nodiscard]] Context& context() const { return *context_; }
  [[nodiscard]] bool belongs_to(const Context& context) const { return context_.get() == &context; }
  [[nodiscard]] const ptx::Image& image() const { return image_; }
  [[nodiscard]] const ptx::Module& code() const { return *image_.module; }
  // NOT_FOUND for an unknown name.
  CUresult function(std::string_view name, std::shared_ptr<Function>& out);
  CUresult global(std::string_view name, CUdeviceptr* address, std::size_t* bytes) const;
  std::uint64_t handle_value = 0;
  [[nodiscard]] CUmodule handle() const { return as_handle<CUmodule>(handle_value); }

 private:
  std::shared_ptr<Context> context_;
  ptx::Image image_;
  std::mutex mutex_;
  std::map<std::string, std::shared_ptr<Function>, std::less<>> functions_;
};

[[nodiscard]] HandleTable<Module>& modules();
[[nodiscard]] HandleTable<Function>& functions();

// A CUfunction, or a CUkernel in its place, for the context. INVALID_HANDLE otherwise.
CUresult find_function(CUfunction handle, Context& context, std::shared_ptr<Function>& out);

// Options of the JIT as an entry point got them: reads sizes, writes logs and their lengths back.
class JitOptions {
 public:
  JitOptions(unsigned count, CUjit_option* options, void** values)
      : count_(count), options_(options), values_(values) {}
  [[nodiscard]] bool valid() const { return count_ == 0 || (options_ != nullptr && values_ != nullptr); }
  void write_error(std::string_view text) { write(CU_JIT_ERROR_LOG_BUFFER, CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES, text); }
  void write_info(std::string_view text) { write(CU_JIT_INFO_LOG_BUFFER, CU_JIT_INFO_LOG_BUFFER_SIZE_BYTES, text); }
  void write_wall_time(float milliseconds);

 private:
  void write(CUjit_option buffer, CUjit_option size, std::string_view text);
  unsigned count_;
  CUjit_option* options_;
  void** values_;
};

// Device code from what a program handed over: PTX text, or a fat binary with PTX inside. On failure the log says why.
CUresult parse_image(const void* image, Device& device, std::shared_ptr<const ptx::Module>& out, std::string& log);
CUresult parse_text(std::string_view text, Device& device, std::shared_ptr<const ptx::Module>& out, std::string& log);
// The PTX in a fat binary (its wrapper or its container) fit for the capability; nothing if there is none.
CUresult fat_binary_text(const void* image, int capability, std::string& out);
[[nodiscard]] bool is_fat_binary(const void* image);

}  // namespace tensor_fusion::sim::cuda
