#pragma once
// Texture and surface objects: what they read through and how, remembered and answered; no kernel of ours reads through
// one. They belong to the context they were made in. Immutable after they are made.
#include <cstddef>
#include <cstdint>

#include "sim/cuda/abi.h"
#include "sim/cuda/context.h"
#include "sim/cuda/handle.h"

namespace tensor_fusion::sim::cuda {

struct TextureObject {
  static constexpr HandleKind kHandleKind = HandleKind::texture;
  std::uint64_t context_id = 0;
  CUDA_RESOURCE_DESC resource{};
  std::byte texture[104]{}, view[64 + 48]{};  // of the API's own sizes
  bool has_view = false;
  [[nodiscard]] bool belongs_to(const Context& context) const { return context_id == context.id(); }
};

struct SurfaceObject {
  static constexpr HandleKind kHandleKind = HandleKind::surface;
  std::uint64_t context_id = 0;
  CUDA_RESOURCE_DESC resource{};
  [[nodiscard]] bool belongs_to(const Context& context) const { return context_id == context.id(); }
};

[[nodiscard]] HandleTable<TextureObject>& textures();
[[nodiscard]] HandleTable<SurfaceObject>& surfaces();

}  // namespace tensor_fusion::sim::cuda
