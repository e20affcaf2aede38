#pragma once
// Where each row of the symbol table is in this library.
#include <cstddef>

namespace tensor_fusion::sim::cuda {

// Of kCudaSymbols[row].
[[nodiscard]] void* symbol_address(std::size_t row);

}  // namespace tensor_fusion::sim::cuda
