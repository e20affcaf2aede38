#pragma once
// One process on the model machine: a program, and what its gate knows of the work it has let through. Tests only.
#include <algorithm>
#include <cstdint>
#include <functional>
#include <random>
#include <utility>
#include <vector>

#include "pool/share.h"
#include "pool/share_model_gpu.h"
#include "pool/share_model_programs.h"

namespace tensor_fusion::pool::model {

// One process: a program, its gate, and one context.
struct Process {
  std::size_t tenant = 0;
  unsigned context = 0;
  Program program;
  std::mt19937_64 random{1};
  // gate
  struct Learned {
    double ns = 0;
    unsigned seen = 0, launched = 0;
    Time solo_at = 0;
  };
  std::vector<Learned> learned;
  double prior_ns = 100 * 1000.0;
  struct Stream {
    unsigned queued = 0;  // kernels not complete
    double unmarked = 0;
    bool guessed = false;  // of something in it nothing had been measured
    Time open_since = 0;   // no stretch to come starts before
    Time mark_start = 0;   // device time of the last marker event, once executed
    bool marked = false;   // a start event is in place
    unsigned markers = 0;  // in flight
  };
  std::vector<Stream> streams;
  std::vector<std::pair<unsigned, ShareStretch>> ready;  // executed, not yet published, by stream
  std::vector<ShareStretch> published;
  double launched = 0, completed = 0, last_end = 0;
  double bucket = 0;
  Time bucket_at = 0;
  double progress = 0;  // predicted end
  Time wanted_since = 0;
  double gap = 1e9;
  bool blocked = false, syncing = false, thinking = false;
  Step held;
  std::uint64_t epoch = 0;
  unsigned queued = 0;
  Time sync_began = 0;
  std::vector<Time> steps;  // durations between syncs, for decode
  Time step_began = 0;
  bool stopped = false;
  std::vector<std::function<void()>> kept;  // what it will do when it goes on
  double kernels_ns = 0;                    // true device time of kernels completed

  // What a launch is taken to cost, and what has ended by now.
  double estimate(unsigned key) {
    if (learned.size() <= key) learned.resize(key + 1);
    return learned[key].ns <= 0 ? prior_ns : learned[key].ns;
  }
  // It ends, and what it had on the device with it; the hypervisor tells for it since when there was something.
  void end(std::uint32_t number, Time now) {
    std::uint64_t open = kNever;
    for (const Stream& stream : streams)
      if (stream.unmarked > 0 || stream.markers > 0) open = std::min(open, stream.open_since);
    if (open < now)
      published.push_back({.start_ns = open,
                           .end_ns = now,
                           .estimated_ns = static_cast<std::uint64_t>(launched - completed),
                           .process = number,
                           .untold = true});
    completed = launched;
    streams.clear();
    learned.clear();
    ready.clear();
    progress = std::min(progress, static_cast<double>(now));
    gap = 1e9;
    wanted_since = step_began = 0;
    blocked = syncing = false;
    queued = 0;
    ++epoch;
  }
  void poll(Time now, double scale) {
    for (const auto& [s, stretch] : ready) {
      completed += static_cast<double>(stretch.estimated_ns);
      last_end = std::max(last_end, static_cast<double>(stretch.end_ns));
      if (stretch.end_ns > 0) streams[s].open_since = stretch.end_ns;
      published.push_back(stretch);
    }
    if (!ready.empty()) {
      // What is left, counted from the last event that is known to have passed.
      const double left = (launched - completed) * scale;
      progress = std::max(static_cast<double>(now), last_end + left);
      ready.clear();
    }
    if (queued == 0) progress = std::min(std::max(progress, last_end), static_cast<double>(now));
  }
};

struct TenantModel {
  ShareTerms terms;
  bool present = true;
  ShareGrant grant;
  Time admitted_since = 0;
  Time own_until = 0;  // while it drains: when the last of its own should be over
  std::vector<std::size_t> processes;
  std::int64_t clock_offset = 0;  // of the host times its markers are placed at
  std::vector<double> windows;    // served per window
  double served_mark = 0;
  std::function<void(ShareClaim&, std::vector<ShareStretch>&, Time)> lie;  // about what its processes did
};

}  // namespace tensor_fusion::pool::model
