// Memset in all its forms: 8, 16 and 32 bits, one and two dimensions, blocking (which does not block) and asynchronous.
#include <cstring>

#include "sim/cuda/command.h"
#include "sim/cuda/device.h"
#include "sim/cuda/driver.h"

namespace tensor_fusion::sim::cuda {
namespace {

// Device memory: streams may race for it as kernels may, and one may wait for what another fills in.
template <typename T>
[[gnu::no_sanitize_thread]] void fill_row(CUdeviceptr address, std::uint64_t count, unsigned value) {
  auto* at = reinterpret_cast<T*>(address);
  for (std::uint64_t i = 0; i < count; ++i) at[i] = static_cast<T>(value);
}

void fill(const CUDA_MEMSET_NODE_PARAMS_v2& what) {
  for (std::uint64_t row = 0; row < what.height; ++row) {
    const CUdeviceptr at = what.dst + row * what.pitch;
    if (what.elementSize == 1)
      std::memset(reinterpret_cast<void*>(at), static_cast<int>(what.value & 0xffU), what.width);
    else if (what.elementSize == 2)
      fill_row<std::uint16_t>(at, what.width, what.value);
    else
      fill_row<std::uint32_t>(at, what.width, what.value);
  }
}

CUresult set(const char* symbol, Flavour flavour, CUstream stream, CUdeviceptr address, std::size_t pitch,
             unsigned value, unsigned element_size, std::size_t width, std::size_t height) {
  TF_TRY(enter(symbol, "copy"));
  Stream* target = nullptr;
  TF_TRY(find_work_stream(stream, flavour, target));
  std::shared_ptr<const FillCommand> command;
  TF_TRY(make_fill({address, pitch, value, element_size, width, height, target->context().handle()}, command));
  return issue(*target, std::move(command));
}

}  // namespace

CUresult make_fill(const CUDA_MEMSET_NODE_PARAMS_v2& asked, std::shared_ptr<const FillCommand>& out) {
  const unsigned size = asked.elementSize;
  if (size != 1 && size != 2 && size != 4) return CUDA_ERROR_INVALID_VALUE;
  if (asked.width != 0 && asked.height != 0) {
    if (asked.dst == 0 || asked.dst % size != 0) return CUDA_ERROR_INVALID_VALUE;
    if (asked.height > 1 && (asked.pitch < asked.width * size || asked.pitch % size != 0))
      return CUDA_ERROR_INVALID_VALUE;
    const auto allocation = Driver::get().addresses().find(asked.dst);
    const std::uint64_t past = asked.dst + (asked.height - 1) * asked.pitch + asked.width * size;
    if (!allocation || past > allocation->base + allocation->extent) {
      // Mapped pieces may lie side by side.
      std::uint64_t at = asked.dst;
      for (auto piece = allocation; at < past; piece = Driver::get().addresses().find(at)) {
        if (!piece) return CUDA_ERROR_INVALID_VALUE;
        at = piece->base + piece->extent;
      }
    }
  }
  out = std::make_shared<const FillCommand>(FillCommand{asked});
  return CUDA_SUCCESS;
}

namespace {
std::uint64_t bytes_of(const FillCommand& command) {
  return command.what.width * command.what.height * command.what.elementSize;
}
// Half the time of a copy: written, not read.
std::uint64_t duration_of(const Context& context, std::uint64_t bytes) {
  return Driver::get().machine().copy_duration_ns(context.device().engine.id, device::WorkKind::d2d, bytes) / 2;
}
}  // namespace

CUresult enqueue_fill(Stream& stream, std::shared_ptr<const FillCommand> command) {
  const std::uint64_t bytes = bytes_of(*command);
  if (bytes == 0) return CUDA_SUCCESS;
  device::Work work;
  work.kind = device::WorkKind::compute;  // a kernel on real devices too
  const std::uint64_t duration = duration_of(stream.context(), bytes);
  enqueue_effect(stream, work, bytes <= kQuickBytes,
                 [command = std::move(command), duration](bool skip) -> std::uint64_t {
                   if (!skip) fill(command->what);
                   return duration;
                 });
  return CUDA_SUCCESS;
}

std::uint64_t run_fill_here(const Context& context, const FillCommand& command) {
  const std::uint64_t bytes = bytes_of(command);
  if (bytes == 0) return 0;
  fill(command.what);
  return duration_of(context, bytes);
}

#define TF_MEMSET(bits, type, size)                                                                                    \
  TF_BLOCKING_API(cuMemsetD##bits##_v2, (CUdeviceptr address, type value, std::size_t count),                          \
                  { return set("cuMemsetD" #bits, kFlavour, nullptr, address, 0, value, size, count, 1); })            \
  TF_STREAM_API(cuMemsetD##bits##Async, (CUdeviceptr address, type value, std::size_t count, CUstream stream),         \
                { return set("cuMemsetD" #bits "Async", kFlavour, stream, address, 0, value, size, count, 1); })       \
  TF_BLOCKING_API(cuMemsetD2D##bits##_v2,                                                                              \
                  (CUdeviceptr address, std::size_t pitch, type value, std::size_t width, std::size_t height),         \
                  { return set("cuMemsetD2D" #bits, kFlavour, nullptr, address, pitch, value, size, width, height); }) \
  TF_STREAM_API(                                                                                                       \
      cuMemsetD2D##bits##Async,                                                                                        \
      (CUdeviceptr address, std::size_t pitch, type value, std::size_t width, std::size_t height, CUstream stream),    \
      { return set("cuMemsetD2D" #bits "Async", kFlavour, stream, address, pitch, value, size, width, height); })

TF_MEMSET(8, unsigned char, 1)
TF_MEMSET(16, unsigned short, 2)
TF_MEMSET(32, unsigned, 4)

}  // namespace tensor_fusion::sim::cuda
