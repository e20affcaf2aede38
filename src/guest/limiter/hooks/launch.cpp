// Kernel launches: everything that puts device time on a stream outside of graphs.
#include <atomic>

#include "guest/limiter/hooks/entry.h"
#include "guest/limiter/hooks/library.h"

namespace tensor_fusion::guest::limiter {
namespace {

gate::LaunchKey key_of(CUfunction function, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by,
                       unsigned bz) {
  // Products in 64 bits: a grid's alone can pass 2^32. The block is kept apart so that equal totals do not meet.
  const std::uint64_t grid = std::uint64_t{gx} * gy * gz;
  const std::uint64_t block = std::uint64_t{bx} * by * bz;
  return {function, grid * 2048 + block};
}

template <class Call>
[[gnu::always_inline]] inline CUresult gated(Device& device, CUstream stream, gate::LaunchKey key, bool own_stream,
                                             Call call) {
  gate::Token token = gate::before_launch(device, stream, key, own_stream);
  const CUresult result = call();
  if (token.word[0] != 0) gate::after_launch(token, result);
  return result;
}

bool gated_device(Device* device) { return device != nullptr && !gate::bypassed(*device); }

// Threads in a block, of the launches that name them beforehand: one word a row, the function above the product, since
// any thread may set one while another launches. What is found for another function counts as nothing.
constexpr std::size_t kShapes = 64;
constexpr unsigned kBlockBits = 11;  // a block has 1024 threads at most
constexpr std::uint64_t kBlock = (std::uint64_t{1} << kBlockBits) - 1;
std::atomic<std::uint64_t> g_shapes[kShapes];

std::atomic<std::uint64_t>& shape_of(CUfunction function) {
  return g_shapes[(reinterpret_cast<std::uint64_t>(function) >> 4) % kShapes];
}

void keep_shape(CUfunction function, std::uint64_t block) {
  shape_of(function).store(reinterpret_cast<std::uint64_t>(function) << kBlockBits | (block < kBlock ? block : kBlock),
                           std::memory_order_relaxed);
}

unsigned block_of(CUfunction function) {
  const std::uint64_t word = shape_of(function).load(std::memory_order_relaxed);
  const bool known = word >> kBlockBits == reinterpret_cast<std::uint64_t>(function) << kBlockBits >> kBlockBits;
  return known ? static_cast<unsigned>(word & kBlock) : 1;
}

template <auto Member>
CUresult legacy_launch(CUfunction function, unsigned width, unsigned height, CUstream stream, auto... arguments) {
  const auto [device, refused] = look_up_launch(function, stream);
  if (refused != CUDA_SUCCESS) return refused;
  if (!gated_device(device)) return must_refuse() ? refusal() : real<Member>()(function, arguments...);
  return gated(*device, stream, key_of(function, width, height, 1, block_of(function), 1, 1), false,
               [&] { return real<Member>()(function, arguments...); });
}

}  // namespace

#define TF_LAUNCH(symbol, own_stream)                                                                                  \
  TF_ENTRY(symbol, (CUfunction function, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by, unsigned bz, \
                    unsigned shared, CUstream stream, void** params, void** extra)) {                                  \
    const auto [device, refused] = look_up_launch(function, stream);                                                   \
    if (refused != CUDA_SUCCESS) return refused;                                                                       \
    if (!gated_device(device))                                                                                         \
      return device == nullptr && must_refuse()                                                                        \
                 ? refusal()                                                                                           \
                 : TF_REAL(symbol)(function, gx, gy, gz, bx, by, bz, shared, stream, params, extra);                   \
    return gated(*device, stream, key_of(function, gx, gy, gz, bx, by, bz), own_stream,                                \
                 [&] { return TF_REAL(symbol)(function, gx, gy, gz, bx, by, bz, shared, stream, params, extra); });    \
  }
TF_LAUNCH(cuLaunchKernel, false)
TF_LAUNCH(cuLaunchKernel_ptsz, true)
#undef TF_LAUNCH

#define TF_LAUNCH(symbol, own_stream)                                                                           \
  TF_ENTRY(symbol, (const CUlaunchConfig* config, CUfunction function, void** params, void** extra)) {          \
    const auto [device, refused] = look_up_launch(function, config == nullptr ? nullptr : config->hStream);     \
    if (refused != CUDA_SUCCESS) return refused;                                                                \
    if (!gated_device(device) || config == nullptr) return TF_FORWARD(symbol, config, function, params, extra); \
    return gated(*device, config->hStream,                                                                      \
                 key_of(function, config->gridDimX, config->gridDimY, config->gridDimZ, config->blockDimX,      \
                        config->blockDimY, config->blockDimZ),                                                  \
                 own_stream, [&] { return TF_REAL(symbol)(config, function, params, extra); });                 \
  }
TF_LAUNCH(cuLaunchKernelEx, false)
TF_LAUNCH(cuLaunchKernelEx_ptsz, true)
#undef TF_LAUNCH

#define TF_LAUNCH(symbol, own_stream)                                                                                  \
  TF_ENTRY(symbol, (CUfunction function, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by, unsigned bz, \
                    unsigned shared, CUstream stream, void** params)) {                                                \
    const auto [device, refused] = look_up_launch(function, stream);                                                   \
    if (refused != CUDA_SUCCESS) return refused;                                                                       \
    if (!gated_device(device)) return TF_FORWARD(symbol, function, gx, gy, gz, bx, by, bz, shared, stream, params);    \
    return gated(*device, stream, key_of(function, gx, gy, gz, bx, by, bz), own_stream,                                \
                 [&] { return TF_REAL(symbol)(function, gx, gy, gz, bx, by, bz, shared, stream, params); });           \
  }
TF_LAUNCH(cuLaunchCooperativeKernel, false)
TF_LAUNCH(cuLaunchCooperativeKernel_ptsz, true)
#undef TF_LAUNCH

// One launch on several devices at once: every part passes the gate of the device on which it runs and is measured
// there. In the devices' order, so that no two such launches wait for each other. Drivers allow one part a device.
TF_ENTRY(cuLaunchCooperativeKernelMultiDevice, (CUDA_LAUNCH_PARAMS * launches, unsigned count, unsigned flags)) {
  const CUDA_LAUNCH_PARAMS* part_on[contract::kMaxDevices] = {};
  for (unsigned i = 0; launches != nullptr && i < count; ++i) {
    const auto [device, refused] = look_up_launch(launches[i].function, launches[i].hStream);
    if (refused != CUDA_SUCCESS) return refused;
    if (device == nullptr && must_refuse()) return refusal();
    if (!gated_device(device)) continue;
    const CUDA_LAUNCH_PARAMS*& part = part_on[device - attachment()->devices];
    if (part != nullptr) return CUDA_ERROR_INVALID_VALUE;
    part = &launches[i];
  }
  gate::Token tokens[contract::kMaxDevices];
  for (std::uint32_t index = 0; index < contract::kMaxDevices; ++index) {
    tokens[index].word[0] = 0;
    const CUDA_LAUNCH_PARAMS* part = part_on[index];
    if (part == nullptr) continue;
    tokens[index] = gate::before_launch(attachment()->devices[index], part->hStream,
                                        key_of(part->function, part->gridDimX, part->gridDimY, part->gridDimZ,
                                               part->blockDimX, part->blockDimY, part->blockDimZ),
                                        false);
  }
  const CUresult result = TF_REAL(cuLaunchCooperativeKernelMultiDevice)(launches, count, flags);
  for (gate::Token& token : tokens)
    if (token.word[0] != 0) gate::after_launch(token, result);
  return result;
}

TF_ENTRY(cuFuncSetBlockShape, (CUfunction function, int x, int y, int z)) {
  const CUresult result = TF_REAL(cuFuncSetBlockShape)(function, x, y, z);
  if (result == CUDA_SUCCESS)
    keep_shape(function, std::uint64_t{static_cast<unsigned>(x)} * static_cast<unsigned>(y) * static_cast<unsigned>(z));
  return result;
}
TF_ENTRY(cuLaunch, (CUfunction function)) { return legacy_launch<&Driver::cuLaunch>(function, 1, 1, nullptr); }
TF_ENTRY(cuLaunchGrid, (CUfunction function, int width, int height)) {
  return legacy_launch<&Driver::cuLaunchGrid>(function, static_cast<unsigned>(width), static_cast<unsigned>(height),
                                              nullptr, width, height);
}
TF_ENTRY(cuLaunchGridAsync, (CUfunction function, int width, int height, CUstream stream)) {
  return legacy_launch<&Driver::cuLaunchGridAsync>(function, static_cast<unsigned>(width),
                                                   static_cast<unsigned>(height), stream, width, height, stream);
}

}  // namespace tensor_fusion::guest::limiter
