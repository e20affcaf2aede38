// simulated-gpu account: what the simulated machine named by the environment has really done, as JSON: exact device
// time by engine and process, and memory with its high-water mark. Benchmarks and the demo judge by this alone.
#include <cstdio>
#include <cstring>

#include "base/json.h"
#include "sim/device/account.h"
#include "sim/device/machine.h"
#include "sim/device/memory.h"

namespace {

using tensor_fusion::base::Json;
namespace device = tensor_fusion::sim::device;

Json memory_of(device::Machine& machine, std::uint32_t domain) {
  const device::MemoryInfo memory = device::memory_info(machine, domain);
  Json processes = Json::array();
  for (const device::ProcessMemory& process : device::memory_by_process(machine, domain)) {
    processes.push(
        Json::object({{"pid", process.pid}, {"used_bytes", process.used_bytes}, {"contexts", process.contexts}}));
  }
  return Json::object({{"capacity_bytes", memory.capacity_bytes},
                       {"used_bytes", memory.used_bytes},
                       {"peak_bytes", memory.peak_bytes},
                       {"refused", memory.refused},
                       {"processes", processes}});
}

Json engine_of(device::Machine& machine, const device::EngineInfo& engine) {
  const device::EngineAccount account = device::account(machine, engine.id);
  Json processes = Json::array();
  for (const device::ProcessAccount& process : account.processes) {
    processes.push(Json::object({{"pid", process.pid},
                                 {"start_ticks", process.start_ticks},
                                 {"alive", process.alive},
                                 {"service_ns", process.service_ns},
                                 {"copy_ns", process.copy_ns},
                                 {"kernels", process.kernels}}));
  }
  return Json::object({{"uuid", engine.uuid},
                       {"clock_ns", account.clock_ns},
                       {"created_ns", account.created_ns},
                       {"busy_ns", account.busy_ns},
                       {"switch_ns", account.switch_ns},
                       {"idle_ns", account.idle_ns},
                       {"switches", account.switches},
                       {"processes", processes},
                       {"memory", memory_of(machine, engine.memory_domain)}});
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 2 || std::strcmp(argv[1], "account") != 0) {
    std::fputs(
        "usage: simulated-gpu account    (of the machine that TENSOR_FUSION_SIM_DIR or TENSOR_FUSION_SIM names)\n",
        stderr);
    return 2;
  }
  const auto machine = device::Machine::attach_from_environment();
  if (!machine) {
    std::fprintf(stderr, "simulated-gpu: %s\n", machine.error().message.c_str());
    return 1;
  }
  Json engines = Json::array();
  for (unsigned index = 0; index < (*machine)->device_count(); ++index) {
    for (const device::EngineInfo& engine : (*machine)->engines_of(index)) engines.push(engine_of(**machine, engine));
  }
  std::printf("%s\n", Json::object({{"engines", engines}}).dump().c_str());
  return 0;
}
