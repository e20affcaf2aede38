#pragma once
// What programs do on a GPU, step by step: training, decoding tokens, batches, graphs, a wait after every launch. Tests
// only.
#include <cmath>
#include <functional>
#include <random>

#include "pool/share_model_gpu.h"

namespace tensor_fusion::pool::model {

// What a program does next.
struct Step {
  enum Kind { kLaunch, kSync, kThink, kEnd } kind = kThink;
  Time ns = 0;
  unsigned stream = 0;
  unsigned key = 0;  // which function: durations are learned per key
};
using Program = std::function<Step(std::mt19937_64&)>;

inline Program training(Time least = 50 * kUs, Time most = 2 * kMs, unsigned depth = 200, Time think = 300 * kUs) {
  return [=, i = 0u](std::mt19937_64& random) mutable -> Step {
    if (i < depth) {
      const unsigned key = i++ % 16;
      const double part = static_cast<double>(key) / 15;
      const double mean =
          static_cast<double>(least) * std::pow(static_cast<double>(most) / static_cast<double>(least), part);
      const double drift = 0.95 + 0.1 * static_cast<double>(random() % 1000) / 1000;
      return {Step::kLaunch, static_cast<Time>(mean * drift), 0, key};
    }
    if (i++ == depth) return {Step::kSync, 0, 0, 0};
    i = 0;
    return {Step::kThink, think, 0, 0};
  };
}
inline Program decode(unsigned kernels = 60, Time mean = 20 * kUs, Time think = 150 * kUs) {
  return [=, i = 0u](std::mt19937_64&) mutable -> Step {
    if (i < kernels) return {Step::kLaunch, mean / 4 + (mean * 3 / 2) * (i % 8) / 7, 0, i++ % 8};
    if (i++ == kernels) return {Step::kSync, 0, 0, 0};
    i = 0;
    return {Step::kThink, think, 0, 0};
  };
}
inline Program batch(Time least = 5 * kMs, Time most = 20 * kMs) {
  return [=, i = 0u](std::mt19937_64&) mutable -> Step {
    const unsigned key = i++ % 4;
    return {Step::kLaunch, least + (most - least) * key / 3, 0, key};
  };
}
inline Program graphs(Time each = 8 * kMs) {
  return [=](std::mt19937_64&) -> Step { return {Step::kLaunch, each, 0, 0}; };
}
// Something that was never launched before, each time, and a wait for it.
inline Program always_new(Time kernel, Time think = 80 * kUs) {
  return [=, i = 0u](std::mt19937_64&) mutable -> Step {
    const unsigned step = i++;
    if (step % 3 == 0) return {Step::kLaunch, kernel, 0, step / 3};
    return step % 3 == 1 ? Step{Step::kSync, 0, 0, 0} : Step{Step::kThink, think, 0, 0};
  };
}
inline Program long_launches(unsigned depth, Time each = 90 * kMs) {
  return [=, i = 0u](std::mt19937_64&) mutable -> Step {
    if (i++ % (depth + 1) == depth) return {Step::kSync, 0, 0, 0};
    return {Step::kLaunch, each, 0, 0};
  };
}
// Launches something, does something else for a while and ends without waiting: another begins in its place.
inline Program short_lived(Time kernel, Time lives) {
  return [=, i = 0u](std::mt19937_64&) mutable -> Step {
    switch (i++ % 3) {
      case 0:
        return {Step::kLaunch, kernel, 0, 0};
      case 1:
        return {Step::kThink, lives, 0, 0};
      default:
        return {Step::kEnd, 10 * kMs, 0, 0};
    }
  };
}
inline Program sync_each(Time kernel = 1 * kMs, Time think = 80 * kUs) {
  return [=, i = 0u](std::mt19937_64&) mutable -> Step {
    switch (i++ % 3) {
      case 0:
        return {Step::kLaunch, kernel, 0, 0};
      case 1:
        return {Step::kSync, 0, 0, 0};
      default:
        return {Step::kThink, think, 0, 0};
    }
  };
}
inline Program many_streams(unsigned streams = 4, Time kernel = 400 * kUs, unsigned depth = 200) {
  return [=, i = 0u](std::mt19937_64&) mutable -> Step {
    if (i < depth) {
      const unsigned n = i++;
      return {Step::kLaunch, kernel * (2 + n % 3) / 3, n % streams, n % 3};
    }
    i = 0;
    return {Step::kSync, 0, 0, 0};
  };
}

}  // namespace tensor_fusion::pool::model
