#include "sim/cuda/pool.h"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <set>

#include "sim/cuda/device.h"
#include "sim/cuda/driver.h"
#include "sim/cuda/stream.h"

namespace tensor_fusion::sim::cuda {
namespace {
constexpr std::uint64_t kPoolChunk = std::uint64_t{32} << 20;  // what a pool takes from the device at a time
std::mutex registry_mutex;
std::atomic<std::uint32_t> next_number{1};
std::set<Pool*>& registry() {
  static auto* all = new std::set<Pool*>;
  return *all;
}
}  // namespace

HandleTable<Pool>& pools() {
  static auto* table = new HandleTable<Pool>;
  return *table;
}

Pool::Pool(Device* owner, const CUmemPoolProps& properties)
    : device_(owner), properties_(properties), number_(next_number.fetch_add(1)) {
  const std::lock_guard lock(registry_mutex);
  registry().insert(this);
}

Pool::Name Pool::name() const { return {static_cast<std::uint32_t>(::getpid()), number_}; }

Pool::~Pool() {
  {
    const std::lock_guard lock(registry_mutex);
    registry().erase(this);
  }
  for (const auto& [address, chunk] : chunks_) give_back(address, chunk.bytes);
}

CUresult Pool::reserve(std::uint64_t bytes, std::uint64_t& base) {
  if (device_ == nullptr) {
    void* const memory = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED) return CUDA_ERROR_OUT_OF_MEMORY;
    base = reinterpret_cast<std::uint64_t>(memory);
    return CUDA_SUCCESS;
  }
  TF_TRY(device_->charge(bytes));
  const CUresult cut = device_->cut(bytes, base, kChunkBytes);
  if (cut != CUDA_SUCCESS) device_->uncharge(bytes);
  return cut;
}

void Pool::give_back(std::uint64_t base, std::uint64_t bytes) {
  if (device_ == nullptr) {
    ::munmap(reinterpret_cast<void*>(base), bytes);
    return;
  }
  device_->release(base, bytes);
}

std::shared_ptr<Pool> Pool::make_default(Device& owner) {
  CUmemPoolProps properties{};
  properties.allocType = CU_MEM_ALLOCATION_TYPE_PINNED;
  properties.location = {CU_MEM_LOCATION_TYPE_DEVICE, owner.ordinal};
  auto pool = std::make_shared<Pool>(&owner, properties);
  pool->is_default = true;
  pool->handle_value = pools().insert(pool);
  return pool;
}

bool Pool::Free::settle() {
  if (stream == 0) return true;
  if (const auto owner = context.lock(); owner && !owner->destroyed() && !owner->timing().done(ticket)) return false;
  stream = 0;
  context.reset();
  return true;
}

bool Pool::take(std::uint64_t bytes, std::uint64_t stream, std::uint64_t& address) {
  for (auto& [base, chunk] : chunks_) {
    for (auto it = chunk.free.begin(); it != chunk.free.end(); ++it) {
      if (it->second.bytes < bytes || (it->second.stream != stream && !it->second.settle())) continue;
      address = it->first;
      Free rest = it->second;
      rest.bytes -= bytes;
      chunk.free.erase(it);
      if (rest.bytes != 0) chunk.free.emplace(address + bytes, rest);
      chunk.used += bytes;
      return true;
    }
  }
  return false;
}

void Pool::put(Chunk& chunk, std::uint64_t address, Free free) {
  const auto alike = [](Free& a, Free& b) { return a.settle() && b.settle() ? true : a.stream == b.stream; };
  auto next = chunk.free.lower_bound(address);
  if (next != chunk.free.end() && next->first == address + free.bytes && alike(free, next->second)) {
    free.bytes += next->second.bytes;
    free.ticket = std::max(free.ticket, next->second.ticket);
    next = chunk.free.erase(next);
  }
  if (next != chunk.free.begin()) {
    if (const auto before = std::prev(next);
        before->first + before->second.bytes == address && alike(free, before->second)) {
      before->second.bytes += free.bytes;
      before->second.ticket = std::max(free.ticket, before->second.ticket);
      return;
    }
  }
  chunk.free.emplace(address, std::move(free));
}

