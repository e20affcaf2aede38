#include "tests/bench/share/product.h"

#include <fcntl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>

#include "node/hypervisor/protocol.h"
#include "system/file.h"
#include "tests/bench/share/execute.h"

namespace tensor_fusion::bench::share {
namespace {

std::string percent(double share) {
  char text[16];
  std::snprintf(text, sizeof text, "%g%%", share);
  return text;
}

}  // namespace

Product::Product(std::string program, std::string state, Variables environment)
    : program_(std::move(program)), state_(std::move(state)), environment_(std::move(environment)) {
  environment_.emplace_back("TENSOR_FUSION_STATE", state_);
}

Product::~Product() {
  const pid_t stopping = start({program_, "hypervisor", "--stop"});
  if (stopping > 0) ::waitpid(stopping, nullptr, 0);
  // It answers before it ends, and lets go of its state when it holds no card any more.
  const std::string lock = state_ + "/" + node::hypervisor::kLockName;
  constexpr int kTries = 2000;
  for (int tries = 0; system::is_locked(lock) && tries < kTries; ++tries) ::usleep(5000);
  if (system::is_locked(lock)) std::fprintf(stderr, "share_bench: a hypervisor does not end; the next is beside it\n");
}

pid_t Product::start(const std::vector<std::string>& command) const {
  const pid_t child = ::fork();
  if (child != 0) return child;
  execute(command, environment_);
}

pid_t Product::run(const Part& part, const std::string& name, const std::vector<std::string>& command) const {
  std::vector<std::string> words = {program_,
                                    "run",
                                    "--name",
                                    name,
                                    "--vram",
                                    "4Gi",
                                    "--compute",
                                    percent(part.limit),
                                    "--compute-request",
                                    percent(part.request),
                                    "--gpu",
                                    std::to_string(part.device),
                                    "--"};
  words.insert(words.end(), command.begin(), command.end());
  return start(words);
}

}  // namespace tensor_fusion::bench::share
