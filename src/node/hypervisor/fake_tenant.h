#pragma once
// A tenant of the share loop's tests: its pages in memory, what its limiter would write done by hand.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <deque>
#include <utility>

#include "contract/claim.h"
#include "contract/grant.h"
#include "node/hypervisor/share_tenant.h"

namespace tensor_fusion::node::hypervisor {

inline constexpr std::uint64_t kMs = 1'000'000;

template <class T>
struct Mapped {
  T* page = static_cast<T*>(
      ::mmap(nullptr, sizeof(T), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0));
  Mapped() = default;
  Mapped(const Mapped&) = delete;
  Mapped& operator=(const Mapped&) = delete;
  ~Mapped() { ::munmap(page, sizeof(T)); }
};

struct FakeTenant {
  Mapped<contract::GrantPage> grant;
  Mapped<contract::ClaimPage> claim;
  int bell[2] = {-1, -1};
  FakeTenant() {
    EXPECT_EQ(::pipe2(bell, O_NONBLOCK | O_CLOEXEC), 0);
    claim.page->process_high = 1;
    claim.page->processes[0].state = contract::kSlotLive;
    claim.page->processes[0].pid = 100;
  }
  ~FakeTenant() {
    ::close(bell[0]);
    ::close(bell[1]);
  }
  ShareTenant tenant(std::uint32_t request, std::uint32_t limit, std::uint32_t device = 0) {
    ShareTenant result;
    result.grant = grant.page;
    result.claim = claim.page;
    result.bell = bell[0];
    result.devices.push_back({.slot = 0, .device = device, .request = request, .limit = limit});
    return result;
  }
  contract::ClaimProcessDevice& row() { return claim.page->processes[0].devices[0]; }
  void ring() { EXPECT_EQ(::write(bell[1], "!", 1), 1); }
  void block() {
    row().blocked = 1;
    ring();
  }
  // Work as the limiter tells of it: its end as it is expected, a marker when that has come.
  void launch(std::uint64_t now, std::uint64_t ns) {
    const std::uint64_t start = std::max(row().progress_ns.load(), now);
    row().launched_ns += ns;
    row().progress_ns = start + ns;
    if (running.empty()) row().open_since_ns = start;
    running.push_back({start, start + ns});
  }
  void tell(std::uint64_t now) {
    while (!running.empty() && running.front().second <= now) {
      const auto [start, end] = running.front();
      contract::Marker& marker = row().markers[row().marker_count % contract::kMarkers];
      marker.start_ns = start;
      marker.end_ns = end;
      marker.estimated_ns = end - start;
      ++row().marker_count;
      running.pop_front();
    }
    row().open_since_ns = running.empty() ? 0 : running.front().first;
  }
  std::deque<std::pair<std::uint64_t, std::uint64_t>> running;
  bool admitted() const { return (grant.page->devices[0].gate & contract::kGateAdmitted) != 0; }
};

}  // namespace tensor_fusion::node::hypervisor