CUresult Pool::grow(std::uint64_t bytes) {
  if (properties_.maxSize != 0 && reserved_ + bytes > properties_.maxSize) return CUDA_ERROR_OUT_OF_MEMORY;
  std::uint64_t chunk_bytes = round_up(bytes, kChunkBytes), base = 0;
  if (chunk_bytes < kPoolChunk && properties_.maxSize == 0 && reserve(kPoolChunk, base) == CUDA_SUCCESS) {
    chunk_bytes = kPoolChunk;
  } else if (reserve(chunk_bytes, base) != CUDA_SUCCESS) {  // before failing, what lies unused
    trim_locked(0);
    TF_TRY(reserve(chunk_bytes, base));
  }
  reserved_ += chunk_bytes;
  reserved_high_ = std::max(reserved_high_, reserved_);
  auto& chunk = chunks_[base];
  chunk.bytes = chunk_bytes;
  chunk.free[base].bytes = chunk_bytes;
  return CUDA_SUCCESS;
}

CUresult Pool::allocate(std::uint64_t bytes, const Stream& stream, CUdeviceptr& out) {
  if (imported) return CUDA_ERROR_INVALID_VALUE;
  if (device_ != nullptr && bytes > device_->engine.memory_bytes) return CUDA_ERROR_OUT_OF_MEMORY;
  const std::uint64_t rounded = round_up(std::max<std::uint64_t>(bytes, 1), kAllocationUnit);
  std::uint64_t address = 0;
  {
    const std::lock_guard lock(mutex_);
    if (!take(rounded, stream.id, address)) {
      TF_TRY(grow(rounded));
      (void)take(rounded, stream.id, address);
    }
    blocks_.emplace(address, rounded);
    used_ += rounded;
    used_high_ = std::max(used_high_, used_);
  }
  auto& addresses = Driver::get().addresses();
  auto allocation = std::make_shared<Allocation>();
  allocation->kind = Allocation::Kind::pool;
  allocation->base = address;
  allocation->size = bytes;
  allocation->extent = rounded;
  allocation->device = device_;
  allocation->id = addresses.next_id();
  allocation->keeper = shared_from_this();
  addresses.add(allocation);
  out = address;
  return CUDA_SUCCESS;
}

CUresult Pool::free(CUdeviceptr address, const Stream* stream) {
  const auto gone = Driver::get().addresses().remove(address);  // keeps the pool until the end of this function
  const std::lock_guard lock(mutex_);
  const auto block = blocks_.find(address);
  if (block == blocks_.end()) return CUDA_ERROR_INVALID_VALUE;
  Free free;
  free.bytes = block->second;
  if (stream != nullptr) {
    free.context = stream->context().weak_from_this();
    free.stream = stream->id;
    free.ticket = stream->last();
  }
  blocks_.erase(block);
  used_ -= free.bytes;
  auto& chunk = std::prev(chunks_.upper_bound(address))->second;
  chunk.used -= free.bytes;
  put(chunk, address, std::move(free));
  return CUDA_SUCCESS;
}

std::optional<Pool::Reach> Pool::reach(std::uint64_t address, const Device& device) {
  const std::lock_guard lock(registry_mutex);
  for (Pool* pool : registry()) {
    if (pool->access({CU_MEM_LOCATION_TYPE_DEVICE, device.ordinal}) == CU_MEM_ACCESS_FLAGS_PROT_NONE) continue;
    const std::lock_guard pool_lock(pool->mutex_);
    const auto next = pool->chunks_.upper_bound(address);
    if (next == pool->chunks_.begin()) continue;
    const auto& [base, chunk] = *std::prev(next);
    if (address - base < chunk.bytes) return Reach{base, base + chunk.bytes};
  }
  return std::nullopt;
}

void Pool::trim_locked(std::uint64_t keep_bytes) {
  for (auto it = chunks_.begin(); it != chunks_.end() && reserved_ > keep_bytes;) {
    const bool in_use = it->second.used != 0 || std::any_of(it->second.free.begin(), it->second.free.end(),
                                                            [](auto& entry) { return !entry.second.settle(); });
    if (in_use) {
      ++it;
      continue;
    }
    give_back(it->first, it->second.bytes);
    reserved_ -= it->second.bytes;
    it = chunks_.erase(it);
  }
}

void Pool::trim(std::uint64_t keep_bytes) {
  const std::lock_guard lock(mutex_);
  trim_locked(keep_bytes);
}

void Pool::trim_all(const Device& device) {
  const std::lock_guard lock(registry_mutex);
  for (Pool* pool : registry()) {
    if (pool->device_ != nullptr && pool->device_ != &device) continue;
    const std::lock_guard pool_lock(pool->mutex_);
    if (pool->reserved_ > pool->threshold_) pool->trim_locked(pool->threshold_);
  }
}

