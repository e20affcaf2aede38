#pragma once
// A stream-ordered memory pool: bytes reserved from a device, or from the host, in chunks, handed out and taken back in
// stream order. Freed bytes can be had again at once by the stream that freed them, by others when the device has
// passed that point; they stay reserved (and charged) up to the release threshold, which is looked at when the program
// synchronises. All reserved bytes stay accessible to kernels, so that one queued before a free still finds its memory.
// Thread-safe.
#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <optional>

#include "sim/cuda/abi.h"
#include "sim/cuda/handle.h"
#include "sim/device/work.h"

namespace tensor_fusion::sim::cuda {

class Context;
class Device;
class Stream;

class Pool : public std::enable_shared_from_this<Pool> {
 public:
  static constexpr HandleKind kHandleKind = HandleKind::pool;

  // Without an owner: of the host.
  Pool(Device* owner, const CUmemPoolProps& properties);
  ~Pool();
  Pool(const Pool&) = delete;
  Pool& operator=(const Pool&) = delete;
  static std::shared_ptr<Pool> make_default(Device& owner);

  CUresult allocate(std::uint64_t bytes, const Stream& stream, CUdeviceptr& out);  // enters the address space
  CUresult free(CUdeviceptr address, const Stream* stream);  // without a stream: nobody uses it any more
  // The reserved bytes around an address, of any pool that the device may use.
  struct Reach {
    std::uint64_t begin, end;
  };
  static std::optional<Reach> reach(std::uint64_t address, const Device& device);
  void trim(std::uint64_t keep_bytes);  // gives unused chunks back down to keep_bytes reserved
  // What happens when the program synchronises: every pool of the device goes back to its threshold.
  static void trim_all(const Device& device);

  CUresult get(CUmemPool_attribute attribute, void* value) const;
  CUresult set(CUmemPool_attribute attribute, const void* value);
  CUresult set_access(const CUmemAccessDesc& access);
  [[nodiscard]] CUmemAccess_flags access(const CUmemLocation& location) const;

  [[nodiscard]] Device* device() const { return device_; }  // null: of the host
  // Within everybody's reach, as managed memory is.
  [[nodiscard]] bool managed() const { return properties_.allocType == CU_MEM_ALLOCATION_TYPE_MANAGED; }
  [[nodiscard]] const CUmemPoolProps& properties() const { return properties_; }
  [[nodiscard]] CUmemoryPool handle() const { return as_handle<CUmemoryPool>(handle_value); }
  std::uint64_t handle_value = 0;
  bool is_default = false;

  // Names a pool over all processes. An imported one gives out nothing; single allocations of its owner are opened in
  // it.
  struct Name {
    std::uint32_t pid;
    std::uint32_t number;
    bool operator==(const Name&) const = default;
  };
  [[nodiscard]] Name name() const;
  [[nodiscard]] bool exportable() const {
    return !imported && (properties_.handleTypes & CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR) != 0;
  }
  std::optional<Name> imported;  // of the owner's

 private:
  // Free bytes, and the point of a stream's work until which they may still be in use.
  struct Free {
    std::uint64_t bytes = 0;
    std::weak_ptr<Context> context;
    std::uint64_t stream = 0;  // its id, 0 = nobody uses them
    device::Ticket ticket = 0;
    bool settle();  // true: free for all (from now on also without asking)
  };
  struct Chunk {
    std::uint64_t bytes = 0, used = 0;
    std::map<std::uint64_t, Free> free;  // by address
  };
  bool take(std::uint64_t bytes, std::uint64_t stream, std::uint64_t& address);
  void put(Chunk& chunk, std::uint64_t address, Free free);
  CUresult grow(std::uint64_t bytes);
  CUresult reserve(std::uint64_t bytes, std::uint64_t& base);  // a chunk
  void give_back(std::uint64_t base, std::uint64_t bytes);
  [[nodiscard]] bool at_home(const CUmemLocation& location) const;
  void trim_locked(std::uint64_t keep_bytes);

  Device* const device_;
  const CUmemPoolProps properties_;
  const std::uint32_t number_;
  mutable std::mutex mutex_;
  std::map<std::uint64_t, Chunk> chunks_;          // by address
  std::map<std::uint64_t, std::uint64_t> blocks_;  // handed out: address → bytes
  std::map<int, CUmemAccess_flags> peer_access_;
  std::uint64_t reserved_ = 0, reserved_high_ = 0, used_ = 0, used_high_ = 0, threshold_ = 0;
  std::map<int, int> reuse_{{1, 1}, {2, 1}, {3, 1}};
};

[[nodiscard]] HandleTable<Pool>& pools();

}  // namespace tensor_fusion::sim::cuda
