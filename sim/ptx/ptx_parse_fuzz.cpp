// Any text gives a module or an error with a place; what parses also runs, within limits, without touching memory that
// is not its own.
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "sim/ptx/ptx.h"

namespace {

class NoMemory : public tensor_fusion::sim::ptx::Memory {
 public:
  std::optional<tensor_fusion::sim::ptx::Range> range_of(std::uint64_t) override { return std::nullopt; }
};

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace tensor_fusion::sim::ptx;
  const auto module = parse({reinterpret_cast<const char*>(data), size}, {});
  if (!module) {
    if (module.error().message.empty() || module.error().line < 1 || module.error().column < 1) __builtin_trap();
    return 0;
  }
  Image image{*module, {}};
  image.global_addresses.assign((*module)->globals().size(), 4096);
  NoMemory memory;
  for (const Kernel& kernel : (*module)->kernels()) {
    if (kernel.local_bytes > 65536 || kernel.shared_bytes > 65536) continue;
    Launch launch;
    launch.image = &image;
    launch.kernel = &kernel;
    launch.block = {33, 1, 1};
    RunOptions options;
    options.max_thread_instructions = 100000;
    static_cast<void>(run(launch, memory, options));
  }
  return 0;
}
