// Kernel launches: checking what a real driver checks at the call, packing parameters, running.
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "sim/cuda/capture.h"
#include "sim/cuda/command.h"
#include "sim/cuda/device.h"
#include "sim/cuda/driver.h"
#include "sim/cuda/graph_condition.h"
#include "sim/cuda/patience.h"
#include "sim/cuda/pool.h"
#include "sim/cuda/vmm.h"
#include "sim/device/health.h"

namespace tensor_fusion::sim::cuda {
namespace {

// What kernels of a context may touch.
class ContextMemory final : public ptx::Memory {
 public:
  explicit ContextMemory(const Context& context) : context_(context) {}
  std::optional<ptx::Range> range_of(std::uint64_t address) override {
    const auto allocation = Driver::get().addresses().find(address);
    if (!allocation || allocation->kind == Allocation::Kind::pool) {
      const auto reach = Pool::reach(address, context_.device());
      return reach ? std::optional(ptx::Range{reach->begin, reach->end, true}) : std::nullopt;
    }
    if (allocation->kind == Allocation::Kind::mapped) {
      const auto allowed = static_cast<Mapping*>(allocation->keeper.get())->allowed(context_.device().ordinal);
      if (allowed == CU_MEM_ACCESS_FLAGS_PROT_NONE) return std::nullopt;
      return ptx::Range{allocation->base, allocation->base + allocation->extent,
                        allowed == CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
    }
    if (!allocation->readable) return std::nullopt;
    if (allocation->on_device() && allocation->kind != Allocation::Kind::managed &&
        allocation->kind != Allocation::Kind::ipc && !context_.may_access(*allocation->device)) {
      return std::nullopt;
    }
    return ptx::Range{allocation->base, allocation->base + allocation->extent, allocation->writable};
  }

 private:
  const Context& context_;
};

struct Failure {
  CUresult result;
  std::uint32_t xid;
};

Failure failure_of(ptx::Status status) {
  switch (status) {
    case ptx::Status::illegal_address:
      return {CUDA_ERROR_ILLEGAL_ADDRESS, 31};
    case ptx::Status::misaligned_address:
      return {CUDA_ERROR_MISALIGNED_ADDRESS, 13};
    case ptx::Status::assert_failed:
      return {CUDA_ERROR_ASSERT, 13};
    case ptx::Status::illegal_instruction:
      return {CUDA_ERROR_ILLEGAL_INSTRUCTION, 13};
    case ptx::Status::timeout:
      return {CUDA_ERROR_LAUNCH_TIMEOUT, 8};
    default:
      return {CUDA_ERROR_LAUNCH_FAILED, 13};
  }
}

void print_from_kernel(std::string_view text) {
  std::fwrite(text.data(), 1, text.size(), stdout);
  std::fflush(stdout);
}

int interpreter_threads() {
  static const int threads = [] {
    const char* wish = std::getenv("TENSOR_FUSION_SIM_THREADS");
    return wish != nullptr ? std::clamp(std::atoi(wish), 1, 64) : 1;
  }();
  return threads;
}

std::uint64_t run_kernel(Context& context, const KernelCommand& command, const Seat& seat, Patience& patience) {
  Device& device = context.device();
  ContextMemory memory(context);
  ptx::Launch launch;
  launch.image = &command.function->module->image();
  launch.kernel = &command.function->kernel;
  launch.grid = {command.grid[0], command.grid[1], command.grid[2]};
  launch.block = {command.block[0], command.block[1], command.block[2]};
  launch.dynamic_shared_bytes = command.shared_bytes;
  launch.params = command.params;
  launch.cooperative = command.cooperative;
  ptx::RunOptions options;
  options.cancel = &context.cancel();
  options.print = print_from_kernel;
  if (command.conditions)
    options.set_condition = [&command](std::uint64_t handle, std::uint32_t value) {
      command.conditions->set(handle, value);
    };
  options.progress = [&patience] { patience.look(); };
  options.threads = interpreter_threads();
  options.multiprocessors = seat.multiprocessors;
  const ptx::Outcome outcome = ptx::run(launch, memory, options);
  if (outcome.status != ptx::Status::ok && outcome.status != ptx::Status::cancelled) {
    const Failure failure = failure_of(outcome.status);
    device::report_xid(Driver::get().machine(), device.engine.device, failure.xid,
                       static_cast<std::uint32_t>(::getpid()), device.engine.gpu_instance,
                       device.engine.compute_instance);
    context.poison(failure.result);
    log_line("kernel " + command.function->kernel.name + ": " + std::string(ptx::status_name(outcome.status)) +
             " at line " + std::to_string(outcome.line) + " of its PTX");
  }
  return Driver::get().machine().kernel_duration_ns(device.engine.id, outcome.thread_instructions,
                                                    static_cast<double>(seat.width));
}

// The parameters as one block of bytes.
CUresult pack(const ptx::Kernel& kernel, void** params, void** extra, std::vector<std::byte>& out) {
  if (params != nullptr && extra != nullptr) return CUDA_ERROR_INVALID_VALUE;
  if (params != nullptr) {
    out.resize(kernel.parameter_bytes);
    for (std::size_t i = 0; i < kernel.parameters.size(); ++i) {
      if (params[i] == nullptr) return CUDA_ERROR_INVALID_VALUE;
      std::memcpy(out.data() + kernel.parameters[i].offset, params[i], kernel.parameters[i].size);
    }
    return CUDA_SUCCESS;
  }
  if (extra == nullptr) return kernel.parameters.empty() ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
  const void* buffer = nullptr;
  const std::size_t* size = nullptr;
  for (void** at = extra; reinterpret_cast<std::uintptr_t>(*at) != kLaunchParamEnd; at += 2) {
    const auto key = reinterpret_cast<std::uintptr_t>(*at);
    if (key == kLaunchParamBufferPointer)
      buffer = at[1];
    else if (key == kLaunchParamBufferSize)
      size = static_cast<const std::size_t*>(at[1]);
    else
      return CUDA_ERROR_INVALID_VALUE;
  }
  if (size == nullptr || (buffer == nullptr && *size != 0)) return CUDA_ERROR_INVALID_VALUE;
  if (*size < kernel.parameter_bytes) return CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES;
  out.resize(kernel.parameter_bytes);
  if (kernel.parameter_bytes != 0) std::memcpy(out.data(), buffer, kernel.parameter_bytes);
  return CUDA_SUCCESS;
}

device::Work kernel_work(const Stream& stream, const std::array<unsigned, 3>& grid) {
  device::Work work;
  work.kind = device::WorkKind::compute;
  work.width = stream.width_of(std::uint64_t{grid[0]} * grid[1] * grid[2]);
  return work;
}

std::uint64_t effect_free_duration(const Device& device, const Function& function, const std::array<unsigned, 3>& grid,
                                   const std::array<unsigned, 3>& block, const std::byte* params, float width) {
  if (function.busy) {
    std::uint64_t duration = 0;
    std::memcpy(&duration, params, sizeof duration);
    return duration;
  }
  const std::uint64_t threads = std::uint64_t{grid[0]} * grid[1] * grid[2] * block[0] * block[1] * block[2];
  return Driver::get().machine().kernel_duration_ns(device.engine.id, threads, static_cast<double>(width));
}

}  // namespace

namespace {
// Whether all blocks are on the multiprocessors at once.
CUresult check_resident(const Device& device, const std::array<unsigned, 3>& grid, const std::array<unsigned, 3>& block,
                        unsigned multiprocessors) {
  const auto& profile = device.profile();
  const std::uint64_t threads = std::uint64_t{block[0]} * block[1] * block[2];
  const std::uint64_t resident =
      multiprocessors * std::min<std::uint64_t>(profile.max_blocks_per_sm, profile.max_threads_per_sm / threads);
  return std::uint64_t{grid[0]} * grid[1] * grid[2] > resident ? CUDA_ERROR_COOPERATIVE_LAUNCH_TOO_LARGE : CUDA_SUCCESS;
}
}  // namespace

CUresult check_launch(const Function& function, const std::array<unsigned, 3>& grid,
                      const std::array<unsigned, 3>& block, unsigned shared_bytes, bool cooperative) {
  const Device& device = function.module->context().device();
  const auto& profile = device.profile();
  const std::uint64_t threads = std::uint64_t{block[0]} * block[1] * block[2];
  if (threads == 0 || block[0] > 1024 || block[1] > 1024 || block[2] > 64 || threads > profile.max_threads_per_block)
    return CUDA_ERROR_INVALID_VALUE;
  if (grid[0] == 0 || grid[1] == 0 || grid[2] == 0 || grid[0] > 0x7fffffffU || grid[1] > 65535 || grid[2] > 65535)
    return CUDA_ERROR_INVALID_VALUE;
  if (threads > static_cast<std::uint64_t>(function.max_threads())) return CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES;
  if (function.kernel.reqntid)
    for (std::size_t i = 0; i < 3; ++i)
      if (block[i] != (*function.kernel.reqntid)[i]) return CUDA_ERROR_INVALID_VALUE;
  if (shared_bytes != 0 && shared_bytes > static_cast<unsigned>(std::max(function.max_dynamic_shared.load(), 0)))
    return CUDA_ERROR_INVALID_VALUE;
  return cooperative ? check_resident(device, grid, block, device.engine.sm_count) : CUDA_SUCCESS;
}

CUresult make_kernel_command(const std::shared_ptr<Function>& function, const std::array<unsigned, 3>& grid,
                             const std::array<unsigned, 3>& block, unsigned shared_bytes, void** params, void** extra,
                             bool cooperative, std::shared_ptr<const KernelCommand>& out) {
  TF_TRY(check_launch(*function, grid, block, shared_bytes, cooperative));
  auto command = std::make_shared<KernelCommand>();
  TF_TRY(pack(function->kernel, params, extra, command->params));
  command->function = function;
  command->grid = grid;
  command->block = block;
  command->shared_bytes = shared_bytes;
  command->cooperative = cooperative;
  out = std::move(command);
  return CUDA_SUCCESS;
}

CUresult enqueue_kernel(Stream& stream, std::shared_ptr<const KernelCommand> command) {
  Context& context = stream.context();
  device::Work work = kernel_work(stream, command->grid);
  if (command->function->effect_free) {
    work.duration_ns = effect_free_duration(context.device(), *command->function, command->grid, command->block,
                                            command->params.data(), work.width);
    stream.submit_effect_free(work);
    return CUDA_SUCCESS;
  }
  const Seat seat{work.width, stream.multiprocessors()};
  auto place = std::make_shared<Place>(0);
  enqueue_effect(
      stream, work, false,
      [command = std::move(command), owner = context.shared_from_this(), seat, place](bool skip) -> std::uint64_t {
        if (skip) return 0;
        Patience patience(*owner, place);
        return run_kernel(*owner, *command, seat, patience);
      });
  *place = stream.last();
  return CUDA_SUCCESS;
}

std::uint64_t run_kernel_here(Context& context, const KernelCommand& command, const Seat& most, Patience& patience) {
  const std::uint64_t blocks = std::uint64_t{command.grid[0]} * command.grid[1] * command.grid[2];
  const float width = std::min(context.device().width_of(blocks), most.width);
  if (command.function->effect_free)
    return effect_free_duration(context.device(), *command.function, command.grid, command.block, command.params.data(),
                                width);
  return run_kernel(context, command, {width, most.multiprocessors}, patience);
}

namespace {

CUresult launch(const char* symbol, Flavour flavour, CUfunction handle, const std::array<unsigned, 3>& grid,
                const std::array<unsigned, 3>& block, unsigned shared_bytes, CUstream stream_handle, void** params,
                void** extra, bool cooperative, std::vector<CUlaunchAttribute> attributes = {}) {
  TF_TRY(enter(symbol, "launch"));
  Stream* stream = nullptr;
  TF_TRY(find_work_stream(stream_handle, flavour, stream));
  Function* function = functions().find(handle);
  // The short way, for what has no effect but its time: no command, no copy of parameters.
  if (function != nullptr && function->effect_free && !stream->capturing.load(std::memory_order_relaxed)) [[likely]] {
    if (&function->module->context() != &stream->context()) return CUDA_ERROR_INVALID_HANDLE;
    TF_TRY(check_launch(*function, grid, block, shared_bytes, cooperative));
    std::vector<std::byte> packed;
    const std::byte* bytes = nullptr;
    if (function->busy) {
      if (params != nullptr && extra == nullptr) {
        if (params[0] == nullptr) return CUDA_ERROR_INVALID_VALUE;
        bytes = static_cast<const std::byte*>(params[0]);
      } else {
        TF_TRY(pack(function->kernel, params, extra, packed));
        bytes = packed.data();
      }
    } else if ((params != nullptr && extra != nullptr) ||
               (params == nullptr && extra == nullptr && !function->kernel.parameters.empty())) {
      return CUDA_ERROR_INVALID_VALUE;
    }
    device::Work work = kernel_work(*stream, grid);
    work.duration_ns = effect_free_duration(stream->context().device(), *function, grid, block, bytes, work.width);
    const std::lock_guard lock(stream->mutex());
    TF_TRY(check_capture_conflict(*stream));
    stream->submit_effect_free(work);
    return CUDA_SUCCESS;
  }
  std::shared_ptr<Function> shared;
  TF_TRY(find_function(handle, stream->context(), shared));
  if (&shared->module->context() != &stream->context()) return CUDA_ERROR_INVALID_HANDLE;
  std::shared_ptr<const KernelCommand> command;
  TF_TRY(make_kernel_command(shared, grid, block, shared_bytes, params, extra, cooperative, command));
  if (cooperative) TF_TRY(check_resident(stream->context().device(), grid, block, stream->multiprocessors()));
  if (!attributes.empty()) {
    auto with = std::make_shared<KernelCommand>(*command);
    with->attributes = std::move(attributes);
    command = std::move(with);
  }
  return issue(*stream, std::move(command));
}

CUresult launch_ex(Flavour flavour, const CUlaunchConfig* config, CUfunction function, void** params, void** extra) {
  if (config == nullptr || (config->numAttrs != 0 && config->attrs == nullptr)) return CUDA_ERROR_INVALID_VALUE;
  bool cooperative = false;
  CUevent completion = nullptr;
  std::vector<CUlaunchAttribute> attributes;
  for (unsigned i = 0; i < config->numAttrs; ++i) {
    const CUlaunchAttribute& attribute = config->attrs[i];
    switch (attribute.id) {
      case CU_LAUNCH_ATTRIBUTE_IGNORE:
        continue;
      case CU_LAUNCH_ATTRIBUTE_COOPERATIVE:
        cooperative = attribute.value.cooperative != 0;
        break;
      case CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION: {
        const auto& cluster = attribute.value.clusterDim;
        if (cluster.x == 0 || cluster.y == 0 || cluster.z == 0) return CUDA_ERROR_INVALID_VALUE;
        if (std::uint64_t{cluster.x} * cluster.y * cluster.z > 16) return CUDA_ERROR_INVALID_CLUSTER_SIZE;
        if (config->gridDimX % cluster.x != 0 || config->gridDimY % cluster.y != 0 || config->gridDimZ % cluster.z != 0)
          return CUDA_ERROR_INVALID_CLUSTER_SIZE;
        break;
      }
      case CU_LAUNCH_ATTRIBUTE_LAUNCH_COMPLETION_EVENT:
        completion = attribute.value.launchCompletionEvent.event;
        break;
      case CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_EVENT:
        completion = attribute.value.programmaticEvent.event;
        break;
      case CU_LAUNCH_ATTRIBUTE_ACCESS_POLICY_WINDOW:
      case CU_LAUNCH_ATTRIBUTE_SYNCHRONIZATION_POLICY:
      case CU_LAUNCH_ATTRIBUTE_CLUSTER_SCHEDULING_POLICY_PREFERENCE:
      case CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION:
      case CU_LAUNCH_ATTRIBUTE_PRIORITY:
      case CU_LAUNCH_ATTRIBUTE_MEM_SYNC_DOMAIN_MAP:
      case CU_LAUNCH_ATTRIBUTE_MEM_SYNC_DOMAIN:
      case CU_LAUNCH_ATTRIBUTE_PREFERRED_CLUSTER_DIMENSION:
      case CU_LAUNCH_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT:
        break;  // hints: they change nothing here
      case CU_LAUNCH_ATTRIBUTE_DEVICE_UPDATABLE_KERNEL_NODE:
        return refuse_once("cuLaunchKernelEx of a node that the device can update");
      default:
        return CUDA_ERROR_INVALID_VALUE;
    }
    attributes.push_back(attribute);
  }
  TF_TRY(launch("cuLaunchKernelEx", flavour, function, {config->gridDimX, config->gridDimY, config->gridDimZ},
                {config->blockDimX, config->blockDimY, config->blockDimZ}, config->sharedMemBytes, config->hStream,
                params, extra, cooperative, std::move(attributes)));
  if (completion == nullptr) return CUDA_SUCCESS;
  Stream* stream = nullptr;
  TF_TRY(find_stream(config->hStream, flavour, stream));
  auto event = events().share(completion);
  if (!event) return CUDA_ERROR_INVALID_HANDLE;
  return issue(*stream, std::make_shared<const RecordCommand>(RecordCommand{std::move(event)}));
}

}  // namespace

TF_STREAM_API(cuLaunchKernel,
              (CUfunction function, unsigned grid_x, unsigned grid_y, unsigned grid_z, unsigned block_x,
               unsigned block_y, unsigned block_z, unsigned shared_bytes, CUstream stream, void** params, void** extra),
              {
                return launch("cuLaunchKernel", kFlavour, function, {grid_x, grid_y, grid_z},
                              {block_x, block_y, block_z}, shared_bytes, stream, params, extra, false);
              })

TF_STREAM_API(cuLaunchCooperativeKernel,
              (CUfunction function, unsigned grid_x, unsigned grid_y, unsigned grid_z, unsigned block_x,
               unsigned block_y, unsigned block_z, unsigned shared_bytes, CUstream stream, void** params),
              {
                return launch("cuLaunchCooperativeKernel", kFlavour, function, {grid_x, grid_y, grid_z},
                              {block_x, block_y, block_z}, shared_bytes, stream, params, nullptr, true);
              })

TF_STREAM_API(cuLaunchKernelEx, (const CUlaunchConfig* config, CUfunction function, void** params, void** extra),
              { return launch_ex(kFlavour, config, function, params, extra); })

}  // namespace tensor_fusion::sim::cuda
