#pragma once
// What part of a device's time a slice is shown to use: of what the device's line of time has told of it, since what is
// charged in advance is all of a launch when it is let in; but while launches run for so long that the line is known
// late, of what is charged, which the driver's word follows meanwhile. Pure; one thread.
#include <algorithm>
#include <cstdint>

#include "node/hypervisor/share_tenant.h"
#include "node/hypervisor/share_window.h"

namespace tensor_fusion::node::hypervisor {

class UsedShare {
 public:
  static constexpr std::uint64_t kLateNs = 600'000'000;
  static constexpr std::uint64_t kLastsNs = 5'000'000'000;  // who has one such launch soon has another

  void add(std::uint64_t now_ns, const ShareUsage& account) {
    placed_.add(std::min(now_ns, account.placed_until_ns), account.placed_ns);
    charged_.add(now_ns, account.service_ns);
    if (account.placed_until_ns < now_ns && now_ns - account.placed_until_ns > kLateNs)
      late_until_ns_ = now_ns + kLastsNs;
    at_ns_ = now_ns;
  }
  double share() const { return at_ns_ < late_until_ns_ ? charged_.share() : placed_.share(); }  // 0 to 1

 private:
  ShareWindow placed_, charged_;
  std::uint64_t at_ns_ = 0, late_until_ns_ = 0;
};

}  // namespace tensor_fusion::node::hypervisor
