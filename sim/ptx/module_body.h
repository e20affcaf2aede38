#pragma once

#include <map>
#include <memory>
#include <mutex>
#include <vector>

#include "sim/ptx/frame.h"
#include "sim/ptx/ir.h"
#include "sim/ptx/ptx.h"

namespace tensor_fusion::sim::ptx {

// A program with its registers placed for one number of lanes.
struct Linked {
  std::vector<Ins> code;
  std::vector<LinkedExtra> extras;
  std::vector<Slot> slots;
  std::vector<Slot> places;       // by register
  std::vector<Slot> frame_bases;  // by function
  std::uint32_t lanes = 0;
  std::size_t register_bytes = 0;  // scratch included
  std::uint32_t scratch = 0;       // offset of room for one 8-byte register
  std::uint32_t range_slots = 1;
};

[[nodiscard]] Linked link(const Program& program, std::uint32_t lanes);

class ModuleBody {
 public:
  std::vector<Kernel> kernels;
  std::vector<Global> globals;
  std::vector<Program> programs;  // by kernel
  int target = 0;
  int isa_version = 0;
  const AluTable* table = nullptr;

  // Safe from any thread; the answer lives as long as the module.
  [[nodiscard]] const Linked& linked(std::size_t kernel, std::uint32_t lanes) const;

 private:
  mutable std::mutex mutex_;
  mutable std::map<std::pair<std::size_t, std::uint32_t>, std::unique_ptr<Linked>> linked_;
};

}  // namespace tensor_fusion::sim::ptx
