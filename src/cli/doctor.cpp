#include "cli/doctor.h"

#include <dlfcn.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <gnu/libc-version.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstring>
#include <filesystem>

#include "base/quantity.h"
#include "base/text.h"
#include "cli/driver.h"
#include "cli/limiter_library.h"
#include "cli/program.h"
#include "cli/simulated_machine.h"
#include "cli/slice_view.h"
#include "contract/claim.h"
#include "contract/grant.h"
#include "node/hypervisor/state_path.h"
#include "system/fd.h"
#include "system/file.h"

namespace tensor_fusion::cli {
namespace {

using view::Finding;
using view::Verdict;

constexpr std::uint64_t kLeastSharedMemory = 64u << 20;
constexpr std::uint64_t kLeastStateSpace = 16u << 20;
constexpr std::uint64_t kSliceSpace =
    ((sizeof(contract::GrantPage) + sizeof(contract::ClaimPage)) >> 20 << 20) + (1 << 20);

Finding good(std::string name, std::string detail) { return {std::move(name), Verdict::kGood, std::move(detail), ""}; }
Finding note(std::string name, std::string detail, std::string advice) {
  return {std::move(name), Verdict::kWarning, std::move(detail), std::move(advice)};
}
Finding bad(std::string name, std::string detail, std::string advice) {
  return {std::move(name), Verdict::kBad, std::move(detail), std::move(advice)};
}

// Loading a driver library runs its code, so it happens in no process but this short one, and nothing of it is called
// except its version.
Finding examine_library(const std::string& name, const char* file, const std::string& advice) {
  void* library = ::dlopen(file, RTLD_LAZY | RTLD_LOCAL);
  if (library == nullptr) {
    const char* error = ::dlerror();
    return bad(name, error != nullptr ? error : "cannot be loaded", advice);
  }
  const auto version = reinterpret_cast<int (*)(int*)>(::dlsym(library, "cuDriverGetVersion"));
  int number = 0;
  if (version != nullptr && version(&number) == 0)
    return good(name, fmt::format("{}, CUDA {}.{}", file, number / 1000, number % 1000 / 10));
  return good(name, file);
}

// What to do without a driver: a build folder has the simulated one beside this program, an installed one in libexec.
std::string driver_advice(const Context& context) {
  for (const char* place : {"/../sim", "/../libexec/tensor-fusion/sim"}) {
    const auto folder = std::filesystem::path(context.program_folder() + place).lexically_normal().string();
    if (!system::exists(folder + "/libcuda.so.1")) continue;
    return fmt::format(
        "install the GPU's driver; or use the simulated GPU: export TENSOR_FUSION_SIM={} LD_LIBRARY_PATH={}",
        environment("TENSOR_FUSION_SIM").value_or("2xh100"), folder);
  }
  return "install the GPU's driver";
}

Finding examine_management(const Context& context) {
  const auto started = check_driver();
  if (!started) {
    return bad("NVML", started.error(),
               started.error().find("fault rule '") != std::string::npos ? "correct the rule, or take it out"
               : started.error().find("TENSOR_FUSION_SIM_DIR, or give") != std::string::npos
                   ? "choose another TENSOR_FUSION_SIM_DIR, or give this user rights on this one"
               : environment("TENSOR_FUSION_SIM") && started.error().find("TENSOR_FUSION_SIM") != std::string::npos
                   ? "correct the simulated machine's TENSOR_FUSION_SIM, or unset it for the real GPU"
                   : driver_advice(context));
  }
  return good("NVML", "starts");
}

Finding examine_device_files() {
  if (const auto machine = environment("TENSOR_FUSION_SIM"))
    return good("device files", fmt::format("those of the simulated machine `{}`", *machine));
  std::vector<std::string> closed;
  unsigned open = 0;
  for (const std::string& name : system::list_directory("/dev")) {
    if (!name.starts_with("nvidia")) continue;
    const std::string_view rest = std::string_view(name).substr(6);
    const bool is_card =
        !rest.empty() && std::ranges::all_of(rest, [](char digit) { return digit >= '0' && digit <= '9'; });
    if (!is_card && rest != "ctl" && rest != "-uvm") continue;
    const std::string path = "/dev/" + name;
    const system::Fd file(::open(path.c_str(), O_RDWR | O_CLOEXEC));
    if (!file) closed.push_back(fmt::format("{} ({})", path, std::strerror(errno)));
    open += file ? 1 : 0;
  }
  if (!closed.empty()) {
    return bad("device files", fmt::format("cannot open {}", base::join(closed, ", ")),
               "give this user read and write access to them, or run as root");
  }
  if (open == 0) {
    return bad("device files", "no /dev/nvidia* here",
               "load the driver (nvidia-modprobe -u), pass the GPU into this container, or set "
               "TENSOR_FUSION_SIM=1xh100 for a simulated one");
  }
  return good("device files", fmt::format("{} can be opened", open));
}

Finding examine_limiter(const Context& context) {
  const auto limiter = LimiterLibrary::load(environment(kLimiterVariable).value_or(""), context.program_folder());
  if (!limiter) return bad("limiter", limiter.error(), "");
  unsigned minor = 0;
  const std::string_view version = ::gnu_get_libc_version();  // "2.36"
  const auto dot = version.find('.');
  if (dot != version.npos) std::from_chars(version.data() + dot + 1, version.data() + version.size(), minor);
  if (minor < limiter->needs_glibc()) {
    return bad("limiter",
               fmt::format("{} needs glibc 2.{}, here is {}", limiter->path(), limiter->needs_glibc(), version),
               "use a newer system, or a limiter linked for an older glibc");
  }
  if (void* library = ::dlopen(limiter->path().c_str(), RTLD_NOW | RTLD_LOCAL); library == nullptr) {
    const char* error = ::dlerror();
    return bad("limiter", error != nullptr ? error : "cannot be loaded", "install tensor-fusion again");
  }
  return good("limiter", fmt::format("{} (needs glibc 2.{}, here is {})",
                                     std::filesystem::path(limiter->path()).lexically_normal().string(),
                                     limiter->needs_glibc(), version));
}

Finding examine_namespaces() {
  const auto possible = can_make_namespaces();
  if (possible) {
    return good("namespaces", ::geteuid() == 0 ? "a private mount namespace can be made"
                                               : "a private mount namespace can be made, in a user namespace");
  }
  return note(
      "namespaces",
      fmt::format("none can be made ({}); limits then reach programs through LD_PRELOAD, which a child may take off",
                  possible.error()),
      "run as root; or allow user namespaces (sysctl kernel.unprivileged_userns_clone=1, "
      "kernel.apparmor_restrict_unprivileged_userns=0); "
      "or give this container CAP_SYS_ADMIN");
}

Finding examine_preload_file() {
  const auto content = system::read_file(kPreloadFile);
  if (!system::exists(kPreloadFile)) return good("ld.so.preload", "none on this machine; slices get their own");
  if (!content) return note("ld.so.preload", content.error().message, "make it readable: a slice keeps what it names");
  std::vector<std::string> missing;
  for (const std::string_view line : base::split(*content, '\n')) {
    const std::string path(base::trim(line.substr(0, line.find('#'))));
    if (path.starts_with('/') && !system::exists(path)) missing.push_back(path);
  }
  if (!missing.empty()) {
    return note("ld.so.preload",
                fmt::format("names {}, which does not exist; the loader complains about it in every program",
                            base::join(missing, ", ")),
                fmt::format("take it out of {}", kPreloadFile));
  }
  return good("ld.so.preload", "read; slices add the limiter to a copy of it");
}

Finding examine_shared_memory() {
  struct statvfs status{};
  if (::statvfs("/dev/shm", &status) != 0) {
    return note("/dev/shm", std::strerror(errno), "mount a tmpfs there: frameworks and the simulated GPU need it");
  }
  const std::uint64_t free = std::uint64_t{status.f_bavail} * status.f_frsize;
  if (free < kLeastSharedMemory) {
    return note("/dev/shm", fmt::format("only {} free", base::to_text(base::Bytes{free})),
                "make it larger (docker run --shm-size 1g)");
  }
  return good("/dev/shm", fmt::format("{} free", base::to_text(base::Bytes{free})));
}

Finding examine_state(const Context& context) {
  if (const auto sound = node::hypervisor::check_state_path(context.state()); !sound) {
    const std::string& message = sound.error().message;
    return bad("state", message.substr(0, message.rfind(';')), "choose another with --state or TENSOR_FUSION_STATE");
  }
  std::string folder = context.state();
  while (!folder.empty() && !system::exists(folder)) folder = std::filesystem::path(folder).parent_path().string();
  struct statvfs status{};
  if (::statvfs(folder.c_str(), &status) != 0)
    return bad("state", fmt::format("{}: {}", context.state(), std::strerror(errno)), "choose another with --state");
  if ((status.f_flag & ST_RDONLY) != 0)
    return bad("state", fmt::format("{} is on a read-only file system", context.state()),
               "choose another with --state or TENSOR_FUSION_STATE");
  if (::access(folder.c_str(), W_OK) != 0) {
    if (context.connect_running())
      return good("state", fmt::format("{} is kept by the hypervisor that runs here", context.state()));
    return bad("state", fmt::format("{} cannot be written by this user", context.state()),
               "choose another with --state or TENSOR_FUSION_STATE, or run as root");
  }
  const std::uint64_t free = std::uint64_t{status.f_bavail} * status.f_frsize;
  if (free < kLeastStateSpace)
    return bad("state",
               fmt::format("{} has only {} free; a slice needs about {}", context.state(),
                           base::to_text(base::Bytes{free}), base::to_text(base::Bytes{kSliceSpace})),
               "make room there, or choose another with --state");
  return good("state", fmt::format("{} can be written", context.state()));
}

void examine_hypervisor(const Context& context, std::vector<Finding>& findings) {
  auto client = context.connect_running();
  if (!client) {
    if (client.error().code == base::ErrorCode::kUsage) return;  // said of the state directory already
    if (client.error().code == base::ErrorCode::kUnavailable) {
      findings.push_back(good("hypervisor", "none runs; the first `run` starts one"));
    } else {
      findings.push_back(
          bad("hypervisor", client.error().message, "use the hypervisor of this user, or another --state"));
    }
    return;
  }
  const auto version = client->version();
  if (!version) {
    // A sentence that goes on after a semicolon says itself what to do.
    const std::string& message = version.error().message;
    const auto advice = message.find("; ");
    findings.push_back(advice == message.npos
                           ? bad("hypervisor", message, "ask again")
                           : bad("hypervisor", message.substr(0, advice), message.substr(advice + 2)));
    return;
  }
  findings.push_back(good(
      "hypervisor", fmt::format("version {}, pid {}", (*version)["version"].as_string(), (*version)["pid"].as_int())));
  const auto here = [&](const base::Json& process) {
    return client->pid() == 0 ? 0 : static_cast<pid_t>(process["pid"].as_int());
  };
  if (const auto gone = removed_machine(here((*version)["provider"]))) {
    findings.push_back(bad("simulated machine", gone->detail, gone->advice));
  } else if (const auto other = other_machine(client->pid())) {
    findings.push_back(bad("simulated machine", other->detail, other->advice));
  }
  const auto facts = client->doctor();
  if (!facts) return;
  for (const base::Json& fact : (*facts)["facts"].items()) {
    const std::string& name = fact["name"].as_string();
    if (name == "state" || name == "hypervisor") continue;  // seen from here already
    const Verdict wrong = fact["stops"].as_bool(true) ? Verdict::kBad : Verdict::kWarning;
    const bool fine = fact["ok"].as_bool(true);
    findings.push_back(
        {name, fine ? Verdict::kGood : wrong, fact["detail"].as_string(), fine ? "" : fact["advice"].as_string()});
  }
}

// An MPS server is one process for many programs, so that the driver cannot tell them apart.
Finding examine_mps() {
  const std::string pipe = environment("CUDA_MPS_PIPE_DIRECTORY").value_or("/tmp/nvidia-mps");
  if (!system::exists(pipe + "/control")) return good("MPS", "no server");
  return note(
      "MPS",
      fmt::format("a server runs at {}; its clients share one process, so use is known from the limiter only", pipe),
      "stop it (echo quit | nvidia-cuda-mps-control) for exact accounts");
}

Finding examine_mig() {
  const std::string folder = "/proc/driver/nvidia/capabilities";
  unsigned instances = 0;
  for (const std::string& gpu : system::list_directory(folder)) {
    for (const std::string& entry : system::list_directory(fmt::format("{}/{}/mig", folder, gpu)))
      instances += entry.starts_with("gi") ? 1 : 0;
  }
  if (instances == 0) return good("MIG", "no instances");
  return note("MIG", fmt::format("{} GPU instances", instances), "give a slice one of them with --gpu MIG-…");
}

// Inside a slice only what its programs need can be judged: the rest is out of sight here, or what the slice made of
// it.
std::vector<Finding> examine_inside(const Context& context, const std::string& slice) {
  std::vector<Finding> findings;
  findings.push_back(note("slice",
                          fmt::format("this is inside the slice `{}`; only what its programs need is looked at", slice),
                          "start programs directly here; ask `tensor-fusion doctor` outside of it about all else"));
  findings.push_back(examine_library("driver", "libcuda.so.1", driver_advice(context)));
  findings.push_back(examine_management(context));
  findings.push_back(examine_limiter(context));
  findings.push_back(examine_shared_memory());
  return findings;
}

Finding examine_program(const Context& context, const std::string& name) {
  const std::string path = environment("PATH").value_or("/usr/local/bin:/usr/bin:/bin");
  auto program = find_program(name, path);
  if (!program) return bad(name, program.error().message, "name a program that exists and may be executed");
  const auto limiter = LimiterLibrary::load(environment(kLimiterVariable).value_or(""), context.program_folder());
  const auto checked = check_limitable(*program, {.through_file = can_make_namespaces().has_value(),
                                                  .limiter_needs_glibc = limiter ? limiter->needs_glibc() : 0,
                                                  .search_path = path});
  if (!checked) return bad(name, checked.error().message, checked.error().advice);
  return good(name, fmt::format("can be limited ({})", base::join(program->inspected, ", then ")));
}

}  // namespace

std::vector<Finding> examine(const Context& context) {
  std::vector<Finding> findings;
  if (const auto slice = context.slice()) {
    findings = examine_inside(context, *slice);
    for (const std::string& name : context.invocation().arguments) findings.push_back(examine_program(context, name));
    return findings;
  }
  findings.push_back(examine_library("driver", "libcuda.so.1", driver_advice(context)));
  findings.push_back(examine_management(context));
  findings.push_back(examine_device_files());
  findings.push_back(examine_limiter(context));
  findings.push_back(examine_namespaces());
  findings.push_back(examine_preload_file());
  findings.push_back(examine_shared_memory());
  findings.push_back(examine_state(context));
  findings.push_back(examine_mps());
  findings.push_back(examine_mig());
  findings.push_back(good("slice", "not inside one"));
  examine_hypervisor(context, findings);
  for (const std::string& name : context.invocation().arguments) findings.push_back(examine_program(context, name));
  return findings;
}

int doctor(const Context& context) {
  const auto findings = examine(context);
  if (context.json()) {
    context.print_json(view::to_json(findings));
  } else {
    context.print(view::to_text(findings, context.style(), context.slice() ? "a program of this slice" : "a slice"));
  }
  return view::any_bad(findings) ? kExitProblem : kExitOk;
}

}  // namespace tensor_fusion::cli
