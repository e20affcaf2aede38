#pragma once
// What the slices of one card are shown to use of its time. While work runs that nobody has told the end of, its time
// may stand in a neighbour's account as well, and no card gives more than its time. Pure.
#include <vector>

namespace tensor_fusion::node::hypervisor {

// Of one slice, in basis points.
struct ClaimedUse {
  double account = 0;
  double driver = 0;  // 0: it says nothing of this slice (an MPS server, a pid that is not to be seen), or it is idle
};

// As the accounts say, where they fit into the card. Where they do not, the driver's word counts for whom it says less;
// what is too much even so is taken from all alike.
std::vector<double> possible_shares(const std::vector<ClaimedUse>& slices);

}  // namespace tensor_fusion::node::hypervisor
