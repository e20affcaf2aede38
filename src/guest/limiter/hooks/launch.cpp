// Kernel launches: everything that puts device time on a stream outside of graphs.
#include "guest/limiter/hooks/entry.h"

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

// Block shapes of the launches that name them beforehand.
struct Shape {
  std::uint64_t function;
  unsigned x, y, z;
};
constexpr std::size_t kShapes = 64;
Shape g_shapes[kShapes];

Shape& shape_of(CUfunction function) {
  const auto word = reinterpret_cast<std::uint64_t>(function);
  return g_shapes[(word >> 4) % kShapes];
}

template <auto Member>
CUresult legacy_launch(CUfunction function, unsigned width, unsigned height, CUstream stream, auto... arguments) {
  Device* device = stream_device(stream);
  if (!gated_device(device)) return must_refuse() ? refusal() : real<Member>()(function, arguments...);
  const Shape shape = shape_of(function);
  const bool known = shape.function == reinterpret_cast<std::uint64_t>(function);
  return gated(*device, stream,
               key_of(function, width, height, 1, known ? shape.x : 1, known ? shape.y : 1, known ? shape.z : 1), false,
               [&] { return real<Member>()(function, arguments...); });
}

}  // namespace

#define TF_LAUNCH(symbol, own_stream)                                                                                  \
  TF_ENTRY(symbol, (CUfunction function, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by, unsigned bz, \
                    unsigned shared, CUstream stream, void** params, void** extra)) {                                  \
    Device* device = stream_device(stream);                                                                            \
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
    Device* device = config == nullptr ? current_device() : stream_device(config->hStream);                     \
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
    Device* device = stream_device(stream);                                                                            \
    if (!gated_device(device)) return TF_FORWARD(symbol, function, gx, gy, gz, bx, by, bz, shared, stream, params);    \
    return gated(*device, stream, key_of(function, gx, gy, gz, bx, by, bz), own_stream,                                \
                 [&] { return TF_REAL(symbol)(function, gx, gy, gz, bx, by, bz, shared, stream, params); });           \
  }
TF_LAUNCH(cuLaunchCooperativeKernel, false)
TF_LAUNCH(cuLaunchCooperativeKernel_ptsz, true)
#undef TF_LAUNCH

// One launch on several devices at once. Held for the current device; each part is measured where it runs only if it is
// the same device, since the gate of another would need that device's context.
TF_ENTRY(cuLaunchCooperativeKernelMultiDevice, (CUDA_LAUNCH_PARAMS * launches, unsigned count, unsigned flags)) {
  Device* device = current_device();
  if (!gated_device(device) || launches == nullptr || count == 0)
    return TF_FORWARD(cuLaunchCooperativeKernelMultiDevice, launches, count, flags);
  const CUDA_LAUNCH_PARAMS& first = launches[0];
  return gated(*device, first.hStream,
               key_of(first.function, first.gridDimX, first.gridDimY, first.gridDimZ, first.blockDimX, first.blockDimY,
                      first.blockDimZ),
               false, [&] { return TF_REAL(cuLaunchCooperativeKernelMultiDevice)(launches, count, flags); });
}

TF_ENTRY(cuFuncSetBlockShape, (CUfunction function, int x, int y, int z)) {
  const CUresult result = TF_REAL(cuFuncSetBlockShape)(function, x, y, z);
  if (result == CUDA_SUCCESS)
    shape_of(function) = {reinterpret_cast<std::uint64_t>(function), static_cast<unsigned>(x), static_cast<unsigned>(y),
                          static_cast<unsigned>(z)};
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