CUresult Pool::get(CUmemPool_attribute attribute, void* value) const {
  const std::lock_guard lock(mutex_);
  auto& word = *static_cast<std::uint64_t*>(value);
  switch (attribute) {
    case CU_MEMPOOL_ATTR_REUSE_FOLLOW_EVENT_DEPENDENCIES:
    case CU_MEMPOOL_ATTR_REUSE_ALLOW_OPPORTUNISTIC:
    case CU_MEMPOOL_ATTR_REUSE_ALLOW_INTERNAL_DEPENDENCIES:
      *static_cast<int*>(value) = reuse_.at(attribute);
      return CUDA_SUCCESS;
    case CU_MEMPOOL_ATTR_RELEASE_THRESHOLD:
      word = threshold_;
      return CUDA_SUCCESS;
    case CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT:
      word = reserved_;
      return CUDA_SUCCESS;
    case CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH:
      word = reserved_high_;
      return CUDA_SUCCESS;
    case CU_MEMPOOL_ATTR_USED_MEM_CURRENT:
      word = used_;
      return CUDA_SUCCESS;
    case CU_MEMPOOL_ATTR_USED_MEM_HIGH:
      word = used_high_;
      return CUDA_SUCCESS;
  }
  return CUDA_ERROR_INVALID_VALUE;
}

CUresult Pool::set(CUmemPool_attribute attribute, const void* value) {
  const std::lock_guard lock(mutex_);
  const auto word = [&] { return *static_cast<const std::uint64_t*>(value); };
  switch (attribute) {
    case CU_MEMPOOL_ATTR_REUSE_FOLLOW_EVENT_DEPENDENCIES:
    case CU_MEMPOOL_ATTR_REUSE_ALLOW_OPPORTUNISTIC:
    case CU_MEMPOOL_ATTR_REUSE_ALLOW_INTERNAL_DEPENDENCIES:
      reuse_[attribute] = *static_cast<const int*>(value) != 0;
      return CUDA_SUCCESS;
    case CU_MEMPOOL_ATTR_RELEASE_THRESHOLD:
      threshold_ = word();
      return CUDA_SUCCESS;
    case CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH:
      if (word() != 0) return CUDA_ERROR_INVALID_VALUE;  // only to start anew
      reserved_high_ = reserved_;
      return CUDA_SUCCESS;
    case CU_MEMPOOL_ATTR_USED_MEM_HIGH:
      if (word() != 0) return CUDA_ERROR_INVALID_VALUE;
      used_high_ = used_;
      return CUDA_SUCCESS;
    default:
      return CUDA_ERROR_INVALID_VALUE;
  }
}

bool Pool::at_home(const CUmemLocation& location) const {
  if (device_ != nullptr) return location.type == CU_MEM_LOCATION_TYPE_DEVICE && location.id == device_->ordinal;
  return location.type == CU_MEM_LOCATION_TYPE_HOST || location.type == CU_MEM_LOCATION_TYPE_HOST_NUMA ||
         location.type == CU_MEM_LOCATION_TYPE_HOST_NUMA_CURRENT;
}

CUresult Pool::set_access(const CUmemAccessDesc& access) {
  if (managed()) return CUDA_ERROR_INVALID_VALUE;  // nothing to be given
  if (at_home(access.location))
    return access.flags == CU_MEM_ACCESS_FLAGS_PROT_READWRITE ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
  if (access.location.type != CU_MEM_LOCATION_TYPE_DEVICE) return CUDA_ERROR_INVALID_VALUE;
  if (Driver::get().device(access.location.id) == nullptr) return CUDA_ERROR_INVALID_DEVICE;
  const std::lock_guard lock(mutex_);
  peer_access_[access.location.id] = access.flags;
  return CUDA_SUCCESS;
}

CUmemAccess_flags Pool::access(const CUmemLocation& location) const {
  if (managed() || at_home(location)) return CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
  if (location.type != CU_MEM_LOCATION_TYPE_DEVICE) return CU_MEM_ACCESS_FLAGS_PROT_NONE;
  const std::lock_guard lock(mutex_);
  const auto found = peer_access_.find(location.id);
  return found != peer_access_.end() ? found->second : CU_MEM_ACCESS_FLAGS_PROT_NONE;
}

}  // namespace tensor_fusion::sim::cuda
