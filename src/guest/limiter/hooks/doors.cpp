#include "guest/limiter/hooks/doors.h"

#include <dlfcn.h>

#include "guest/limiter/core/elf.h"
#include "guest/limiter/core/log.h"
#include "guest/limiter/core/os.h"
#include "guest/limiter/hooks/entry.h"
#include "guest/limiter/hooks/libc.h"
#include "guest/limiter/hooks/nvml.h"
#include "guest/limiter/hooks/table.h"

namespace tensor_fusion::guest::limiter {

Nvml g_nvml;

namespace {

// Driver pointer -> row. Written under the mutex, read without it: a place is filled row first, pointer last.
struct Place {
  std::atomic<void*> real;
  std::atomic<std::uint32_t> row;
};
constexpr std::uint64_t kPlaces = 4096;  // several times the rows, so that runs stay short
std::atomic<Place*> g_places{nullptr};
constinit ForkMutex g_mutex;
Object g_driver_object;
Object g_management_object;
std::uint64_t g_looked_at = 0;  // load_count() when everything loaded had been looked at
bool g_driver_found = false;
bool g_management_found = false;
bool g_driver_mapped = false;
bool g_management_mapped = false;

std::uint64_t home_of(const void* real) {
  return (reinterpret_cast<std::uint64_t>(real) * 0x9e3779b97f4a7c15) >> 52;  // 12 bits
}

std::uint32_t row_at(const void* real) {
  Place* places = g_places.load(std::memory_order_acquire);
  if (places == nullptr) return kNoRow;
  for (std::uint64_t place = home_of(real);; place = (place + 1) % kPlaces) {
    const void* here = places[place].real.load(std::memory_order_acquire);
    if (here == real) return places[place].row.load(std::memory_order_relaxed);
    if (here == nullptr) return kNoRow;
  }
}

void add_pointer(void* real, std::uint32_t row) {
  if (real == nullptr || row_at(real) != kNoRow) return;
  Place* places = g_places.load(std::memory_order_relaxed);
  std::uint64_t place = home_of(real);
  while (places[place].real.load(std::memory_order_relaxed) != nullptr) place = (place + 1) % kPlaces;
  places[place].row.store(row, std::memory_order_relaxed);
  places[place].real.store(real, std::memory_order_release);
}

bool make_places() {
  if (g_places.load(std::memory_order_relaxed) != nullptr) return true;
  auto* places = static_cast<Place*>(os::map_memory(kPlaces * sizeof(Place)));
  g_places.store(places, std::memory_order_release);
  return places != nullptr;
}

void fill_rows(const Object& object, bool nvml) {
  for (std::uint32_t index = 0; index < row_count(); ++index) {
    const TableRow entry = row(index);
    if (entry.nvml != nvml) continue;
    void* found = find_symbol(object, entry.name);
    // A program may be in another hook already: a slot is written once, and never with another value.
    if (found != nullptr && *entry.real == nullptr) __atomic_store_n(entry.real, found, __ATOMIC_RELEASE);
  }
}

void map_rows(const Object& object, bool nvml) {
  for (std::uint32_t index = 0; index < row_count(); ++index) {
    const TableRow entry = row(index);
    if (entry.nvml == nvml && entry.hook != nullptr) add_pointer(find_symbol(object, entry.name), index);
  }
}

// A driver may answer cuGetProcAddress with other addresses than it exports.
void map_queries() {
  for (std::uint32_t index = 0; index < query_count(); ++index) {
    const Query asked = query(index);
    void* found = nullptr;
    CUresult result = CUDA_ERROR_NOT_FOUND;
    if (driver().cuGetProcAddress_v2 != nullptr) {
      CUdriverProcAddressQueryResult status{};
      result = driver().cuGetProcAddress_v2(asked.base, &found, asked.version, asked.flags, &status);
    } else if (driver().cuGetProcAddress != nullptr) {
      result = driver().cuGetProcAddress(asked.base, &found, asked.version, asked.flags);
    }
    if (result == CUDA_SUCCESS) add_pointer(found, asked.row);
  }
}

void look_for_driver() {
  if (!g_driver_found && find_object("libcuda.so", 0, g_driver_object)) {
    fill_rows(g_driver_object, false);
    g_driver_found = true;
  }
  if (!g_management_found && find_object("libnvidia-ml.so", 0, g_management_object)) {
    fill_rows(g_management_object, true);
    g_management_found = true;
  }
}

void map_drivers() {
  if (!make_places()) return;
  if (g_driver_found && !g_driver_mapped) {
    map_rows(g_driver_object, false);
    map_queries();
    Object second;
    if (find_object("libcuda.so", 1, second)) {
      note_flag(contract::kFlagSecondDriver);
      say("a second copy of the driver is loaded", second.path);
      map_rows(second, false);
    }
    g_driver_mapped = true;
  }
  if (g_management_found && !g_management_mapped) {
    map_rows(g_management_object, true);
    g_management_mapped = true;
  }
}

// A pointer that is not in the map although its name could be the driver's: of a copy of the driver loaded later?
void map_late_copy(void* real) {
  Object object;
  if (g_driver_object.contains(real) || g_management_object.contains(real) || !object_of(real, object)) return;
  Object known;
  for (int nth = 0; find_object("libcuda.so", nth, known); ++nth) {
    if (!known.contains(real)) continue;
    note_flag(contract::kFlagSecondDriver);
    say("a second copy of the driver is loaded", known.path);
    map_rows(known, false);
    return;
  }
}

bool in_this_library(const void* address) {
  Object self;
  return object_of(reinterpret_cast<const void*>(&test_doors), self) && self.contains(address);
}

}  // namespace

CUresult unavailable() { return CUDA_ERROR_STUB_LIBRARY; }

bool resolve_driver() {
  Guard guard(g_mutex);
  look_for_driver();
  return g_driver_found;
}
bool resolve_management() {
  Guard guard(g_mutex);
  look_for_driver();
  return g_management_found;
}

void* translate(void* real, bool driver_name) {
  if (real == nullptr) return nullptr;
  std::uint32_t found = row_at(real);
  if (found == kNoRow && driver_name) {
    if (resolve_slice() == Stage::passing) return real;
    const std::uint64_t loaded = load_count();
    Guard guard(g_mutex);
    if (loaded != g_looked_at) {
      look_for_driver();
      map_drivers();
      if (row_at(real) == kNoRow) map_late_copy(real);
      g_looked_at = loaded;
    }
    found = row_at(real);
  }
  return found == kNoRow ? real : row(found).hook;
}

void test_doors() {
  Attachment* attached = attachment();
  if (attached == nullptr) return;
  if (limiter_libc.dlsym == nullptr) find_libc();
  std::uint64_t open = 0;
  if (limiter_libc.dlsym(RTLD_DEFAULT, "dlsym") != reinterpret_cast<void*>(&::dlsym) ||
      limiter_libc.dlsym(RTLD_DEFAULT, "dlvsym") != reinterpret_cast<void*>(&::dlvsym))
    open |= kDoorLookup;
  for (std::uint32_t index = 0; index < row_count(); ++index) {
    const TableRow entry = row(index);
    if (entry.nvml || entry.priority != 0 || *entry.real == nullptr) continue;
    if (limiter_libc.dlsym(RTLD_DEFAULT, entry.name) != entry.hook) open |= kDoorExports;
    if (translate(*entry.real, true) != entry.hook) open |= kDoorLookup;
  }
  for (std::uint32_t index = 0; index < query_count(); ++index) {
    const Query asked = query(index);
    if (row(asked.row).priority != 0 || driver().cuGetProcAddress_v2 == nullptr) continue;
    void* found = nullptr;
    CUdriverProcAddressQueryResult status{};
    if (cuGetProcAddress_v2(asked.base, &found, asked.version, asked.flags, &status) == CUDA_SUCCESS &&
        found != nullptr && !in_this_library(found))
      open |= kDoorProcAddress;
  }
  attached->process->self_test.store(kAllDoors & ~open, std::memory_order_release);
  if (open != 0) {
    note_flag(contract::kFlagDoorOpen);
    say("the self-test found a front door that does not lead here");
  }
}

TF_ENTRY(cuGetProcAddress, (const char* name, void** function, int version, std::uint64_t flags)) {
  const CUresult result = TF_REAL(cuGetProcAddress)(name, function, version, flags);
  if (result == CUDA_SUCCESS && function != nullptr) *function = translate(*function, true);
  return result;
}
TF_ENTRY(cuGetProcAddress_v2, (const char* name, void** function, int version, std::uint64_t flags,
                               CUdriverProcAddressQueryResult* status)) {
  const CUresult result = TF_REAL(cuGetProcAddress_v2)(name, function, version, flags, status);
  if (result == CUDA_SUCCESS && function != nullptr) *function = translate(*function, true);
  return result;
}

}  // namespace tensor_fusion::guest::limiter
