#include "guest/limiter/core/attachment.h"

#include <stdlib.h>

#include <new>

#include "guest/limiter/core/driver.h"
#include "guest/limiter/core/elf.h"
#include "guest/limiter/core/fault.h"
#include "guest/limiter/core/gate.h"
#include "guest/limiter/core/log.h"
#include "guest/limiter/core/os.h"
#include "guest/limiter/core/process.h"
#include "guest/limiter/core/uuid.h"

namespace tensor_fusion::guest::limiter {

Driver g_driver;
Shared g_shared;
constinit thread_local Current t_current{0, nullptr, 0};

namespace {

constexpr auto kRelaxed = std::memory_order_relaxed;
ForkPage g_first_page;  // until the slice is found; all zero
constinit ForkMutex g_slice_mutex;
std::atomic<std::uint32_t> g_flags{0};
std::atomic<std::uint32_t> g_registered_pid{0};  // of the last process in this line of forks that took a slot

// The page that a fork wipes. Without the kernel's help (before 4.14) a fork is seen at the next registration only.
ForkPage* make_fork_page() {
  auto* page = static_cast<ForkPage*>(os::map_memory(4096));
  if (page == nullptr) return &g_first_page;
  if (!os::wipe_on_fork(page, 4096))
    say("this kernel cannot mark memory for fork; forked children share their parent's slot");
  return page;
}

void join_devices(Attachment& made) {
  const contract::GrantPage& grant = *g_shared.slice.grant;
  contract::ClaimPage& claim = *g_shared.slice.claim;
  for (auto& index : made.by_ordinal) index = -1;
  int count = 0;
  if (driver().cuDeviceGetCount == nullptr || driver().cuDeviceGetCount(&count) != CUDA_SUCCESS) return;
  std::uint32_t granted = grant.device_count.load(kRelaxed);
  if (granted > contract::kMaxDevices) granted = contract::kMaxDevices;
  for (int ordinal = 0; ordinal < count && ordinal < kMaxOrdinals; ++ordinal) {
    CUdevice device = 0;
    CUuuid uuid;
    const auto get_uuid =
        driver().cuDeviceGetUuid_v2 != nullptr ? driver().cuDeviceGetUuid_v2 : driver().cuDeviceGetUuid;
    if (get_uuid == nullptr || driver().cuDeviceGet(&device, ordinal) != CUDA_SUCCESS ||
        get_uuid(&uuid, device) != CUDA_SUCCESS || device < 0 || device >= kMaxOrdinals)
      continue;
    for (std::uint32_t row = 0; row < granted; ++row) {
      if (!uuid_matches(grant.devices[row].uuid, uuid)) continue;
      Device& joined = made.devices[made.device_count];
      joined.ordinal = device;
      joined.index = row;
      joined.grant = &grant.devices[row];
      joined.grant_page = &grant;
      joined.claim = &claim.devices[row];
      joined.mine = &made.process->devices[row];
      joined.close_looks = &made.close_looks;
      made.by_ordinal[device] = static_cast<std::int8_t>(made.device_count++);
      break;
    }
  }
}

// `executed`: by a program that was on the GPUs, and whose memory the driver's account may show still.
Attachment* register_now(bool& executed) {
  contract::ClaimPage& claim = *g_shared.slice.claim;
  const std::uint32_t pid = os::process_id();
  const std::uint64_t space = os::pid_namespace();
  const std::uint64_t start = process_status(pid).start_ticks;
  std::uint32_t slot = Ledger::take_over_slot(claim, pid, start, space);
  executed = slot != contract::kMaxProcesses;
  if (!executed) slot = take_slot(claim, pid, start, space);
  if (slot == contract::kMaxProcesses) {
    Ledger sweeper(&claim, contract::kSweeperHolder - 1, space);
    if (sweeper.sweep()) slot = take_slot(claim, pid, start, space);
  }
  if (slot == contract::kMaxProcesses) {
    complain("this slice has as many programs on its GPUs as it can keep account of (512); end one of them");
    return nullptr;
  }
  auto* made = static_cast<Attachment*>(os::map_memory(sizeof(Attachment)));
  if (made == nullptr) return nullptr;
  new (&made->ledger) Ledger(&claim, slot, space);
  made->ledger.set_ask(&ask_for_reading, pid);
  made->process = &claim.processes[slot];
  made->process->limiter_version.store(kLimiterVersion, kRelaxed);
  const std::uint32_t before = g_registered_pid.exchange(pid, kRelaxed);
  if (before != 0 && before != pid) {
    g_flags.fetch_or(contract::kFlagForked, kRelaxed);
    gate::forked();
  }
  made->process->flags.store(g_flags.load(kRelaxed), kRelaxed);
  join_devices(*made);
  if (made->device_count != 1) made->close_looks.store(kSeveralDevices, kRelaxed);
  return made;
}

// Tells the hypervisor that a process has come. While none holds a slot it hardly writes the heartbeat, so what is seen
// before it has woken says nothing about whether it is there.
void say_hello() {
  constexpr std::uint64_t kPatienceNs = 20'000'000;
  constexpr std::uint64_t kLookNs = 100'000;
  ring(g_shared.slice);
  const std::uint64_t end = os::monotonic_ns() + kPatienceNs;
  const std::uint32_t word = 0;
  while (hypervisor_away() && os::monotonic_ns() < end) os::futex_wait(&word, 0, kLookNs, false);
}

}  // namespace

ForkPage* g_fork = &g_first_page;

Stage resolve_slice() {
  const Stage known = g_shared.stage.load(std::memory_order_acquire);
  if (known != Stage::untouched) return known;
  Guard guard(g_slice_mutex);
  if (g_shared.stage.load(kRelaxed) != Stage::untouched) return g_shared.stage.load(kRelaxed);
  Object self;
  if (object_of(reinterpret_cast<const void*>(&resolve_slice), self)) g_shared.library.add(self.path);
  Stage stage = Stage::passing;
  switch (find_slice(g_shared.slice, g_shared.library.letters)) {
    case SliceState::none:
      break;
    case SliceState::found:
      stage = Stage::limited;
      break;
    case SliceState::damaged:
      stage = Stage::damaged;
      break;
  }
  if (stage == Stage::limited) {
    arm_faults(getenv(kFaultVariable));
    g_fork = make_fork_page();
  }
  g_shared.stage.store(stage, std::memory_order_release);
  return stage;
}

Attachment* registered() {
  if (Attachment* made = attachment(); made != nullptr) return made;
  if (resolve_slice() != Stage::limited || !driver_ready()) return nullptr;
  Guard guard(g_fork->stage_mutex);
  if (Attachment* made = attachment(); made != nullptr) return made;
  bool executed = false;
  Attachment* made = register_now(executed);
  if (made == nullptr) return nullptr;
  say_hello();
  for (std::uint32_t index = 0; executed && index < made->device_count; ++index) ask_for_reading(made->devices[index]);
  g_fork->attachment.store(made, std::memory_order_release);
  g_fork->epoch.store(1, std::memory_order_release);
  return made;
}

bool driver_ready() {
  int count = 0;
  return driver().cuDeviceGetCount != nullptr && driver().cuDeviceGetCount(&count) == CUDA_SUCCESS;
}

bool must_refuse() {
  const Stage stage = g_shared.stage.load(std::memory_order_acquire);
  return stage == Stage::damaged || (stage == Stage::limited && attachment() == nullptr && driver_ready());
}

// Told here and not where it is found: that is looked for in programs that never want a GPU, too.
CUresult refusal() {
  if (g_shared.stage.load(std::memory_order_acquire) == Stage::damaged)
    complain(g_shared.slice.reason, g_shared.slice.directory.letters);
  return CUDA_ERROR_SYSTEM_NOT_READY;
}

Device* look_up_current() {
  forget_current();
  Attachment* attached = registered();
  if (attached == nullptr || driver().cuCtxGetCurrent == nullptr) return nullptr;
  CUcontext context = nullptr;
  CUdevice ordinal = 0;
  const std::uint64_t epoch = g_fork->epoch.load(kRelaxed);
  if (driver().cuCtxGetCurrent(&context) != CUDA_SUCCESS || context == nullptr ||
      driver().cuCtxGetDevice(&ordinal) != CUDA_SUCCESS)
    return nullptr;
  t_current.device = device_of(ordinal);
  t_current.context = reinterpret_cast<std::uint64_t>(context);
  t_current.epoch = epoch;
  return t_current.device;
}

Device* look_up_stream(CUstream stream, Device* current) {
  constexpr std::uint64_t kLastSpecial = 2;  // null, the legacy and the per-thread stream belong to the current context
  Attachment* attached = attachment();
  if (attached == nullptr || reinterpret_cast<std::uint64_t>(stream) <= kLastSpecial ||
      driver().cuStreamGetCtx == nullptr)
    return current;
  CUcontext context = nullptr;
  Holding holding;
  if (driver().cuStreamGetCtx(stream, &context) != CUDA_SUCCESS ||
      !attached->holdings.find(Kind::context, reinterpret_cast<std::uint64_t>(context), holding))
    return current;
  return &attached->devices[holding.device];
}

Device* device_of(CUdevice ordinal) {
  Attachment* attached = registered();
  if (attached == nullptr || ordinal < 0 || ordinal >= kMaxOrdinals || attached->by_ordinal[ordinal] < 0)
    return nullptr;
  return &attached->devices[attached->by_ordinal[ordinal]];
}

// A request may get lost (the page it stands in is the tenant's), but the account is read every second all the same.
// Who waited for longer than that and saw nothing is not answered: it asks no more until a reading is published again.
bool ask_for_reading(const Device& device) {
  constexpr std::uint64_t kPatienceNs = 2'500'000'000;
  constexpr std::uint64_t kDeaf = std::uint64_t{1} << 32;
  static std::atomic<std::uint64_t> deaf_at[contract::kMaxDevices];  // the reading after which nobody answered
  if (hypervisor_away()) return false;
  const contract::GrantDevice& grant = *device.grant;
  const std::uint32_t done = grant.reading_done.load(std::memory_order_acquire);
  if (deaf_at[device.index].load(kRelaxed) == (kDeaf | done)) return false;
  const std::uint64_t end = os::monotonic_ns() + kPatienceNs;
  const std::uint32_t begun = grant.reading_begun.load(std::memory_order_acquire);
  device.mine->settle_request.fetch_add(1, std::memory_order_release);
  ring(g_shared.slice);
  for (;;) {
    constexpr std::uint64_t kLookNs = 100'000'000;  // nobody is woken for a request that was lost
    const std::uint32_t settled = grant.settled.load(std::memory_order_acquire);
    if (static_cast<std::int32_t>(grant.reading_done.load(std::memory_order_acquire) - begun) > 0) return true;
    if (hypervisor_away()) return false;
    if (os::monotonic_ns() >= end) break;
    os::futex_wait(&grant.settled, settled, kLookNs, true);
  }
  say("the hypervisor did not read the driver's account in time; until it does the ledger alone decides");
  deaf_at[device.index].store(kDeaf | done, kRelaxed);
  return false;
}

void note_flag(std::uint32_t flag) {
  g_flags.fetch_or(flag, kRelaxed);
  if (Attachment* attached = attachment(); attached != nullptr) attached->process->flags.fetch_or(flag, kRelaxed);
}

bool hypervisor_away() {
  const std::uint64_t beat = g_shared.slice.grant->heartbeat_ns.load(kRelaxed);
  const std::uint64_t now = os::monotonic_ns();
  return now > beat && now - beat > contract::kHeartbeatLateNs;
}

}  // namespace tensor_fusion::guest::limiter
