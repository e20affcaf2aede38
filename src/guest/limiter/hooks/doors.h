#pragma once
// The three front doors. A program reaches the driver by linked symbols (our exports come first), by dlsym and dlvsym,
// and by cuGetProcAddress; each leads to the same hook for the same entry point, because all of them translate the
// pointer that the driver itself gave, never the name that was asked for.
#include <cstdint>

namespace tensor_fusion::guest::limiter {

// The hook for a pointer of the driver, or the pointer itself. Nothing is translated where nothing is limited.
// `driver_name`: it was asked for by a name that the driver could have; other look-ups never touch a file or the
// driver.
void* translate(void* real, bool driver_name);

bool resolve_driver();      // also declared in entry.h
bool resolve_management();  // the same for libnvidia-ml

// The bits of ClaimProcess::self_test.
enum SelfTest : std::uint64_t {
  kDoorExports = 1u << 0,
  kDoorLookup = 1u << 1,
  kDoorProcAddress = 1u << 2,
  kAllDoors = 7,
};
void test_doors();  // after the driver has been initialised

}  // namespace tensor_fusion::guest::limiter
