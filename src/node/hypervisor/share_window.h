#pragma once
// What part of a device's time a slice used lately, of readings of all it used so far. Over a second that is the
// answer where a program uses the device all the time (readings may be much closer, and its turns are then not to be
// told from its share); where a launch, or the pause between two, is longer than that, it would be all or nothing in
// turns, so the answer is then over a few of these turns. Pure; one thread.
#include <cstdint>
#include <deque>

namespace tensor_fusion::node::hypervisor {

class ShareWindow {
 public:
  static constexpr std::uint64_t kTurns = 4;
  static constexpr std::uint64_t kShortestNs = 1'000'000'000;
  static constexpr std::uint64_t kLongestNs = 15'000'000'000;
  static constexpr std::size_t kMostReadings = 64;

  void add(std::uint64_t now_ns, std::uint64_t service_ns);
  double share() const;  // 0 to 1; 0 before there were two readings

 private:
  struct Reading {
    std::uint64_t at_ns;
    std::uint64_t service_ns;
  };
  bool grew(std::size_t reading) const { return readings_[reading].service_ns > readings_[reading - 1].service_ns; }
  std::uint64_t turn_ns() const;  // 0: it uses the device all the time, or not at all
  double between(std::size_t from, std::size_t to) const;

  std::deque<Reading> readings_;
};

}  // namespace tensor_fusion::node::hypervisor
