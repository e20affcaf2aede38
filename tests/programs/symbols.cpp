// Every symbol of the driver's table is there by both doors: by its exported name, and by cuGetProcAddress at the
// version that brought it and in its stream flavour. Prints what is missing. Exit 0: nothing is.
#include "driver.h"

using namespace tensor_fusion::programs;

int main() {
  Driver d(Door::dlsym);
  if (d.library == nullptr) return std::fprintf(stderr, "no libcuda.so.1 here\n"), 77;
  int driver_version = 0;
  if (d.cuDriverGetVersion(&driver_version) != CUDA_SUCCESS) return 1;
  int missing = 0, checked = 0;
  for (const CudaSymbol& row : kCudaSymbols) {
    if (row.version > driver_version) continue;  // newer than this driver
    ++checked;
    const std::uint64_t flags = row.flavour == StreamFlavour::kPlain ? CU_GET_PROC_ADDRESS_DEFAULT
                                                                     : CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM;
    void* address = nullptr;
    CUdriverProcAddressQueryResult status{};
    const CUresult result = d.cuGetProcAddress_v2(row.base, &address, row.version, flags, &status);
    void* const exported = ::dlsym(d.library, row.exported);
    if (result == CUDA_SUCCESS && address != nullptr && exported != nullptr && address == exported) continue;
    ++missing;
    std::printf("%s (%s, %d): by name %s, by version %s\n", row.exported, row.base, row.version,
                exported != nullptr ? "there" : "missing",
                result != CUDA_SUCCESS ? d.name_of(result).c_str()
                : address == nullptr   ? "missing"
                : address != exported  ? "another function"
                                       : "there");
  }
  Line("symbols", missing == 0 ? "ok" : "missing").number("checked", checked).number("missing", missing);
  return missing == 0 ? 0 : 1;
}
