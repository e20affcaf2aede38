#pragma once
// What is measured: who shares a device on which terms, what each should get, and the bar a mix is held to.
#include <optional>
#include <string>
#include <vector>

namespace tensor_fusion::bench::share {

// One tenant of a mix. Shares are percent of its device.
struct Part {
  std::string program;
  double request = 0;
  double limit = 100;
  unsigned processes = 1;
  unsigned device = 0;
  bool latency = false;
  double target = -1;  // what it should get; -1: nothing is expected of it
  // It waits for every launch, or token: its target is the part of its limit that it reaches by itself, which is
  // measured right before and right after, since it hangs on how quick the host is then.
  bool waits = false;
};

struct Bar {
  double mean, p95;  // points
};
inline constexpr Bar kCapsBar{1.5, 3}, kWeightsBar{2, 4};

struct Mix {
  std::string name;
  std::vector<Part> parts;
  std::optional<Bar> own = {};  // instead of the bar of its kind, to which every mix is held by itself
  std::string exception = {};   // ... and why
  unsigned windows = 0;         // 0: as many as of every mix
};

Part capped(std::string program, double limit, unsigned processes = 1);
Part waiting(std::string program, double limit);  // capped, too
Part weighted(std::string program, double request, double target, unsigned processes = 1);

std::vector<Mix> caps();
std::vector<Mix> many_devices();  // caps on four: from there on the share loop wakes late to find more that is due
std::vector<Mix> weights();
// One that needs the device again and again, beside each of those it may meet: the first is honest, the others are not.
struct Meeting {
  std::string name;
  Part honest;
  std::vector<Part> fair, hostile;
};
std::vector<Meeting> meetings();
std::vector<Mix> as_often(std::vector<Mix> mixes);  // the same, each watched for as many windows as the others
// Run by the real hypervisor, too.
std::vector<Mix> confirming_caps();

}  // namespace tensor_fusion::bench::share
