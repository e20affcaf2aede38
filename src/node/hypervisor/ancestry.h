#pragma once
// A process and those above it. The links between them are numbers, and a number may be another process's by now: of a
// parent that started after its child it is, so there the line ends. Pure.
#include <sys/types.h>

#include <cstdint>

namespace tensor_fusion::node::hypervisor {

struct SeenProcess {
  pid_t pid = 0;
  pid_t parent = 0;
  std::uint64_t start_ticks = 0;
  std::uint64_t mount_namespace = 0;  // 0: not readable
};

// Whether `is` says so of itself, its parent, and so on. `find`: what is known of a number, or nothing (optional,
// pointer).
template <typename Find, typename Is>
bool any_of_line(SeenProcess process, const Find& find, const Is& is) {
  constexpr int kMostAncestors = 256;  // deeper than any shell goes; ends a chain that changes under us
  for (int step = 0; step < kMostAncestors; ++step) {
    if (is(process)) return true;
    if (process.parent <= 1) return false;
    const auto parent = find(process.parent);
    if (!parent || parent->start_ticks > process.start_ticks) return false;
    process = *parent;
  }
  return false;
}

}  // namespace tensor_fusion::node::hypervisor
