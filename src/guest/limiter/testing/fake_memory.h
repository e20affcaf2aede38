#pragma once
// A driver of two devices, of which the first is always the current one, for tests of the hooks in this very process:
// it counts memory and waits, and says of sparse arrays what a test wants. One slice and one registration serve all
// tests of a program; each test must leave nothing behind.
#include <map>
#include <memory>
#include <vector>

#include "guest/limiter/core/attachment.h"
#include "guest/limiter/core/driver.h"
#include "guest/limiter/testing/slice.h"

namespace tensor_fusion::guest::limiter::testing {

class FakeMemory {
 public:
  static constexpr std::uint64_t kLimit = 1 << 30;
  static FakeMemory& get();

  std::uint64_t charged() { return slice.claim().devices[0].used_bytes.load(); }
  static CUstream stream(int number) { return reinterpret_cast<CUstream>(0x5000 + number * 16); }
  static CUstream stream_of_second() { return reinterpret_cast<CUstream>(0x8000); }

  TestSlice slice;
  std::map<CUmemoryPool, std::uint64_t> reserved;  // of every pool
  std::map<CUlimit, std::size_t> limits;           // of the one context
  std::uint64_t next_handle = 0x100;
  int waits = 0;                      // for a stream
  std::uint64_t charged_at_wait = 0;  // when the last one was
  unsigned tile = 0;                  // edge of the tiles of every sparse array; 0: this driver does not say
  std::vector<int> checkpointed;

 private:
  FakeMemory();
};

}  // namespace tensor_fusion::guest::limiter::testing
