#include "sim/cuda/command.h"
#include "sim/cuda/driver.h"

namespace tensor_fusion::sim::cuda {
namespace {
thread_local bool in_callback = false;
}

bool inside_callback() { return in_callback; }

CUresult enqueue_host(Stream& stream, std::shared_ptr<const HostCommand> command) {
  Operation operation;
  stream.order(operation.needs);
  operation.before = stream.last();
  operation.at_device_time = true;
  device::Work gate;
  gate.kind = device::WorkKind::gate;
  operation.ticket = stream.submit(gate);
  operation.finish = Operation::Finish::open_gate;
  operation.run = [command, context = stream.context().shared_from_this()](bool skip) -> std::uint64_t {
    in_callback = true;
    if (command->callback != nullptr) {
      const CUresult status = context->destroyed() ? CUDA_ERROR_CONTEXT_IS_DESTROYED : context->sticky();
      command->callback(command->callback_stream, status, command->user_data);
    } else if (!skip) {
      command->function(command->user_data);
    }
    in_callback = false;
    return device::now_ns();
  };
  stream.push(std::move(operation));
  return CUDA_SUCCESS;
}

TF_STREAM_API(cuLaunchHostFunc, (CUstream stream, CUhostFn function, void* user_data), {
  TF_TRY(enter("cuLaunchHostFunc"));
  Stream* target = nullptr;
  TF_TRY(find_work_stream(stream, kFlavour, target));
  if (function == nullptr) return CUDA_ERROR_INVALID_VALUE;
  return issue(*target, std::make_shared<const HostCommand>(HostCommand{function, nullptr, nullptr, user_data}));
})

TF_STREAM_API(cuStreamAddCallback, (CUstream stream, CUstreamCallback callback, void* user_data, unsigned flags), {
  TF_TRY(enter("cuStreamAddCallback"));
  Stream* target = nullptr;
  TF_TRY(find_work_stream(stream, kFlavour, target));
  if (callback == nullptr || flags != 0) return CUDA_ERROR_INVALID_VALUE;
  if (target->capturing) return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
  return issue(*target, std::make_shared<const HostCommand>(HostCommand{nullptr, callback, stream, user_data}));
})

}  // namespace tensor_fusion::sim::cuda
