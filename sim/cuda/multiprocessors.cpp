#include "sim/cuda/multiprocessors.h"

#include <algorithm>
#include <cstring>

#include "sim/cuda/device.h"
#include "sim/cuda/driver.h"

namespace tensor_fusion::sim::cuda {
namespace {
constexpr std::uint32_t kMagic = 0x50544d53;
struct Packed {
  std::uint32_t magic;
  std::int32_t ordinal;
  std::array<std::uint64_t, 4> mask;
};
static_assert(sizeof(Packed) <= sizeof(CUdevResource::internal));
}  // namespace

Multiprocessors Multiprocessors::all_of(const Device& device) {
  Multiprocessors all;
  all.ordinal_ = device.ordinal;
  const unsigned count = std::min<unsigned>(device.engine.sm_count, 64 * all.mask_.size());
  for (unsigned i = 0; i < count; ++i) all.mask_[i / 64] |= std::uint64_t{1} << (i % 64);
  return all;
}

CUresult Multiprocessors::from(const CUdevResource& resource, Multiprocessors& out) {
  Packed packed;
  std::memcpy(&packed, resource.internal, sizeof packed);
  if (resource.type != CU_DEV_RESOURCE_TYPE_SM || packed.magic != kMagic ||
      Driver::get().device(packed.ordinal) == nullptr)
    return CUDA_ERROR_INVALID_RESOURCE_TYPE;
  out.ordinal_ = packed.ordinal;
  out.mask_ = packed.mask;
  return out.count() == resource.sm.smCount && out.count() != 0 ? CUDA_SUCCESS
                                                                : CUDA_ERROR_INVALID_RESOURCE_CONFIGURATION;
}

CUdevResource Multiprocessors::as_resource() const {
  CUdevResource resource{};
  if (count() == 0) return resource;
  resource.type = CU_DEV_RESOURCE_TYPE_SM;
  const Packed packed{kMagic, ordinal_, mask_};
  std::memcpy(resource.internal, &packed, sizeof packed);
  resource.sm.smCount = count();
  return resource;
}

Multiprocessors Multiprocessors::take(unsigned count) {
  Multiprocessors taken;
  taken.ordinal_ = ordinal_;
  for (std::size_t word = 0; word < mask_.size(); ++word) {
    while (count != 0 && mask_[word] != 0) {
      const std::uint64_t lowest = mask_[word] & (~mask_[word] + 1);
      mask_[word] ^= lowest;
      taken.mask_[word] |= lowest;
      --count;
    }
  }
  return taken;
}

CUresult Multiprocessors::add(const Multiprocessors& other) {
  if (ordinal_ >= 0 && ordinal_ != other.ordinal_) return CUDA_ERROR_INVALID_RESOURCE_CONFIGURATION;
  for (std::size_t word = 0; word < mask_.size(); ++word)
    if ((mask_[word] & other.mask_[word]) != 0) return CUDA_ERROR_INVALID_RESOURCE_CONFIGURATION;
  for (std::size_t word = 0; word < mask_.size(); ++word) mask_[word] |= other.mask_[word];
  ordinal_ = other.ordinal_;
  return CUDA_SUCCESS;
}

unsigned Multiprocessors::count() const {
  unsigned sum = 0;
  for (const std::uint64_t word : mask_) sum += static_cast<unsigned>(std::popcount(word));
  return sum;
}

unsigned group_size(const Device& device, unsigned wanted, unsigned split_flags) {
  const unsigned major = device.profile().capability_major;
  const bool scattered = (split_flags & CU_DEV_SM_RESOURCE_SPLIT_IGNORE_SM_COSCHEDULING) != 0;
  const unsigned least = major >= 9 ? (scattered ? 2 : 8) : major == 8 ? 4 : 2;
  const unsigned step = major >= 9 && !scattered ? 8 : 2;
  return (std::max(wanted, least) + step - 1) / step * step;
}

}  // namespace tensor_fusion::sim::cuda
