// Modules and libraries: code and global variables, whose size only the driver knows. Nothing is booked for them: the
// driver's account shows them, and a slice that is over its limit by them loads no more. So that none gets far over it
// between two readings, what the card has less after a load is counted until the account is read.
#include "guest/limiter/hooks/charge.h"

namespace tensor_fusion::guest::limiter {
namespace {

constexpr std::uint64_t kSlack = 32ull << 20;   // what is had otherwise may round up to so much
constexpr std::uint64_t kCode = 32ull << 20;    // of kernels, for a program whose slice is over its limit already
constexpr std::uint64_t kUnread = 16ull << 20;  // after so much the account is read at once

bool is_over(const Device& device) {
  const Ledger::View view = Ledger::view(device);
  return !view.unlimited && Ledger::used(device) > view.limit + kSlack;
}

std::uint64_t left_on_card() {
  std::size_t free_bytes = 0, total_bytes = 0;
  return TF_REAL(cuMemGetInfo_v2)(&free_bytes, &total_bytes) == CUDA_SUCCESS ? free_bytes : 0;
}

// Whether a load may stay that took so much of the card. One whose limit was lowered below what it holds goes on with
// kernels that it has not loaded yet, and with no more.
bool may_stay(Device& device, std::uint64_t grown) {
  Loads& loads = attachment()->loads[&device - attachment()->devices];
  if (loads.unread.fetch_add(grown, std::memory_order_relaxed) + grown >= kUnread) {
    loads.unread.store(0, std::memory_order_relaxed);
    ask_for_reading(device);
  }
  if (!is_over(device)) {
    loads.while_over.store(0, std::memory_order_relaxed);
    return true;
  }
  if (loads.while_over.fetch_add(grown, std::memory_order_relaxed) + grown <= kCode) return true;
  loads.while_over.fetch_sub(grown, std::memory_order_relaxed);
  ask_for_reading(device);  // it may have given something back since
  return !is_over(device);
}

// `undo()` gives back what may not stay.
template <class Call, class Undo>
CUresult load(Call call, Undo undo) {
  Device* device = current_device();
  if (device == nullptr || Ledger::view(*device).unlimited) return call();
  const std::uint64_t before = left_on_card();
  const CUresult result = call();
  if (result != CUDA_SUCCESS) return result;
  const std::uint64_t after = left_on_card();
  const std::uint64_t grown = before > after ? before - after : 0;
  if (may_stay(*device, grown)) return result;
  undo();
  refuse(*device, grown, Room::full);
  return CUDA_ERROR_OUT_OF_MEMORY;
}

}  // namespace

TF_ENTRY(cuModuleLoad, (CUmodule * module, const char* file)) {
  return load([&] { return TF_REAL(cuModuleLoad)(module, file); }, [&] { TF_REAL(cuModuleUnload)(*module); });
}
TF_ENTRY(cuModuleLoadData, (CUmodule * module, const void* image)) {
  return load([&] { return TF_REAL(cuModuleLoadData)(module, image); }, [&] { TF_REAL(cuModuleUnload)(*module); });
}
TF_ENTRY(cuModuleLoadDataEx,
         (CUmodule * module, const void* image, unsigned count, CUjit_option* options, void** values)) {
  return load([&] { return TF_REAL(cuModuleLoadDataEx)(module, image, count, options, values); },
              [&] { TF_REAL(cuModuleUnload)(*module); });
}
TF_ENTRY(cuModuleLoadFatBinary, (CUmodule * module, const void* image)) {
  return load([&] { return TF_REAL(cuModuleLoadFatBinary)(module, image); }, [&] { TF_REAL(cuModuleUnload)(*module); });
}
TF_ENTRY(cuLibraryLoadData, (CUlibrary * library, const void* code, CUjit_option* options, void** values,
                             unsigned count, void* library_options, void** library_values, unsigned library_count)) {
  return load(
      [&] {
        return TF_REAL(cuLibraryLoadData)(library, code, options, values, count, library_options, library_values,
                                          library_count);
      },
      [&] { TF_REAL(cuLibraryUnload)(*library); });
}
TF_ENTRY(cuLibraryLoadFromFile,
         (CUlibrary * library, const char* file, CUjit_option* options, void** values, unsigned count,
          void* library_options, void** library_values, unsigned library_count)) {
  return load(
      [&] {
        return TF_REAL(cuLibraryLoadFromFile)(library, file, options, values, count, library_options, library_values,
                                              library_count);
      },
      [&] { TF_REAL(cuLibraryUnload)(*library); });
}
// What a library has in a context may be put there only now.
TF_ENTRY(cuLibraryGetModule, (CUmodule * module, CUlibrary library)) {
  return load([&] { return TF_REAL(cuLibraryGetModule)(module, library); }, [] {});
}

}  // namespace tensor_fusion::guest::limiter
