#pragma once
// Whether what a context is taken to cost on a device is too much. It was learned from one process, and one with an
// unusual context would make everybody's dear for good. Believed when several processes in a row that have one context
// are shown with less, all that they hold included, each twice with the same; one that holds nothing else and is shown
// with as much ends that. Pure.
#include <sys/types.h>

#include <cstdint>
#include <map>
#include <utility>

namespace tensor_fusion::node::hypervisor {

class OverheadDoubt {
 public:
  static constexpr std::size_t kProcesses = 3;
  using Process = std::pair<pid_t, std::uint64_t>;  // and when it began
  // Of a process with one context. What a context costs instead, at most; 0: no answer.
  std::uint64_t saw(const Process& process, std::uint64_t shown_bytes, std::uint64_t known_bytes);

 private:
  struct Seen {
    std::uint64_t shown_bytes = 0;
    bool twice = false;
  };
  std::map<Process, Seen> seen_;
};

}  // namespace tensor_fusion::node::hypervisor
