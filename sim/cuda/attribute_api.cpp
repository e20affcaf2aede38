// cuDeviceGetAttribute: the whole table, from the card's profile.
#include "sim/cuda/device.h"
#include "sim/cuda/driver.h"
#include "sim/cuda/multicast.h"

namespace tensor_fusion::sim::cuda {
namespace {

int count(std::uint64_t value) { return static_cast<int>(std::min<std::uint64_t>(value, 0x7fffffff)); }

CUresult value_of(const Device& device, int attribute, int& out) {
  const auto& p = device.profile();
  const auto& card = device.card;
  const bool hopper = p.capability_major >= 9;
  const bool ampere = p.capability_major >= 8;
  switch (attribute) {
    case CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_BLOCK:
      out = count(p.max_threads_per_block);
      break;
    case CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_X:
    case CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_Y:
      out = 1024;
      break;
    case CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_Z:
      out = 64;
      break;
    case CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_X:
      out = 0x7fffffff;
      break;
    case CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_Y:
    case CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_Z:
      out = 65535;
      break;
    case CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK:
      out = count(p.shared_bytes_per_block);
      break;
    case CU_DEVICE_ATTRIBUTE_TOTAL_CONSTANT_MEMORY:
      out = 65536;
      break;
    case CU_DEVICE_ATTRIBUTE_WARP_SIZE:
      out = count(p.warp_size);
      break;
    case CU_DEVICE_ATTRIBUTE_MAX_PITCH:
      out = 0x7fffffff;
      break;
    case CU_DEVICE_ATTRIBUTE_MAX_REGISTERS_PER_BLOCK:
      out = count(p.registers_per_block);
      break;
    case CU_DEVICE_ATTRIBUTE_CLOCK_RATE:
      out = count(std::uint64_t{p.sm_clock_mhz} * 1000);
      break;
    case CU_DEVICE_ATTRIBUTE_TEXTURE_ALIGNMENT:
    case CU_DEVICE_ATTRIBUTE_SURFACE_ALIGNMENT:
      out = 512;
      break;
    case CU_DEVICE_ATTRIBUTE_TEXTURE_PITCH_ALIGNMENT:
      out = 32;
      break;
    case CU_DEVICE_ATTRIBUTE_GPU_OVERLAP:
      out = 1;
      break;
    case CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT:
      out = count(device.engine.sm_count);
      break;
    case CU_DEVICE_ATTRIBUTE_KERNEL_EXEC_TIMEOUT:
    case CU_DEVICE_ATTRIBUTE_INTEGRATED:
      out = 0;
      break;
    case CU_DEVICE_ATTRIBUTE_CAN_MAP_HOST_MEMORY:
      out = 1;
      break;
    case CU_DEVICE_ATTRIBUTE_COMPUTE_MODE:
      out = 0;
      break;
    case CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE1D_WIDTH:
    case CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE2D_WIDTH:
      out = 131072;
      break;
    case CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE2D_HEIGHT:
      out = 65536;
      break;
    case CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE3D_WIDTH:
    case CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE3D_HEIGHT:
    case CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE3D_DEPTH:
      out = 16384;
      break;
    case CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE2D_LAYERED_WIDTH:
    case CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE2D_LAYERED_HEIGHT:
      out = 32768;
      break;
    case CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE2D_LAYERED_LAYERS:
      out = 2048;
      break;
    case CU_DEVICE_ATTRIBUTE_CONCURRENT_KERNELS:
      out = 1;
      break;
    case CU_DEVICE_ATTRIBUTE_ECC_ENABLED:
      out = count(p.ecc);
      break;
    case CU_DEVICE_ATTRIBUTE_PCI_BUS_ID:
      out = count(card.pci_bus);
      break;
    case CU_DEVICE_ATTRIBUTE_PCI_DEVICE_ID:
      out = count(card.pci_device);
      break;
    case CU_DEVICE_ATTRIBUTE_PCI_DOMAIN_ID:
      out = count(card.pci_domain);
      break;
    case CU_DEVICE_ATTRIBUTE_TCC_DRIVER:
      out = 0;
      break;
    case CU_DEVICE_ATTRIBUTE_MEMORY_CLOCK_RATE:
      out = count(std::uint64_t{p.memory_clock_mhz} * 1000);
      break;
    case CU_DEVICE_ATTRIBUTE_GLOBAL_MEMORY_BUS_WIDTH:
      out = count(p.memory_bus_bits);
      break;
    case CU_DEVICE_ATTRIBUTE_L2_CACHE_SIZE:
      out = count(p.l2_bytes);
      break;
    case CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_MULTIPROCESSOR:
      out = count(p.max_threads_per_sm);
      break;
    case CU_DEVICE_ATTRIBUTE_ASYNC_ENGINE_COUNT:
      out = count(p.copy_engines);
      break;
    case CU_DEVICE_ATTRIBUTE_UNIFIED_ADDRESSING:
      out = 1;
      break;
    case CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR:
      out = count(p.capability_major);
      break;
    case CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR:
      out = count(p.capability_minor);
      break;
    case CU_DEVICE_ATTRIBUTE_STREAM_PRIORITIES_SUPPORTED:
    case CU_DEVICE_ATTRIBUTE_GLOBAL_L1_CACHE_SUPPORTED:
    case CU_DEVICE_ATTRIBUTE_LOCAL_L1_CACHE_SUPPORTED:
      out = 1;
      break;
    case CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_MULTIPROCESSOR:
      out = count(p.shared_bytes_per_sm);
      break;
    case CU_DEVICE_ATTRIBUTE_MAX_REGISTERS_PER_MULTIPROCESSOR:
      out = count(p.registers_per_sm);
      break;
    case CU_DEVICE_ATTRIBUTE_MANAGED_MEMORY:
      out = 1;
      break;
    case CU_DEVICE_ATTRIBUTE_MULTI_GPU_BOARD:
      out = 0;
      break;
    case CU_DEVICE_ATTRIBUTE_MULTI_GPU_BOARD_GROUP_ID:
      out = count(card.index);
      break;
    case CU_DEVICE_ATTRIBUTE_HOST_NATIVE_ATOMIC_SUPPORTED:
      out = 0;
      break;
    case CU_DEVICE_ATTRIBUTE_SINGLE_TO_DOUBLE_PRECISION_PERF_RATIO:
      out = p.capability_minor == 0 && ampere ? 2 : p.capability_major == 9 ? 2 : p.capability_minor == 9 ? 64 : 32;
      break;
    case CU_DEVICE_ATTRIBUTE_PAGEABLE_MEMORY_ACCESS:
      out = 0;
      break;
    case CU_DEVICE_ATTRIBUTE_CONCURRENT_MANAGED_ACCESS:
      out = 1;
      break;
    case CU_DEVICE_ATTRIBUTE_COMPUTE_PREEMPTION_SUPPORTED:
      out = 1;
      break;
    case CU_DEVICE_ATTRIBUTE_CAN_USE_HOST_POINTER_FOR_REGISTERED_MEM:
      out = 1;
      break;
    case CU_DEVICE_ATTRIBUTE_CAN_USE_STREAM_MEM_OPS_V1:
    case CU_DEVICE_ATTRIBUTE_CAN_USE_64_BIT_STREAM_MEM_OPS_V1:
    case CU_DEVICE_ATTRIBUTE_CAN_USE_STREAM_WAIT_VALUE_NOR_V1:
    case CU_DEVICE_ATTRIBUTE_CAN_USE_64_BIT_STREAM_MEM_OPS:
    case CU_DEVICE_ATTRIBUTE_CAN_USE_STREAM_WAIT_VALUE_NOR:
      out = 1;
      break;
    case CU_DEVICE_ATTRIBUTE_COOPERATIVE_LAUNCH:
      out = 1;
      break;
    case CU_DEVICE_ATTRIBUTE_COOPERATIVE_MULTI_DEVICE_LAUNCH:
      out = 0;
      break;
    case CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN:
      out = count(p.shared_bytes_per_block_optin);
      break;
    case CU_DEVICE_ATTRIBUTE_CAN_FLUSH_REMOTE_WRITES:
      out = 0;
      break;
    case CU_DEVICE_ATTRIBUTE_HOST_REGISTER_SUPPORTED:
      out = 1;
      break;
    case CU_DEVICE_ATTRIBUTE_PAGEABLE_MEMORY_ACCESS_USES_HOST_PAGE_TABLES:
    case CU_DEVICE_ATTRIBUTE_DIRECT_MANAGED_MEM_ACCESS_FROM_HOST:
      out = 0;
      break;
    case CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED:
    case CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR_SUPPORTED:
      out = 1;
      break;
    case CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_WIN32_HANDLE_SUPPORTED:
    case CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_WIN32_KMT_HANDLE_SUPPORTED:
      out = 0;
      break;
    case CU_DEVICE_ATTRIBUTE_MAX_BLOCKS_PER_MULTIPROCESSOR:
      out = count(p.max_blocks_per_sm);
      break;
    case CU_DEVICE_ATTRIBUTE_GENERIC_COMPRESSION_SUPPORTED:
      out = 0;
      break;
    case CU_DEVICE_ATTRIBUTE_MAX_PERSISTING_L2_CACHE_SIZE:
      out = ampere ? count(p.l2_bytes / 16 * 10) : 0;
      break;
    case CU_DEVICE_ATTRIBUTE_MAX_ACCESS_POLICY_WINDOW_SIZE:
      out = ampere ? count(p.l2_bytes) : 0;
      break;
    case CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_WITH_CUDA_VMM_SUPPORTED:
      out = 0;
      break;
    case CU_DEVICE_ATTRIBUTE_RESERVED_SHARED_MEMORY_PER_BLOCK:
      out = count(p.shared_bytes_reserved_per_block);
      break;
    case CU_DEVICE_ATTRIBUTE_SPARSE_CUDA_ARRAY_SUPPORTED:
      out = 1;
      break;
    case CU_DEVICE_ATTRIBUTE_READ_ONLY_HOST_REGISTER_SUPPORTED:
      out = 1;
      break;
    case CU_DEVICE_ATTRIBUTE_TIMELINE_SEMAPHORE_INTEROP_SUPPORTED:
      out = 0;
      break;
    case CU_DEVICE_ATTRIBUTE_MEMORY_POOLS_SUPPORTED:
      out = 1;
      break;
    case CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_SUPPORTED:
    case CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_FLUSH_WRITES_OPTIONS:
    case CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_WRITES_ORDERING:
      out = 0;
      break;
    case CU_DEVICE_ATTRIBUTE_MEMPOOL_SUPPORTED_HANDLE_TYPES:
      out = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
      break;
    case CU_DEVICE_ATTRIBUTE_CLUSTER_LAUNCH:
      out = hopper;
      break;
    case CU_DEVICE_ATTRIBUTE_DEFERRED_MAPPING_CUDA_ARRAY_SUPPORTED:
      out = 0;
      break;
    case CU_DEVICE_ATTRIBUTE_DMA_BUF_SUPPORTED:
      out = 1;
      break;
    case CU_DEVICE_ATTRIBUTE_IPC_EVENT_SUPPORTED:
      out = 1;
      break;
    case CU_DEVICE_ATTRIBUTE_MEM_SYNC_DOMAIN_COUNT:
      out = hopper ? 4 : 1;
      break;
    case CU_DEVICE_ATTRIBUTE_TENSOR_MAP_ACCESS_SUPPORTED:
      out = 0;
      break;
    case CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_FABRIC_SUPPORTED:
      out = 0;
      break;
    case CU_DEVICE_ATTRIBUTE_UNIFIED_FUNCTION_POINTERS:
      out = 0;
      break;
    case CU_DEVICE_ATTRIBUTE_NUMA_CONFIG:
      out = 0;
      break;
    case CU_DEVICE_ATTRIBUTE_NUMA_ID:
      out = -1;
      break;
    case CU_DEVICE_ATTRIBUTE_MULTICAST_SUPPORTED:
      out = can_multicast(device) ? 1 : 0;
      break;
    case CU_DEVICE_ATTRIBUTE_MPS_ENABLED:
      out = 0;
      break;
    case CU_DEVICE_ATTRIBUTE_HOST_NUMA_ID:
      out = card.numa_node;
      break;
    case CU_DEVICE_ATTRIBUTE_GPU_PCI_DEVICE_ID:
      out = static_cast<int>(p.pci_device_id);
      break;
    case CU_DEVICE_ATTRIBUTE_GPU_PCI_SUBSYSTEM_ID:
      out = static_cast<int>(p.pci_subsystem_id);
      break;
    case CU_DEVICE_ATTRIBUTE_HOST_NUMA_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED:
    case CU_DEVICE_ATTRIBUTE_HOST_NUMA_MEMORY_POOLS_SUPPORTED:
    case CU_DEVICE_ATTRIBUTE_HOST_MEMORY_POOLS_SUPPORTED:
      out = 1;
      break;
    case CU_DEVICE_ATTRIBUTE_HOST_NUMA_MULTINODE_IPC_SUPPORTED:
      out = 0;
      break;
    default:
      if (attribute < 1 || attribute > CU_DEVICE_ATTRIBUTE_MAX) return CUDA_ERROR_INVALID_VALUE;
      // Texture and surface limits of single shapes, and attributes of what this driver does not have.
      out = (attribute >= 42 && attribute <= 49) || (attribute >= 52 && attribute <= 74) || attribute == 77 ? 16384 : 0;
  }
  return CUDA_SUCCESS;
}

}  // namespace

TF_API(cuDeviceGetAttribute, (int* out, int attribute, CUdevice ordinal)) {
  TF_TRY(enter("cuDeviceGetAttribute"));
  if (out == nullptr) return CUDA_ERROR_INVALID_VALUE;
  Device* device = nullptr;
  TF_TRY(find_device(ordinal, device));
  return value_of(*device, attribute, *out);
}

}  // namespace tensor_fusion::sim::cuda
