// Waiting for a value in memory and writing one, in stream order and at device time.
#include <atomic>

#include "sim/cuda/command.h"
#include "sim/cuda/driver.h"

namespace tensor_fusion::sim::cuda {
namespace {

template <typename T>
bool holds(T value, T wanted, unsigned flags) {
  switch (flags & 3U) {
    case CU_STREAM_WAIT_VALUE_GEQ:
      return static_cast<std::make_signed_t<T>>(value - wanted) >= 0;
    case CU_STREAM_WAIT_VALUE_EQ:
      return value == wanted;
    case CU_STREAM_WAIT_VALUE_AND:
      return (value & wanted) != 0;
    default:
      return static_cast<T>(~(value | wanted)) != 0;
  }
}

template <typename T>
T load(CUdeviceptr address) {
  return std::atomic_ref(*reinterpret_cast<T*>(address)).load(std::memory_order_acquire);
}
template <typename T>
void store(CUdeviceptr address, T value) {
  std::atomic_ref(*reinterpret_cast<T*>(address)).store(value, std::memory_order_release);
}

bool is_wait(CUstreamBatchMemOpType type) {
  return type == CU_STREAM_MEM_OP_WAIT_VALUE_32 || type == CU_STREAM_MEM_OP_WAIT_VALUE_64;
}
bool is_write(CUstreamBatchMemOpType type) {
  return type == CU_STREAM_MEM_OP_WRITE_VALUE_32 || type == CU_STREAM_MEM_OP_WRITE_VALUE_64;
}

}  // namespace

CUresult check_memory_operations(const std::vector<CUstreamBatchMemOpParams>& operations) {
  for (const auto& operation : operations) {
    const bool wide =
        operation.operation == CU_STREAM_MEM_OP_WAIT_VALUE_64 || operation.operation == CU_STREAM_MEM_OP_WRITE_VALUE_64;
    if (is_wait(operation.operation) || is_write(operation.operation)) {
      const std::uint64_t size = wide ? 8 : 4;
      if (operation.value.address % size != 0) return CUDA_ERROR_INVALID_VALUE;
      const auto allocation = Driver::get().addresses().find(operation.value.address);
      if (!allocation || operation.value.address + size > allocation->base + allocation->extent)
        return CUDA_ERROR_INVALID_VALUE;
    } else if (operation.operation != CU_STREAM_MEM_OP_FLUSH_REMOTE_WRITES &&
               operation.operation != CU_STREAM_MEM_OP_BARRIER) {
      return CUDA_ERROR_INVALID_VALUE;
    }
  }
  return CUDA_SUCCESS;
}

CUresult enqueue_memory_operations(Stream& stream, const MemoryOpsCommand& command) {
  for (const auto& asked : command.operations) {
    if (!is_wait(asked.operation) && !is_write(asked.operation)) continue;
    Operation operation;
    stream.order(operation.needs);
    operation.before = stream.last();
    operation.at_device_time = true;
    device::Work gate;
    gate.kind = device::WorkKind::gate;
    operation.ticket = stream.submit(gate);
    operation.finish = Operation::Finish::open_gate;
    if (is_wait(asked.operation)) {
      operation.ready = [asked] {
        return asked.operation == CU_STREAM_MEM_OP_WAIT_VALUE_32
                   ? holds(load<std::uint32_t>(asked.value.address), asked.value.value, asked.value.flags)
                   : holds(load<std::uint64_t>(asked.value.address), asked.value.value64, asked.value.flags);
      };
      operation.run = [](bool) { return device::now_ns(); };
    } else {
      operation.run = [asked](bool skip) -> std::uint64_t {
        if (skip) return 0;
        if (asked.operation == CU_STREAM_MEM_OP_WRITE_VALUE_32)
          store(asked.value.address, asked.value.value);
        else
          store(asked.value.address, asked.value.value64);
        return 0;  // at the device time it was reached
      };
    }
    stream.push(std::move(operation));
  }
  return CUDA_SUCCESS;
}

namespace {
CUresult one_operation(const char* symbol, CUstream stream, Flavour flavour, CUstreamBatchMemOpType type,
                       CUdeviceptr address, std::uint64_t value, unsigned flags) {
  TF_TRY(enter(symbol));
  Stream* target = nullptr;
  TF_TRY(find_work_stream(stream, flavour, target));
  CUstreamBatchMemOpParams operation{};
  operation.value.operation = type;
  operation.value.address = address;
  operation.value.value64 = value;
  operation.value.flags = flags;
  auto command = std::make_shared<MemoryOpsCommand>();
  command->operations.push_back(operation);
  command->context = target->context().handle();
  TF_TRY(check_memory_operations(command->operations));
  return issue(*target, std::shared_ptr<const MemoryOpsCommand>(std::move(command)));
}

CUresult many_operations(CUstream stream, Flavour flavour, unsigned count, CUstreamBatchMemOpParams* operations,
                         unsigned flags) {
  TF_TRY(enter("cuStreamBatchMemOp"));
  Stream* target = nullptr;
  TF_TRY(find_work_stream(stream, flavour, target));
  if (count == 0 || count > 256 || operations == nullptr || flags != 0) return CUDA_ERROR_INVALID_VALUE;
  auto command = std::make_shared<MemoryOpsCommand>();
  command->operations.assign(operations, operations + count);
  command->context = target->context().handle();
  TF_TRY(check_memory_operations(command->operations));
  return issue(*target, std::shared_ptr<const MemoryOpsCommand>(std::move(command)));
}
}  // namespace

#define TF_MEMORY_OPERATION(name, symbol, type, width)                                                    \
  TF_STREAM_API(name, (CUstream stream, CUdeviceptr address, std::uint##width##_t value, unsigned flags), \
                { return one_operation(symbol, stream, kFlavour, type, address, value, flags); })

TF_MEMORY_OPERATION(cuStreamWaitValue32, "cuStreamWaitValue32", CU_STREAM_MEM_OP_WAIT_VALUE_32, 32)
TF_MEMORY_OPERATION(cuStreamWaitValue32_v2, "cuStreamWaitValue32", CU_STREAM_MEM_OP_WAIT_VALUE_32, 32)
TF_MEMORY_OPERATION(cuStreamWaitValue64, "cuStreamWaitValue64", CU_STREAM_MEM_OP_WAIT_VALUE_64, 64)
TF_MEMORY_OPERATION(cuStreamWaitValue64_v2, "cuStreamWaitValue64", CU_STREAM_MEM_OP_WAIT_VALUE_64, 64)
TF_MEMORY_OPERATION(cuStreamWriteValue32, "cuStreamWriteValue32", CU_STREAM_MEM_OP_WRITE_VALUE_32, 32)
TF_MEMORY_OPERATION(cuStreamWriteValue32_v2, "cuStreamWriteValue32", CU_STREAM_MEM_OP_WRITE_VALUE_32, 32)
TF_MEMORY_OPERATION(cuStreamWriteValue64, "cuStreamWriteValue64", CU_STREAM_MEM_OP_WRITE_VALUE_64, 64)
TF_MEMORY_OPERATION(cuStreamWriteValue64_v2, "cuStreamWriteValue64", CU_STREAM_MEM_OP_WRITE_VALUE_64, 64)

TF_STREAM_API(cuStreamBatchMemOp,
              (CUstream stream, unsigned count, CUstreamBatchMemOpParams* operations, unsigned flags),
              { return many_operations(stream, kFlavour, count, operations, flags); })
TF_STREAM_API(cuStreamBatchMemOp_v2,
              (CUstream stream, unsigned count, CUstreamBatchMemOpParams* operations, unsigned flags),
              { return many_operations(stream, kFlavour, count, operations, flags); })

}  // namespace tensor_fusion::sim::cuda
