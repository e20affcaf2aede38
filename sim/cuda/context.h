#pragma once
// A CUDA context: the streams, memory and settings of one program on one device, and its seat on the device's clock.
// The primary context of a device is one of these, shared by reference count. A failed kernel poisons it: sticky() is
// then the answer of every later call. Thread-safe; the stack of current contexts belongs to each thread.
#include <array>
#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <vector>

#include "sim/cuda/abi.h"
#include "sim/cuda/handle.h"
#include "sim/device/context.h"

namespace tensor_fusion::sim::cuda {

class Device;
class Stream;

class Context : public std::enable_shared_from_this<Context> {
 public:
  static constexpr HandleKind kHandleKind = HandleKind::context;

  Context(Device& owner, device::Context timing, unsigned flags, bool primary);
  ~Context();
  Context(const Context&) = delete;
  Context& operator=(const Context&) = delete;

  // A context with its default stream and its handle: a new one, or the one that a predecessor of it had.
  static CUresult create(Device& owner, unsigned flags, bool primary, std::uint64_t known_handle,
                         std::shared_ptr<Context>& out);
  // Cancels and drops all work, then all that belongs to the context: streams, events, modules, arrays, memory. Their
  // handles name nothing afterwards. The object stays until the last user lets go.
  void destroy();

  [[nodiscard]] Device& device() const { return device_; }
  [[nodiscard]] device::Context& timing() { return timing_; }
  [[nodiscard]] CUcontext handle() const { return as_handle<CUcontext>(handle_); }
  [[nodiscard]] std::uint64_t id() const { return id_; }
  [[nodiscard]] bool primary() const { return primary_; }
  [[nodiscard]] bool destroyed() const { return destroyed_.load(std::memory_order_acquire); }
  [[nodiscard]] const std::atomic<bool>& cancel() const { return destroyed_; }

  [[nodiscard]] CUresult sticky() const { return sticky_.load(std::memory_order_acquire); }
  void poison(CUresult error);  // the first one stays

  [[nodiscard]] Stream& legacy_stream() const { return *legacy_; }
  Stream& thread_stream();  // the calling thread's default stream
  void add_stream(const std::shared_ptr<Stream>& stream);
  void remove_stream(const Stream* stream);
  // All streams that may have work, also of destroyed ones; the legacy one first.
  [[nodiscard]] std::vector<std::shared_ptr<Stream>> streams() const;
  // Streams that order themselves with the legacy stream; empty (and cheap to ask) when there is none.
  [[nodiscard]] bool has_blocking_streams() const { return blocking_streams_.load(std::memory_order_relaxed) != 0; }
  // Streams for work beside what a program's stream does, idle ones if there are. They live as long as the context.
  [[nodiscard]] std::vector<std::shared_ptr<Stream>> branches(std::size_t count);
  unsigned pick_lane();
  void drop_lane(unsigned lane);
  [[nodiscard]] std::recursive_mutex& lane_mutex(unsigned lane) { return lane_mutexes_[lane]; }

  // While a thread sleeps on the context's clock: destroy() lets it out first.
  class Waiting {
   public:
    explicit Waiting(Context& context) : context_(context) { ++context_.waiting_; }
    ~Waiting() { --context_.waiting_; }
    Waiting(const Waiting&) = delete;
    Waiting& operator=(const Waiting&) = delete;

   private:
    Context& context_;
  };

  // Waits for all work of all streams. Sticky errors come out of here.
  CUresult synchronize();

  // Settings. Plain words read and written as they are.
  std::atomic<unsigned> flags;
  std::array<std::atomic<std::size_t>, 8> limits{};
  std::atomic<int> cache_config{0}, shared_config{1};
  std::atomic<unsigned> attach_count{1};

  [[nodiscard]] bool may_access(const Device& other) const;
  CUresult enable_peer(Context& peer);
  CUresult disable_peer(Context& peer);

 private:
  Device& device_;
  device::Context timing_;
  std::uint64_t handle_ = 0;
  const std::uint64_t id_;
  const bool primary_;
  std::atomic<bool> destroyed_{false};
  std::atomic<unsigned> waiting_{0};
  std::atomic<CUresult> sticky_{CUDA_SUCCESS};

  void drop_belongings();
  // Retired streams whose work is over; by the holder of mutex_, who lets go of it before he lets go of them.
  std::vector<std::shared_ptr<Stream>> take_finished() const;

  mutable std::mutex mutex_;
  std::shared_ptr<Stream> legacy_;
  std::vector<std::shared_ptr<Stream>> streams_;
  mutable std::vector<std::shared_ptr<Stream>> retired_;  // destroyed by the program, or of threads that have ended
  mutable std::atomic<unsigned> blocking_streams_{0};     // of both lists
  std::vector<std::shared_ptr<Stream>> branches_;
  std::array<unsigned, device::kLanes> lane_users_{};
  std::array<std::recursive_mutex, device::kLanes> lane_mutexes_;
  std::set<const Device*> peers_;
};

[[nodiscard]] HandleTable<Context>& contexts();
// Every live context of the process.
[[nodiscard]] std::vector<std::shared_ptr<Context>> all_contexts();

// The calling thread's stack.
[[nodiscard]] CUcontext current_handle();
// nullptr when nothing is current; a destroyed one is told by Context::destroyed().
[[nodiscard]] Context* current_context();
void set_current(CUcontext handle);
void push_current(CUcontext handle);
[[nodiscard]] bool pop_current(CUcontext& out);

}  // namespace tensor_fusion::sim::cuda
