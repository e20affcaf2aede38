#pragma once
// What processes share beside device memory: the last record of an inter-process event. One small file per event in the
// machine's directory, mapped by every process that opened it; it goes away with its maker.
#include <atomic>
#include <cstdint>
#include <expected>
#include <memory>
#include <string>

#include "sim/cuda/abi.h"
#include "sim/device/context.h"

namespace tensor_fusion::sim::cuda {

struct SharedEventPage {
  std::atomic<std::uint64_t> sequence;  // odd while being written
  std::atomic<std::uint64_t> ticket;
  std::atomic<std::uint32_t> context;
};

struct SharedEvent {
  // The maker's file, or one opened by name.
  static std::shared_ptr<SharedEvent> create(const std::string& path);
  static std::shared_ptr<SharedEvent> open(const std::string& path);
  ~SharedEvent();
  SharedEvent() = default;
  SharedEvent(const SharedEvent&) = delete;
  SharedEvent& operator=(const SharedEvent&) = delete;

  void store(device::Dependency what);
  [[nodiscard]] device::Dependency load() const;

  std::string path;
  bool owner = false;
  SharedEventPage* page = nullptr;
};

}  // namespace tensor_fusion::sim::cuda
