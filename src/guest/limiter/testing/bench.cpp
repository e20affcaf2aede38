#include "guest/limiter/testing/bench.h"

#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <string_view>

#include "guest/limiter/testing/scratch.h"

namespace tensor_fusion::guest::limiter::testing {

BenchDriver::BenchDriver(Which which, const std::string& machine) {
  if (which == Which::card) {
    for (char** variable = environ; *variable != nullptr; ++variable) {
      const std::string_view text = *variable;
      if (!text.starts_with("LD_PRELOAD=") && !text.starts_with("TENSOR_FUSION_SLICE="))
        environment_.emplace_back(text);
    }
    uuid_ = run({{kLoad, "uuid"}, environment_}).value("uuid");
    return;
  }
  const std::string simulator = kBuild + "/sim";
  simulated_ = std::filesystem::exists(simulator + "/libcuda.so.1") && which == Which::best;
  if (!simulated_) {
    environment_ = {"LD_LIBRARY_PATH=" + kBuild + "/limiter_test"};
    uuid_ = "GPU-00000000-0000-0000-0000-000000000000";
    return;
  }
  std::string name = scratch_base() + "/tensor-fusion-bench-XXXXXX";
  if (mkdtemp(name.data()) != nullptr) state_ = name;
  environment_ = {"LD_LIBRARY_PATH=" + simulator, "TENSOR_FUSION_SIM=" + machine, "TENSOR_FUSION_SIM_DIR=" + state_,
                  "HOME=/tmp"};
  uuid_ = run({{kLoad, "uuid"}, environment_}).value("uuid");
}

BenchDriver::~BenchDriver() {
  if (!state_.empty()) std::filesystem::remove_all(state_);
}

Job load(const BenchDriver& driver, const TestSlice* slice, std::vector<std::string> arguments) {
  Job job;
  job.command = {kLoad};
  job.command.insert(job.command.end(), arguments.begin(), arguments.end());
  job.environment = driver.environment();
  if (slice != nullptr) {
    // The loader only warns about a library that is not there, and the rest would measure nothing against nothing.
    if (access(kLibrary.c_str(), R_OK) != 0) {
      std::fprintf(stderr, "%s is not built\n", kLibrary.c_str());
      std::exit(1);
    }
    job.environment.push_back("LD_PRELOAD=" + kLibrary);
    job.environment.push_back("TENSOR_FUSION_SLICE=" + slice->directory());
  }
  return job;
}

}  // namespace tensor_fusion::guest::limiter::testing
