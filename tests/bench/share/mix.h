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
};

struct Bar {
  double p95;                       // points
  std::optional<double> mean = {};  // of this mix; none: its mean counts among all mixes only
};

struct Mix {
  std::string name;
  std::vector<Part> parts;
  std::optional<Bar> own = {};      // instead of the bar all mixes of its kind are held to together
  const char* exception = nullptr;  // ... and why
};

Part capped(std::string program, double limit, double alone = 100, unsigned processes = 1);
Part weighted(std::string program, double request, double target, unsigned processes = 1);

// A tenant that waits for every launch, or token, reaches by itself only so much; its target is that part of its limit.
std::vector<Mix> caps(double sync_alone, double decode_alone);
std::vector<Mix> weights();
std::vector<Mix> baseline();    // few, for comparisons
std::vector<Mix> confirming();  // run by the real hypervisor, too

}  // namespace tensor_fusion::bench::share
