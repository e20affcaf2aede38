#include "sim/cuda/command.h"

#include "sim/cuda/capture.h"

namespace tensor_fusion::sim::cuda {

void enqueue_effect(Stream& stream, device::Work work, bool quick,
                    std::move_only_function<std::uint64_t(bool skip)> run) {
  std::vector<Need> needs;
  stream.order(needs);
  const bool gate = work.kind == device::WorkKind::gate;
  if (quick && needs.empty() && stream.queue()->idle()) {
    work.duration_ns = run(false);
    if (gate) work.kind = device::WorkKind::marker;  // it has happened
    stream.submit(work);
    return;
  }
  if (!gate) work.duration_ns = device::kUnknownNs;
  Operation operation;
  operation.finish = gate ? Operation::Finish::open_gate : Operation::Finish::publish;
  operation.ticket = stream.submit(work);
  operation.needs = std::move(needs);
  operation.run = std::move(run);
  stream.push(std::move(operation));
}

CUresult enqueue(Stream& stream, const Command& command) {
  return std::visit(
      [&]<typename T>(const std::shared_ptr<const T>& what) -> CUresult {
        if constexpr (std::is_same_v<T, KernelCommand>)
          return enqueue_kernel(stream, what);
        else if constexpr (std::is_same_v<T, CopyCommand>)
          return enqueue_copy(stream, what, what->bytes() <= kQuickBytes);
        else if constexpr (std::is_same_v<T, FillCommand>)
          return enqueue_fill(stream, what);
        else if constexpr (std::is_same_v<T, HostCommand>)
          return enqueue_host(stream, what);
        else if constexpr (std::is_same_v<T, RecordCommand>)
          return what->event->record(stream);
        else if constexpr (std::is_same_v<T, WaitCommand>)
          return what->event->make_wait(stream);
        else if constexpr (std::is_same_v<T, AllocCommand>)
          return enqueue_alloc(stream, *what);
        else if constexpr (std::is_same_v<T, FreeCommand>)
          return enqueue_free(stream, *what);
        else if constexpr (std::is_same_v<T, MemoryOpsCommand>)
          return enqueue_memory_operations(stream, *what);
        else if constexpr (std::is_same_v<T, ConditionalCommand>)
          return enqueue_conditional(stream, *what);
        else
          return CUDA_SUCCESS;  // empty; children are taken apart by the plan of their graph
      },
      command);
}

CUresult issue(Stream& stream, Command command) {
  const std::lock_guard lock(stream.mutex());
  if (stream.capturing) [[unlikely]]
    return capture_command(stream, std::move(command));
  TF_TRY(check_capture_conflict(stream));
  return enqueue(stream, command);
}

}  // namespace tensor_fusion::sim::cuda
