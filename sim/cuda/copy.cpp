// What a copy is made of and how it runs. The entry points are in copy_api.cpp and copy_2d_api.cpp.
#include <cstring>

#include "sim/cuda/array.h"
#include "sim/cuda/command.h"
#include "sim/cuda/device.h"
#include "sim/cuda/driver.h"

namespace tensor_fusion::sim::cuda {
namespace {

constexpr std::uint64_t kMaxPitch = 0x7fffffff;

struct Asked {
  CUmemorytype type;
  std::uint64_t host, device;
  CUarray array;
  std::size_t x, y, z, pitch, height;
};

// Every byte from first to last belongs to something; one allocation or several side by side.
bool covered(std::uint64_t first, std::uint64_t end) {
  while (first < end) {
    const auto allocation = Driver::get().addresses().find(first);
    if (!allocation) return false;
    first = allocation->base + allocation->extent;
  }
  return true;
}

CUresult resolve(const Asked& asked, std::uint64_t width, std::uint64_t height, std::uint64_t depth, CopyEnd& end) {
  std::uint64_t base = 0;
  switch (asked.type) {
    case CU_MEMORYTYPE_HOST:
      base = asked.host;
      break;
    case CU_MEMORYTYPE_DEVICE:
    case CU_MEMORYTYPE_UNIFIED:
      base = asked.device;
      break;
    case CU_MEMORYTYPE_ARRAY: {
      const auto array = arrays().share(asked.array);
      if (!array) return CUDA_ERROR_INVALID_HANDLE;
      if (asked.x + width > array->pitch() || asked.y + height > array->rows() || asked.z + depth > array->slices() ||
          array->bytes == 0)
        return CUDA_ERROR_INVALID_VALUE;
      end.pitch = array->pitch();
      end.slice = end.pitch * array->rows();
      end.address = array->address + asked.z * end.slice + asked.y * end.pitch + asked.x;
      end.device = array->device;
      end.keeper = array;
      return CUDA_SUCCESS;
    }
    default:
      return CUDA_ERROR_INVALID_VALUE;
  }
  if (base == 0) return CUDA_ERROR_INVALID_VALUE;
  end.pitch = asked.pitch != 0 ? asked.pitch : asked.x + width;
  if (end.pitch > kMaxPitch && height > 1) return CUDA_ERROR_INVALID_VALUE;
  if (height > 1 && end.pitch < asked.x + width) return CUDA_ERROR_INVALID_VALUE;
  const std::uint64_t rows = asked.height != 0 ? asked.height : asked.y + height;
  if (depth > 1 && rows < asked.y + height) return CUDA_ERROR_INVALID_VALUE;
  end.slice = end.pitch * rows;
  end.address = base + asked.z * end.slice + asked.y * end.pitch + asked.x;
  const std::uint64_t past = end.address + (depth - 1) * end.slice + (height - 1) * end.pitch + width;
  const auto allocation = Driver::get().addresses().find(end.address);
  if (allocation) {
    if (!covered(end.address, past)) return CUDA_ERROR_INVALID_VALUE;
    end.device = allocation->device;
    return CUDA_SUCCESS;
  }
  if (asked.type == CU_MEMORYTYPE_DEVICE) return CUDA_ERROR_INVALID_VALUE;
  end.pageable = true;
  return CUDA_SUCCESS;
}

void move_bytes(const CopyCommand& copy) {
  for (std::uint64_t z = 0; z < copy.depth; ++z) {
    auto* to = reinterpret_cast<std::byte*>(copy.to.address + z * copy.to.slice);
    const auto* from = reinterpret_cast<const std::byte*>(copy.from.address + z * copy.from.slice);
    if (copy.to.pitch == copy.width && copy.from.pitch == copy.width) {
      std::memmove(to, from, copy.width * copy.height);
      continue;
    }
    for (std::uint64_t y = 0; y < copy.height; ++y)
      std::memmove(to + y * copy.to.pitch, from + y * copy.from.pitch, copy.width);
  }
}

}  // namespace

CUresult make_copy(const CUDA_MEMCPY3D& asked, std::shared_ptr<CopyCommand>& out) {
  auto copy = std::make_shared<CopyCommand>();
  copy->asked = asked;
  copy->width = asked.WidthInBytes;
  copy->height = asked.Height;
  copy->depth = asked.Depth;
  if (copy->bytes() != 0) {
    TF_TRY(resolve({asked.srcMemoryType, reinterpret_cast<std::uint64_t>(asked.srcHost), asked.srcDevice,
                    asked.srcArray, asked.srcXInBytes, asked.srcY, asked.srcZ, asked.srcPitch, asked.srcHeight},
                   copy->width, copy->height, copy->depth, copy->from));
    TF_TRY(resolve({asked.dstMemoryType, reinterpret_cast<std::uint64_t>(asked.dstHost), asked.dstDevice,
                    asked.dstArray, asked.dstXInBytes, asked.dstY, asked.dstZ, asked.dstPitch, asked.dstHeight},
                   copy->width, copy->height, copy->depth, copy->to));
  }
  out = std::move(copy);
  return CUDA_SUCCESS;
}

namespace {

// The part of the device that moves the bytes, and how long it takes. A gate: from host to host, no engine has part in
// it.
struct Transport {
  device::WorkKind kind;
  std::uint64_t duration_ns;
};
Transport transport(const Context& context, const CopyCommand& copy) {
  auto& machine = Driver::get().machine();
  const Device* from = copy.from.device;
  const Device* to = copy.to.device;
  const device::EngineId engine = context.device().engine.id;
  if (from == nullptr && to == nullptr) return {device::WorkKind::gate, 0};
  if (from != nullptr && to != nullptr)
    return {device::WorkKind::d2d, from == to
                                       ? machine.copy_duration_ns(engine, device::WorkKind::d2d, copy.bytes())
                                       : machine.peer_copy_duration_ns(from->engine.id, to->engine.id, copy.bytes())};
  const auto kind = from == nullptr ? device::WorkKind::h2d : device::WorkKind::d2h;
  return {kind, machine.copy_duration_ns(engine, kind, copy.bytes())};
}

}  // namespace

CUresult enqueue_copy(Stream& stream, std::shared_ptr<const CopyCommand> command, bool quick) {
  if (command->bytes() == 0) return CUDA_SUCCESS;
  const auto [kind, duration] = transport(stream.context(), *command);
  device::Work work;
  work.kind = kind;
  enqueue_effect(stream, work, quick, [command = std::move(command), taken_ns = duration](bool skip) -> std::uint64_t {
    if (!skip) move_bytes(*command);
    return taken_ns;
  });
  return CUDA_SUCCESS;
}

std::uint64_t run_copy_here(const Context& context, const CopyCommand& command) {
  if (command.bytes() == 0) return 0;
  move_bytes(command);
  return transport(context, command).duration_ns;
}

}  // namespace tensor_fusion::sim::cuda
