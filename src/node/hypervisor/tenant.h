#pragma once
// One `run` as the daemon knows it: what was promised (record), its pages, its processes, what was measured.
#include <sys/types.h>

#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "node/hypervisor/claim_view.h"
#include "node/hypervisor/limiter_proof.h"
#include "node/hypervisor/lock_watch.h"
#include "node/hypervisor/look_budget.h"
#include "node/hypervisor/map_reader.h"
#include "node/hypervisor/overwriting.h"
#include "node/hypervisor/process_table.h"
#include "node/hypervisor/server.h"
#include "node/hypervisor/share_loop.h"
#include "node/hypervisor/slice_guard.h"
#include "node/hypervisor/tenant_pages.h"
#include "node/hypervisor/tenant_record.h"
#include "node/hypervisor/used_share.h"
#include "system/fd.h"

namespace tensor_fusion::node::hypervisor {

struct LiveProcess {
  std::uint32_t slot = 0;
  pid_t tenant_pid = 0;
  pid_t host_pid = 0;  // 0: the claim names no process of this tenant
  std::uint64_t start_ticks = 0;
  SlotView said;  // the slot as it was last seen to be its own
  system::Fd pidfd;
  bool dead = false;
  bool pending = false;       // the slot is taken but not filled in yet
  LimiterProof proof;         // that what it executes has the limiter
  std::uint64_t seen_ns = 0;  // first
  std::array<std::uint32_t, contract::kMaxDevices> settle_seen{};
};

// Whose turn it is to take all that is left of the tenant's memory (GrantDevice::turn).
struct Turn {
  std::uint32_t name = 0;  // as it was published
  std::uint32_t last = 0;  // name of the last one that had it
  pid_t pid = 0;
  std::uint64_t shown_bytes = 0;  // what the driver showed for it then
  std::uint64_t since_ns = 0;
};

// Measured, per row of the grant page.
struct TenantUsage {
  std::uint64_t observed_bytes = 0;  // NVML, of the processes known to be this tenant's
  std::uint64_t unledgered_bytes = 0;
  std::uint64_t estimate_bytes = 0;  // of the last reading, before smoothing
  Turn turn;
  double utilisation_percent = 0;  // NVML
  double used_share = 0;           // basis points of the device's time lately
  UsedShare lately;
  bool bypass_reported = false;
};

struct Tenant {
  TenantRecord record;
  TenantPages pages;
  ShareTenantId share_id = 0;
  ConnectionId lease = 0;        // until started: the connection that asked
  system::Fd root;               // pidfd of the first process
  std::uint64_t watched_ns = 0;  // since when
  bool root_dead = false;
  std::optional<int> root_ended;         // how, where that is known
  int early_signal = 0;                  // of a kill that came before the first process was known
  std::optional<uid_t> early_signal_by;  // ... where it came of a stranger
  std::optional<SeenProcess> member;     // somebody who lived there when it was looked at last
  std::uint64_t hidden_since_ns = 0;     // since when no look could tell whether somebody does; 0: the last one could
  bool removed = false;
  system::Fd view;                    // keeps its mount namespace, and so the number to this slice
  std::unique_ptr<SliceGuard> guard;  // of the view, where it has one
  LockWatch locks;
  MapReader maps;
  std::uint64_t settles_paid_ns = 0;  // until when readings on its request are paid for
  std::vector<LiveProcess> processes;
  std::vector<TenantUsage> usage;
  std::vector<std::string> tampered;  // distinct sentences, bounded
  Overwriting overwriting;            // of its claim
  Allowance searching;                // for the processes that its slots name

  bool has_live_process() const {
    for (const LiveProcess& process : processes)
      if (!process.dead && process.host_pid != 0) return true;
    return false;
  }
  bool may_be_over() const { return root_dead && !has_live_process(); }
  SliceFiles slice_files() const { return {pages.claim_file(), guard ? guard->limiter() : std::nullopt}; }
  const LiveProcess* live_process(pid_t host_pid) const {
    for (const LiveProcess& process : processes)
      if (process.host_pid == host_pid && host_pid != 0 && !process.dead) return &process;
    return nullptr;
  }
};

inline std::vector<const TenantRecord*> records_of(const std::vector<Tenant*>& tenants) {
  std::vector<const TenantRecord*> records;
  for (const Tenant* tenant : tenants) records.push_back(&tenant->record);
  return records;
}

}  // namespace tensor_fusion::node::hypervisor
