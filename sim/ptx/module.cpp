#include <cstring>
#include <limits>

#include "sim/ptx/module_body.h"

namespace tensor_fusion::sim::ptx {
namespace {

const AluTable* pick(Isa isa) {
#if defined(__x86_64__)
  __builtin_cpu_init();
  const bool avx2 = __builtin_cpu_supports("avx2") != 0 && __builtin_cpu_supports("fma") != 0 &&
                    __builtin_cpu_supports("bmi2") != 0 && __builtin_cpu_supports("f16c") != 0 &&
                    __builtin_cpu_supports("lzcnt") != 0;
  const bool avx512 = avx2 && __builtin_cpu_supports("avx512f") != 0 && __builtin_cpu_supports("avx512bw") != 0 &&
                      __builtin_cpu_supports("avx512dq") != 0 && __builtin_cpu_supports("avx512vl") != 0 &&
                      __builtin_cpu_supports("avx512cd") != 0;
  if (avx512 && (isa == Isa::best || isa == Isa::avx512)) return alu_table_avx512();
  if (avx2 && isa != Isa::baseline) return alu_table_avx2();
#else
  static_cast<void>(isa);
#endif
  return alu_table_baseline();
}

}  // namespace

std::string ParseError::render() const {
  return "ptxas application ptx input, line " + std::to_string(line) + "; error   : " + message +
         "\nptxas fatal   : Ptx assembly aborted due to errors\n";
}

std::uint64_t function_address(std::size_t function_index) { return kFunctionWindow + (function_index + 1) * 16; }

Module::Module(std::unique_ptr<ModuleBody> body) : body_(std::move(body)) {}
Module::~Module() = default;

std::span<const Kernel> Module::kernels() const { return body_->kernels; }
std::span<const Global> Module::globals() const { return body_->globals; }
int Module::target() const { return body_->target; }
int Module::isa_version() const { return body_->isa_version; }

const Kernel* Module::find_kernel(std::string_view name) const {
  for (const Kernel& kernel : body_->kernels) {
    if (kernel.name == name) return &kernel;
  }
  return nullptr;
}

const Global* Module::find_global(std::string_view name) const {
  for (const Global& global : body_->globals) {
    if (global.name == name) return &global;
  }
  return nullptr;
}

std::vector<std::byte> Module::initial_bytes(std::size_t global, std::span<const std::uint64_t> addresses) const {
  const Global& of = body_->globals[global];
  std::vector<std::byte> bytes = of.initial;
  bytes.resize(of.size);
  for (const Relocation& relocation : of.relocations) {
    std::uint64_t address = 0;
    if (relocation.target == RelocationTarget::function) {
      address = function_address(relocation.index);
    } else if (relocation.index < addresses.size()) {
      address = addresses[relocation.index];
    }
    address = (address + static_cast<std::uint64_t>(relocation.addend)) >> relocation.shift;
    if (relocation.offset + relocation.width <= bytes.size()) {
      std::memcpy(bytes.data() + relocation.offset, &address, relocation.width);
    }
  }
  return bytes;
}

std::expected<std::shared_ptr<const Module>, ParseError> parse(std::string_view text, const ParseOptions& options) {
  // Callers may hand over a C string with its end; a module never holds a NUL.
  if (const std::size_t end = text.find('\0'); end != std::string_view::npos) text = text.substr(0, end);
  if (text.size() > std::size_t{256} << 20) return std::unexpected(ParseError{1, 1, "text is too large"});
  std::expected<Syntax, ParseError> syntax = parse_syntax(text, options);
  if (!syntax) return std::unexpected(syntax.error());
  auto body = std::make_unique<ModuleBody>();
  body->table = pick(options.isa);
  body->target = syntax->target;
  body->isa_version = syntax->isa_version;
  for (std::uint32_t i = 0; i < syntax->functions.size(); ++i) {
    const Function& function = syntax->functions[i];
    if (!function.is_kernel || !function.has_body) continue;
    std::expected<Program, ParseError> program = lower(*syntax, i, *body->table);
    if (!program) return std::unexpected(program.error());
    reorder(*program);
    find_uniform(*program);
    assign_registers(*program);
    Kernel kernel;
    kernel.name = function.name;
    kernel.parameters = function.prototype.parameters;
    kernel.parameter_bytes = program->parameter_bytes;
    kernel.shared_bytes = program->static_shared_bytes;
    kernel.local_bytes = program->local_bytes;
    kernel.maxntid = function.maxntid;
    kernel.reqntid = function.reqntid;
    kernel.registers = program->live_registers;
    kernel.effect_free = program->effect_free;
    kernel.uses_dynamic_shared = program->uses_dynamic_shared;
    kernel.index = body->kernels.size();
    body->kernels.push_back(std::move(kernel));
    body->programs.push_back(std::move(*program));
  }
  body->globals = std::move(syntax->globals);
  return std::make_shared<const Module>(std::move(body));
}

}  // namespace tensor_fusion::sim::ptx
