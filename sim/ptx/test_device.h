#pragma once

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <map>
#include <memory>
#include <optional>
#include <sstream>
#include <string>
#include <vector>

#include "sim/ptx/ptx.h"

// For tests and benchmarks: a module loaded into host memory, launches from plain values.
namespace tensor_fusion::sim::ptx {

class TestDevice : public Memory {
 public:
  explicit TestDevice(const std::string& text, Isa isa = Isa::best) {
    auto module = parse(text, {.device_capability = 90, .isa = isa});
    if (!module) {
      error = module.error();
      return;
    }
    image.module = *module;
    for (const Global& global : image.module->globals()) image.global_addresses.push_back(allocate(global.size));
    for (std::size_t i = 0; i < image.global_addresses.size(); ++i) {
      const std::vector<std::byte> bytes = image.module->initial_bytes(i, image.global_addresses);
      std::memcpy(reinterpret_cast<void*>(image.global_addresses[i]), bytes.data(), bytes.size());
    }
  }

  static std::string file(const std::string& name) {
    // The build links the folder here; a compiler's cache may hold any other tree's path in __FILE__.
    const auto folder = std::filesystem::read_symlink("/proc/self/exe").parent_path().parent_path() / "testdata/ptx";
    std::ifstream in(folder / name);
    if (!in) {
      std::fprintf(stderr, "cannot read %s\n", (folder / name).c_str());
      std::abort();
    }
    std::stringstream text;
    text << in.rdbuf();
    return text.str();
  }

  std::uint64_t allocate(std::size_t bytes) {
    bytes = bytes == 0 ? 1 : bytes;
    auto memory = std::make_unique<std::byte[]>(bytes + 256);
    const auto raw = reinterpret_cast<std::uint64_t>(memory.get());
    const std::uint64_t begin = (raw + 255) / 256 * 256;
    ranges_[begin] = {begin, begin + bytes, true};
    memory_.push_back(std::move(memory));
    return begin;
  }

  template <class T>
  std::uint64_t upload(const std::vector<T>& values) {
    const std::uint64_t at = allocate(values.size() * sizeof(T));
    std::memcpy(reinterpret_cast<void*>(at), values.data(), values.size() * sizeof(T));
    return at;
  }

  template <class T>
  std::vector<T> download(std::uint64_t at, std::size_t count) const {
    std::vector<T> values(count);
    std::memcpy(values.data(), reinterpret_cast<const void*>(at), count * sizeof(T));
    return values;
  }

  void protect(std::uint64_t at) { ranges_[at].writable = false; }

  std::optional<Range> range_of(std::uint64_t address) override {
    auto next = ranges_.upper_bound(address);
    if (next == ranges_.begin()) return std::nullopt;
    const Range& range = std::prev(next)->second;
    if (address >= range.end) return std::nullopt;
    return range;
  }

  template <class... Args>
  Outcome launch(const std::string& kernel, std::array<std::uint32_t, 3> grid, std::array<std::uint32_t, 3> block,
                 Args... args) {
    Launch launch;
    launch.image = &image;
    if (image.module == nullptr) return Outcome{.status = Status::bad_launch};
    launch.kernel = image.module->find_kernel(kernel);
    if (launch.kernel == nullptr) return Outcome{.status = Status::bad_launch};
    std::vector<std::byte> params(launch.kernel->parameter_bytes);
    std::size_t index = 0;
    [[maybe_unused]] const auto put = [&](auto value) {
      const Parameter& parameter = launch.kernel->parameters.at(index++);
      std::memcpy(params.data() + parameter.offset, &value, std::min(parameter.size, sizeof value));
    };
    (put(args), ...);
    launch.params = params;
    launch.grid = grid;
    launch.block = block;
    launch.dynamic_shared_bytes = dynamic_shared_bytes;
    launch.cooperative = cooperative;
    return run(launch, *this, options);
  }

  Image image;
  ParseError error;
  RunOptions options;
  std::uint32_t dynamic_shared_bytes = 0;
  bool cooperative = false;

 private:
  std::vector<std::unique_ptr<std::byte[]>> memory_;
  std::map<std::uint64_t, Range> ranges_;
};

}  // namespace tensor_fusion::sim::ptx
