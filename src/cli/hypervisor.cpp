#include "cli/hypervisor.h"

namespace tensor_fusion::cli {

int run_hypervisor(const Context& context) {
  if (context.invocation().has("stop")) {
    auto client = context.connect();
    if (!client) return context.fail(client.error());
    if (auto stopped = client->stop(); !stopped) return context.fail(stopped.error());
    return kExitOk;
  }
  return context.fail(kExitProblem, "the hypervisor is not part of this build");
}

}  // namespace tensor_fusion::cli
