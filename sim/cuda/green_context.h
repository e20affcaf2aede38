#pragma once
// A green context: the device's primary context narrowed to some of its multiprocessors. It shares memory, modules and
// the seat on the device's clock with the primary context, which it keeps alive; streams made in it, its default stream
// among them, never fill more than its part. As a CUcontext it is a second handle of the primary context. Thread-safe.
#include <cstdint>
#include <memory>

#include "sim/cuda/abi.h"
#include "sim/cuda/context.h"
#include "sim/cuda/handle.h"
#include "sim/cuda/multiprocessors.h"

namespace tensor_fusion::sim::cuda {

class GreenContext : public std::enable_shared_from_this<GreenContext> {
 public:
  static constexpr HandleKind kHandleKind = HandleKind::green_context;
  GreenContext(std::shared_ptr<Context> primary, const Multiprocessors& part);
  static CUresult create(Device& device, const Multiprocessors& part, std::shared_ptr<GreenContext>& out);
  // Waits for its work and takes its handles and streams away; lets go of the primary context.
  CUresult destroy();
  // Only its handles: the primary context is going.
  void forget();

  [[nodiscard]] Context& context() const { return *context_; }
  [[nodiscard]] bool belongs_to(const Context& context) const { return context_.get() == &context; }
  [[nodiscard]] const Multiprocessors& part() const { return part_; }
  [[nodiscard]] unsigned count() const { return count_; }
  [[nodiscard]] float share() const { return share_; }  // of the device's
  [[nodiscard]] Stream& default_stream() const { return *default_stream_; }
  CUresult add_stream(unsigned flags, int priority, CUstream& out);
  [[nodiscard]] std::vector<std::shared_ptr<Stream>> streams() const;  // the default one first
  [[nodiscard]] CUcontext as_context();
  std::uint64_t handle_value = 0;

 private:
  const std::shared_ptr<Context> context_;
  const Multiprocessors part_;
  const unsigned count_;
  const float share_;
  std::shared_ptr<Stream> default_stream_;
  std::mutex mutex_;
  CUcontext as_context_ = nullptr;
};

[[nodiscard]] HandleTable<GreenContext>& green_contexts();
// What the CUcontext is of; null for one that is not green.
[[nodiscard]] std::shared_ptr<GreenContext> green_of(CUcontext handle);
// Whether the calling thread's current context is a green one.
[[nodiscard]] std::shared_ptr<GreenContext> current_green();

}  // namespace tensor_fusion::sim::cuda
