#pragma once
// The rows of table.inc at run time: name, hook, where the driver's own pointer is kept, and under which names,
// versions and stream flavours cuGetProcAddress knows it. Read-only data without a single address in it: hooks are kept
// as distances from the table, so nothing is relocated when the library is loaded into a program that never uses a GPU.
#include <cstdint>

namespace tensor_fusion::guest::limiter {

struct TableRow {
  const char* name;
  void* hook;    // null: only called
  void** real;   // the member of Driver (or of Nvml)
  int priority;  // of hooks
  bool nvml;
};

inline constexpr std::uint32_t kNoRow = ~std::uint32_t{0};

std::uint32_t row_count();
TableRow row(std::uint32_t index);
std::uint32_t row_named(const char* name);  // kNoRow when no row has this name

// The ways cuGetProcAddress may be asked for a row.
struct Query {
  const char* base;
  int version;
  std::uint64_t flags;
  std::uint32_t row;
};
std::uint32_t query_count();
Query query(std::uint32_t index);

}  // namespace tensor_fusion::guest::limiter
