#include "sim/cuda/pool.h"

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

Pool::Pool(Device& owner, const CUmemPoolProps& properties)
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
  for (const auto& [address, chunk] : chunks_) {
    device_.uncut(address, chunk.bytes);
    device_.uncharge(chunk.bytes);
  }
}

std::shared_ptr<Pool> Pool::make_default(Device& owner) {
  CUmemPoolProps properties{};
  properties.allocType = CU_MEM_ALLOCATION_TYPE_PINNED;
  properties.location = {CU_MEM_LOCATION_TYPE_DEVICE, owner.ordinal};
  auto pool = std::make_shared<Pool>(owner, properties);
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
  std::uint64_t chunk_bytes = round_up(bytes, kChunkBytes);
  CUresult charged = CUDA_ERROR_OUT_OF_MEMORY;
  if (chunk_bytes < kPoolChunk && properties_.maxSize == 0) {
    charged = device_.charge(kPoolChunk);
    if (charged == CUDA_SUCCESS) chunk_bytes = kPoolChunk;
  }
  if (charged != CUDA_SUCCESS) charged = device_.charge(chunk_bytes);
  if (charged != CUDA_SUCCESS) {  // before failing, what lies unused
    trim_locked(0);
    TF_TRY(device_.charge(chunk_bytes));
  }
  std::uint64_t base = 0;
  if (const CUresult cut = device_.cut(chunk_bytes, base, kChunkBytes); cut != CUDA_SUCCESS) {
    device_.uncharge(chunk_bytes);
    return cut;
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
  if (bytes > device_.engine.memory_bytes) return CUDA_ERROR_OUT_OF_MEMORY;
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
  allocation->device = &device_;
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
    device_.uncut(it->first, it->second.bytes);
    device_.uncharge(it->second.bytes);
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
    if (&pool->device_ != &device) continue;
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

CUresult Pool::set_access(const CUmemAccessDesc& access) {
  if (access.location.type != CU_MEM_LOCATION_TYPE_DEVICE) return CUDA_ERROR_INVALID_VALUE;
  if (Driver::get().device(access.location.id) == nullptr) return CUDA_ERROR_INVALID_DEVICE;
  if (access.location.id == device_.ordinal && access.flags == CU_MEM_ACCESS_FLAGS_PROT_NONE)
    return CUDA_ERROR_INVALID_VALUE;
  const std::lock_guard lock(mutex_);
  peer_access_[access.location.id] = access.flags;
  return CUDA_SUCCESS;
}

CUmemAccess_flags Pool::access(const CUmemLocation& location) const {
  if (location.type != CU_MEM_LOCATION_TYPE_DEVICE) return CU_MEM_ACCESS_FLAGS_PROT_NONE;
  if (location.id == device_.ordinal) return CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
  const std::lock_guard lock(mutex_);
  const auto found = peer_access_.find(location.id);
  return found != peer_access_.end() ? found->second : CU_MEM_ACCESS_FLAGS_PROT_NONE;
}

}  // namespace tensor_fusion::sim::cuda
