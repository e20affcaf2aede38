#pragma once
// The shape of every charged call: reserve, call the driver, remember, and undo what does not hold.
#include "guest/limiter/core/fault.h"
#include "guest/limiter/core/refusal.h"
#include "guest/limiter/hooks/entry.h"

namespace tensor_fusion::guest::limiter {

// Reserves, and when the slice is full first collects what is owed to it (memory that pools have given back, contexts
// whose cost is known by now, processes that have died). What fails counts as a refusal: the program is turned away.
Room reserve(Device& device, std::uint64_t bytes);
Room try_reserve(Device& device, std::uint64_t bytes);  // the same for who has another way to go: it does not count
void release(Device& device, std::uint64_t bytes);
CUresult no_room(Room room);  // what a program is told of a reservation that was refused

// `call()` asks the driver, `holding()` describes what it gave, `undo()` gives it back.
template <class Call, class Describe, class Undo>
[[gnu::always_inline]] inline CUresult charged(Device& device, std::uint64_t bytes, Call call, Describe describe,
                                               Undo undo) {
  if (const Room room = reserve(device, bytes); !room) return no_room(room);
  fault(FaultPoint::reserved);
  const CUresult result = call();
  if (result != CUDA_SUCCESS) {
    release(device, bytes);
    return result;
  }
  fault(FaultPoint::allocated);
  Holding holding = describe();
  holding.bytes = bytes;
  holding.device = static_cast<std::uint32_t>(&device - attachment()->devices);
  holding.context = t_current.context;
  if (attachment()->holdings.insert(holding)) return CUDA_SUCCESS;
  undo();
  release(device, bytes);
  return CUDA_ERROR_OUT_OF_MEMORY;
}

// Pointers that other processes may have open.
bool take_shared(Attachment& attached, std::uint64_t key, Holding& holding);
void end_shared(Attachment& attached, const Holding& holding, bool freed);

// Frees a thing: forgotten before the driver frees it, since another thread may be given the same handle at once.
template <class Call>
[[gnu::always_inline]] inline CUresult discharged(Kind kind, std::uint64_t key, Call call) {
  Attachment* attached = attachment();
  Holding holding;
  if (attached == nullptr) return call();
  if (!attached->holdings.take(kind, key, holding)) {
    if (kind != Kind::pointer || attached->shared_pointers.load(std::memory_order_relaxed) == 0) return call();
    if (!take_shared(*attached, key, holding)) return call();
    const CUresult result = call();
    end_shared(*attached, holding, result == CUDA_SUCCESS);
    return result;
  }
  const CUresult result = call();
  if (result == CUDA_SUCCESS) {
    release(attached->devices[holding.device], holding.bytes);
  } else {
    attached->holdings.insert(holding);
  }
  return result;
}

// Books what contexts cost that were paid for by guess, once that is known; true when any was.
bool settle_guesses(Device& device);

// Brings the charge of every pool on this device to what it really reserves now; true when it became less.
bool settle_pools(Attachment& attached, const Device* device);

}  // namespace tensor_fusion::guest::limiter
