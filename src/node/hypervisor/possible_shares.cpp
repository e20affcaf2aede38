#include "node/hypervisor/possible_shares.h"

#include <algorithm>
#include <numeric>

namespace tensor_fusion::node::hypervisor {
namespace {

constexpr double kWhole = 10000;
constexpr double kUnlikely = 10500;  // accounts are settled at different moments, so a little more means nothing

double sum(const std::vector<double>& shares) { return std::accumulate(shares.begin(), shares.end(), 0.0); }

}  // namespace

std::vector<double> possible_shares(const std::vector<ClaimedUse>& slices) {
  std::vector<double> shares;
  for (const ClaimedUse& slice : slices) shares.push_back(slice.account);
  if (sum(shares) > kUnlikely)
    for (std::size_t i = 0; i < shares.size(); ++i)
      if (slices[i].driver > 0) shares[i] = std::min(shares[i], slices[i].driver);
  if (const double all = sum(shares); all > kWhole)
    for (double& share : shares) share *= kWhole / all;
  return shares;
}

}  // namespace tensor_fusion::node::hypervisor
