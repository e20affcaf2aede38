#include "sim/cuda/multicast.h"

#include <sys/mman.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <thread>

#include "sim/cuda/device.h"
#include "sim/cuda/driver.h"

namespace tensor_fusion::sim::cuda {
namespace {
constexpr std::uint64_t kMagic = 0x3143544c554d4654;  // "TFMULTC1"
constexpr auto kLookAgain = std::chrono::milliseconds(1);

device::Access access_of(const Allocation& mapping) {
  return !mapping.readable  ? device::Access::none
         : mapping.writable ? device::Access::read_write
                            : device::Access::read;
}
}  // namespace

// Behind the object's bytes, shared by all who have it. A file of zeros is a valid one without devices.
struct MulticastTeam::Page {
  std::uint64_t magic;
  CUmulticastObjectProp properties;
  std::array<std::atomic<std::uint32_t>, device::kMaxMachineDevices> engines;  // + 1; 0: free
  [[nodiscard]] std::size_t added() const {
    return static_cast<std::size_t>(
        std::count_if(engines.begin(), engines.end(), [](const auto& each) { return each.load() != 0; }));
  }
};

bool can_multicast(const Device& device) {
  return device.profile().link_kind == device::LinkKind::nvswitch && !device.is_mig();
}

MulticastTeam::Page* MulticastTeam::open(const device::Physical& backing) {
  static_assert(sizeof(Page) <= device::kArenaPage);
  void* page = ::mmap(nullptr, device::kArenaPage, PROT_READ | PROT_WRITE, MAP_SHARED, backing.fd(),
                      static_cast<off_t>(backing.size() - device::kArenaPage));
  return page != MAP_FAILED ? static_cast<Page*>(page) : nullptr;
}

std::shared_ptr<MulticastTeam> MulticastTeam::lay(const device::Physical& backing,
                                                  const CUmulticastObjectProp& wanted) {
  Page* page = open(backing);
  if (page == nullptr) return nullptr;
  page->properties = wanted;
  page->magic = kMagic;
  return std::shared_ptr<MulticastTeam>(new MulticastTeam(page, backing.fd()));
}

std::shared_ptr<MulticastTeam> MulticastTeam::find(const device::Physical& backing) {
  if (backing.size() < device::kArenaPage || backing.size() % device::kArenaPage != 0) return nullptr;
  Page* page = open(backing);
  if (page == nullptr) return nullptr;
  auto team = std::shared_ptr<MulticastTeam>(new MulticastTeam(page, backing.fd()));
  const bool ours = page->magic == kMagic && page->properties.size == backing.size() - device::kArenaPage;
  return ours ? team : nullptr;
}

MulticastTeam::~MulticastTeam() { ::munmap(page_, device::kArenaPage); }

const CUmulticastObjectProp& MulticastTeam::properties() const { return page_->properties; }

bool MulticastTeam::has(const Device& device) const {
  return std::any_of(page_->engines.begin(), page_->engines.end(),
                     [&](const auto& each) { return each.load() == device.engine.id + 1; });
}

CUresult MulticastTeam::add(const Device& device) {
  if (has(device)) return CUDA_ERROR_INVALID_VALUE;
  for (std::size_t i = 0; i < page_->properties.numDevices; ++i) {
    std::uint32_t nobody = 0;
    if (page_->engines[i].compare_exchange_strong(nobody, device.engine.id + 1)) return CUDA_SUCCESS;
  }
  return CUDA_ERROR_INVALID_VALUE;  // the team is complete
}

void MulticastTeam::await_all() const {
  while (page_->added() < page_->properties.numDevices) std::this_thread::sleep_for(kLookAgain);
}

CUresult MulticastTeam::bind(const Device& device, std::uint64_t offset, TeamMemory memory) {
  if (!has(device)) return CUDA_ERROR_INVALID_DEVICE;
  const std::uint64_t size = page_->properties.size, bytes = memory.bytes;
  if (bytes == 0 || offset > size || bytes > size - offset) return CUDA_ERROR_INVALID_VALUE;
  const std::lock_guard lock(mutex_);
  for (const auto& [where, other] : bound_)
    if (where.first == device.engine.id && where.second < offset + bytes && offset < where.second + other.bytes)
      return CUDA_ERROR_INVALID_VALUE;
  bound_[{device.engine.id, offset}] = std::move(memory);
  lay_over(offset, bytes);
  return CUDA_SUCCESS;
}

CUresult MulticastTeam::unbind(const Device& device, std::uint64_t offset, std::uint64_t bytes) {
  const std::lock_guard lock(mutex_);
  const auto found = bound_.find({device.engine.id, offset});
  if (found == bound_.end() || found->second.bytes != bytes) return CUDA_ERROR_INVALID_VALUE;
  const TeamMemory keep = std::move(found->second);  // until no mapping shows it
  bound_.erase(found);
  lay_over(offset, bytes);
  return CUDA_SUCCESS;
}

void MulticastTeam::show(const std::shared_ptr<Allocation>& mapping, std::uint64_t offset) {
  const std::lock_guard lock(mutex_);
  std::erase_if(shown_, [](const Shown& each) { return each.mapping.expired(); });
  shown_.push_back({mapping, offset});
  lay_over(*mapping, offset, offset, mapping->extent);
}

void MulticastTeam::lay_over(std::uint64_t offset, std::uint64_t bytes) {
  for (const Shown& each : shown_)
    if (const auto mapping = each.mapping.lock(); mapping && mapping->keeper)  // else it is being unmapped
      lay_over(*mapping, each.offset, offset, bytes);
}

// What [offset, offset + bytes) of the object shows, into a mapping of its bytes from `mapped_at` on.
void MulticastTeam::lay_over(const Allocation& mapping, std::uint64_t mapped_at, std::uint64_t offset,
                             std::uint64_t bytes) {
  const std::uint64_t first = std::max(offset, mapped_at), end = std::min(offset + bytes, mapped_at + mapping.extent);
  if (first >= end) return;
  const auto put = [&](std::uint64_t from, std::uint64_t to, int fd, std::uint64_t at) {
    void* const address = reinterpret_cast<void*>(mapping.base + (from - mapped_at));
    if (device::map_at(address, to - from, fd, at)) (void)device::protect(address, to - from, access_of(mapping));
  };
  put(first, end, fd_, first);
  for (auto each = bound_.rbegin(); each != bound_.rend(); ++each) {  // the first device's last, on top
    const std::uint64_t start = each->first.second;
    const TeamMemory& memory = each->second;
    const std::uint64_t from = std::max(first, start), to = std::min(end, start + memory.bytes);
    if (from < to) put(from, to, memory.fd, memory.offset + (from - start));
  }
}

}  // namespace tensor_fusion::sim::cuda
