#pragma once
// What the benchmarks of the limiter share: the driver to measure on, and one run of the load program with or without
// it.
#include <cstdint>
#include <string>
#include <vector>

#include "guest/limiter/testing/build_folder.h"
#include "guest/limiter/testing/slice.h"

namespace tensor_fusion::guest::limiter::testing {

inline const std::string kBuild = build_folder();
inline const std::string kLibrary = kBuild + "/lib/libtensor_fusion_limiter.so";
inline const std::string kLoad = kBuild + "/limiter_test/load";

// A machine of the simulated GPU of its own, or the stub driver where the simulated one is not built; or, where `card`
// is asked for, the first card of this machine, real or simulated, as the environment has it.
class BenchDriver {
 public:
  enum class Which : std::uint8_t { best, stub, card };
  explicit BenchDriver(Which which = Which::best, const std::string& machine = "1xh100");
  ~BenchDriver();
  bool simulated() const { return simulated_; }
  std::string uuid() const { return uuid_; }  // of device 0, as the grant page spells it; "": there is none
  std::vector<std::string> environment() const { return environment_; }

 private:
  bool simulated_ = false;
  std::string state_;
  std::string uuid_;
  std::vector<std::string> environment_;
};

// The exit status of a benchmark that cannot run here, after a line that says why.
inline constexpr int kCannotRun = 77;

// `slice` null: without the limiter.
Job load(const BenchDriver& driver, const TestSlice* slice, std::vector<std::string> arguments);

}  // namespace tensor_fusion::guest::limiter::testing
