#pragma once
// Device code that belongs to no context: a library is parsed once and loaded into each context that uses one of its
// kernels. A kernel stands for the function of that name in whatever context it is launched in. Thread-safe.
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <vector>

#include "sim/cuda/abi.h"
#include "sim/cuda/handle.h"
#include "sim/cuda/module.h"

namespace tensor_fusion::sim::cuda {

class Library;

class LibraryKernel {
 public:
  static constexpr HandleKind kHandleKind = HandleKind::kernel;
  LibraryKernel(std::shared_ptr<Library> owner, std::string kernel_name)
      : library(std::move(owner)), name(std::move(kernel_name)) {}
  CUresult function(Context& context, std::shared_ptr<Function>& out) const;
  const std::shared_ptr<Library> library;
  const std::string name;
  std::uint64_t handle_value = 0;
};

class Library : public std::enable_shared_from_this<Library> {
 public:
  static constexpr HandleKind kHandleKind = HandleKind::library;
  explicit Library(std::shared_ptr<const ptx::Module> code) : code_(std::move(code)) {}

  CUresult module(Context& context, std::shared_ptr<Module>& out);  // loads it there if need be
  CUresult kernel(std::string_view name, CUkernel& out);
  [[nodiscard]] std::vector<CUkernel> all_kernels();
  [[nodiscard]] const ptx::Module& code() const { return *code_; }
  void unload();
  void forget(const Context& context);  // at its end
  std::uint64_t handle_value = 0;

 private:
  std::shared_ptr<const ptx::Module> code_;
  std::mutex mutex_;
  std::map<std::uint64_t, std::shared_ptr<Module>> modules_;  // by context
  std::map<std::string, std::shared_ptr<LibraryKernel>, std::less<>> kernels_;
};

[[nodiscard]] HandleTable<Library>& libraries();
[[nodiscard]] HandleTable<LibraryKernel>& kernels();
// Every library forgets what it has loaded into the context.
void forget_in_libraries(const Context& context);

}  // namespace tensor_fusion::sim::cuda
