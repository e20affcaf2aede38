#include "guest/limiter/hooks/table.h"

#include <array>

#include "contract/cuda_symbols.h"
#include "guest/limiter/core/words.h"
#include "guest/limiter/hooks/entry.h"
#include "guest/limiter/hooks/nvml.h"

namespace tensor_fusion::guest::limiter {
namespace {

struct RowData {
  std::uint16_t name;    // offset in kNames
  std::uint16_t real;    // offset in Driver or Nvml
  std::int8_t priority;  // -1: not a hook
  bool nvml;
};

// Names of all rows in order, each with its terminator.
constexpr char kNames[] =
#define TF_ROW(symbol, ...) #symbol "\0"
#define TF_NVML_ROW(symbol, ...) #symbol "\0"
#include "guest/limiter/table.inc"
    ;

constexpr std::size_t count_rows() {
  std::size_t count = 0;
#define TF_ROW(symbol, ...) ++count;
#define TF_NVML_ROW(symbol, ...) ++count;
#include "guest/limiter/table.inc"
  return count;
}
constexpr std::size_t kRows = count_rows();

constexpr std::array<RowData, kRows> make_rows() {
  std::array<RowData, kRows> rows{};
  std::size_t index = 0;
  std::size_t name = 0;
  const auto add = [&](std::size_t real, int priority, bool nvml) {
    rows[index++] = {static_cast<std::uint16_t>(name), static_cast<std::uint16_t>(real),
                     static_cast<std::int8_t>(priority), nvml};
    while (kNames[name] != 0) ++name;
    ++name;
  };
#define TF_HOOK(symbol, priority, ...) add(offsetof(Driver, symbol), priority, false);
#define TF_CALL(symbol, ...) add(offsetof(Driver, symbol), -1, false);
#define TF_NVML(symbol, ...) add(offsetof(Nvml, symbol), 1, true);
#define TF_NVML_CALL(symbol, ...) add(offsetof(Nvml, symbol), -1, true);
#include "guest/limiter/table.inc"
  return rows;
}
constexpr std::array<RowData, kRows> kRowData = make_rows();

// Compared by number first: compilers bound the work of a constant.
constexpr std::uint32_t number_of(const char* name) {
  std::uint32_t number = 2166136261;
  for (; *name != 0; ++name) number = (number ^ static_cast<unsigned char>(*name)) * 16777619;
  return number;
}
constexpr std::array<std::uint32_t, kRows> make_numbers() {
  std::array<std::uint32_t, kRows> numbers{};
  for (std::size_t index = 0; index < kRows; ++index) numbers[index] = number_of(kNames + kRowData[index].name);
  return numbers;
}
constexpr std::array<std::uint32_t, kRows> kNumbers = make_numbers();

constexpr bool equal(const char* left, const char* right) {
  while (*left != 0 && *left == *right) ++left, ++right;
  return *left == *right;
}

struct QueryData {
  std::uint16_t base;  // offset in the texts of kQueries
  std::uint16_t version;
  std::uint8_t flags;
  std::uint16_t row;
};

constexpr std::uint32_t find_row(const char* name) {
  const std::uint32_t number = number_of(name);
  for (std::uint32_t index = 0; index < kRows; ++index)
    if (kNumbers[index] == number && !kRowData[index].nvml && kRowData[index].priority >= 0 &&
        equal(kNames + kRowData[index].name, name))
      return index;
  return kNoRow;
}
constexpr std::size_t count_queries() {
  std::size_t count = 0;
  for (const auto& symbol : cuda::kCudaSymbols) count += find_row(symbol.exported) != kNoRow ? 1 : 0;
  return count;
}
constexpr std::size_t kQueryCount = count_queries();
constexpr std::size_t kBaseLetters = kQueryCount * 40;

struct Queries {
  std::array<QueryData, kQueryCount> rows;
  std::array<char, kBaseLetters> texts;
};

constexpr Queries make_queries() {
  Queries queries{};
  std::size_t index = 0;
  std::size_t letters = 0;
  for (const auto& symbol : cuda::kCudaSymbols) {
    const std::uint32_t found = find_row(symbol.exported);
    if (found == kNoRow) continue;
    const std::uint64_t flags = symbol.flavour == cuda::StreamFlavour::kPlain
                                    ? CU_GET_PROC_ADDRESS_LEGACY_STREAM
                                    : CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM;
    queries.rows[index++] = {static_cast<std::uint16_t>(letters), static_cast<std::uint16_t>(symbol.version),
                             static_cast<std::uint8_t>(flags), static_cast<std::uint16_t>(found)};
    for (const char* letter = symbol.base; *letter != 0; ++letter) queries.texts[letters++] = *letter;
    queries.texts[letters++] = 0;
  }
  return queries;
}
constexpr Queries kQueries = make_queries();

}  // namespace

// Distances of the hooks from here; zero for rows that are only called.
#define TF_HOOK(symbol, ...) ".long " #symbol " - limiter_hook_distances\n"
#define TF_CALL(symbol, ...) ".long 0\n"
#define TF_NVML(symbol, ...) ".long " #symbol " - limiter_hook_distances\n"
#define TF_NVML_CALL(symbol, ...) ".long 0\n"
asm(".pushsection .rodata\n"
    ".balign 4\n"
    ".hidden limiter_hook_distances\n"
    ".globl limiter_hook_distances\n"
    "limiter_hook_distances:\n"
#include "guest/limiter/table.inc"
    ".popsection\n");
extern "C" [[gnu::visibility("hidden")]] const std::int32_t limiter_hook_distances[kRows];

std::uint32_t row_count() { return kRows; }

TableRow row(std::uint32_t index) {
  const RowData& data = kRowData[index];
  TableRow result;
  result.name = kNames + data.name;
  const std::int32_t distance = limiter_hook_distances[index];
  result.hook =
      data.priority < 0 ? nullptr : const_cast<char*>(reinterpret_cast<const char*>(limiter_hook_distances)) + distance;
  auto* base = data.nvml ? reinterpret_cast<char*>(&g_nvml) : reinterpret_cast<char*>(&g_driver);
  result.real = reinterpret_cast<void**>(base + data.real);
  result.priority = data.priority < 0 ? -1 : static_cast<std::uint8_t>(data.priority);
  result.nvml = data.nvml;
  return result;
}

std::uint32_t row_named(const char* name) {
  // Only names that can be in the table are compared at all.
  if (!(name[0] == 'c' && name[1] == 'u') && !(name[0] == 'n' && name[1] == 'v')) return kNoRow;
  const std::uint32_t number = number_of(name);
  for (std::uint32_t index = 0; index < kRows; ++index)
    if (kNumbers[index] == number && same(kNames + kRowData[index].name, name)) return index;
  return kNoRow;
}

std::uint32_t query_count() { return kQueryCount; }

Query query(std::uint32_t index) {
  const QueryData& data = kQueries.rows[index];
  return {kQueries.texts.data() + data.base, data.version, data.flags, data.row};
}

}  // namespace tensor_fusion::guest::limiter
