#include "cli/hypervisor.h"

#include <fmt/format.h>
#include <unistd.h>

#include <cstdio>
#include <expected>

#include "base/version.h"
#include "cli/driver.h"
#include "cli/request.h"
#include "cli/simulated_machine.h"
#include "contract/grant.h"
#include "node/hypervisor/hypervisor.h"
#include "node/hypervisor/protocol.h"
#include "system/file.h"

namespace tensor_fusion::cli {
namespace {

constexpr std::uint64_t kIdleExitMs = 60'000;
constexpr int kFirstLookMs = 2000;  // who asks meanwhile waits as long
constexpr int kStartTries = 2000;
constexpr unsigned kStartPauseUs = 5000;

int stop_running(const Context& context) {
  auto client = context.connect_running();
  // One that starts at this moment has its state already, and listens soon.
  const std::string lock = context.state() + "/" + node::hypervisor::kLockName;
  for (int tries = 0; !client && client.error().code == base::ErrorCode::kUnavailable && system::is_locked(lock) &&
                      tries < kStartTries;
       ++tries) {
    ::usleep(kStartPauseUs);
    client = context.connect_running();
  }
  if (!client && client.error().code == base::ErrorCode::kUnavailable) {
    return context.fail(exit_code_of(base::ErrorCode::kNotFound), "no hypervisor runs on " + context.state());
  }
  if (!client) return context.fail(client.error());
  const auto holder = [&lock] {
    return system::is_locked(lock) ? system::read_file(lock).value_or("") : std::string();
  };
  const std::string held_by = holder();
  // One that another is stopping at this moment may go without an answer.
  if (auto stopped = client->stop(); !stopped && context.connect_running()) return context.fail(stopped.error());
  // Till it has let go of its state and its cards, the next one would find them taken.
  for (int tries = 0; !held_by.empty() && holder() == held_by && tries < kStartTries; ++tries) ::usleep(kStartPauseUs);
  if (context.json()) context.print_json(base::Json::object({{"stopped", true}, {"state", context.state()}}));
  return kExitOk;
}

}  // namespace

int run_hypervisor(const Context& context) {
  if (context.invocation().has("stop")) return stop_running(context);
  // Its driver would be the slice's, and what it gave out would be given out already.
  if (const auto outside = context.check_outside(); !outside) return context.fail(outside.error());
  if (const auto slice = environment(contract::kSliceVariable))
    return context.fail(kExitUsage,
                        fmt::format("this is inside the slice at `{}`; start a hypervisor outside of it", *slice));
  node::hypervisor::HypervisorOptions options;
  options.state = context.state();
  options.accelerator_library = context.invocation().value("accelerator-lib").value_or("");
  options.idle_exit_ms = context.invocation().has("idle-exit") ? kIdleExitMs : 0;
  options.version = base::kVersion;
  options.variables = machine_variables();
  if (const auto text = context.invocation().value("slices-per-user")) {
    constexpr unsigned kMostSlices = 4096;
    const auto count = count_of("--slices-per-user", *text, 1, kMostSlices);
    if (!count) return context.fail(count.error());
    options.slices_per_user = *count;
  }
  // One that breaks later is a health event, and tried again; one that cannot be loaded at all is a mistake.
  if (const std::string& library = options.accelerator_library; !library.empty()) {
    if (const auto sound = check_provider(library); !sound)
      return context.fail(
          exit_code_of(base::ErrorCode::kNoDevice),
          fmt::format("{}; name another with --accelerator-lib, or leave it out for NVIDIA's GPUs", sound.error()));
  }
  const bool looks = options.accelerator_library.empty() && options.idle_exit_ms == 0;  // else `run` has looked
  auto hypervisor = node::hypervisor::Hypervisor::make(std::move(options));
  if (!hypervisor) return context.fail(hypervisor.error());
  if (const auto driver = looks ? check_driver(kFirstLookMs) : std::expected<void, std::string>(); !driver) {
    std::fprintf(stderr,
                 "tensor-fusion: there is no GPU to share yet: %s; this waits for one and looks again every few "
                 "seconds, and `tensor-fusion doctor` says how to get one\n",
                 driver.error().c_str());
  }
  if (auto ended = (*hypervisor)->run(); !ended) return context.fail(ended.error());
  return kExitOk;
}

}  // namespace tensor_fusion::cli
