#pragma once
// How a hook is written: TF_ENTRY(symbol, (parameters)) { ... }, checked against its row of table.inc, and inside it
// TF_REAL(symbol)(arguments) for the driver's own function of that very name.
#include "guest/limiter/core/attachment.h"
#include "guest/limiter/core/driver.h"
#include "guest/limiter/core/gate.h"

namespace tensor_fusion::guest::limiter {

extern "C" {
#define TF_HOOK(symbol, priority, ...) [[gnu::visibility("default")]] CUresult symbol __VA_ARGS__;
#include "guest/limiter/table.inc"
}

// Finds libcuda and fills driver(); true when it has been found. Called again after a miss.
bool resolve_driver();

// What stands for a function that this driver has not.
CUresult unavailable();

template <auto Member>
[[gnu::noinline, gnu::cold]] auto missing() {
  resolve_driver();
  auto function = driver().*Member;
  if (function == nullptr) function = reinterpret_cast<decltype(function)>(reinterpret_cast<void (*)()>(&unavailable));
  return function;
}

template <auto Member>
[[gnu::always_inline]] inline auto real() {
  auto function = driver().*Member;
  if (__builtin_expect(function == nullptr, 0)) function = missing<Member>();
  return function;
}

#define TF_REAL(symbol) real<&Driver::symbol>()
#define TF_ENTRY(symbol, ...) extern "C" [[gnu::visibility("default")]] CUresult symbol __VA_ARGS__

// What a hook does when no device of the slice is current: forward, unless that would be unlimited work.
#define TF_FORWARD(symbol, ...) (must_refuse() ? refusal() : TF_REAL(symbol)(__VA_ARGS__))

}  // namespace tensor_fusion::guest::limiter
