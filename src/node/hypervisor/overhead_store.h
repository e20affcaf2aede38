#pragma once
// What a context was seen to cost, by device and driver version: kept in a file, so that a hypervisor that starts anew
// knows it before the first context is made. Bounded; refuses figures that no driver has. One thread.
#include <cstdint>
#include <string>
#include <vector>

namespace tensor_fusion::node::hypervisor {

class OverheadStore {
 public:
  void open(const std::string& file);  // a line that makes no sense is as good as none
  std::uint64_t of(const std::string& uuid, const std::string& driver) const;  // 0: never seen
  void keep(const std::string& uuid, const std::string& driver, std::uint64_t bytes);
  static constexpr std::size_t kMost = 256;

 private:
  struct Learned {
    std::string uuid, driver;
    std::uint64_t bytes = 0;
  };
  std::string file_;
  std::vector<Learned> learned_;  // the newest first
};

}  // namespace tensor_fusion::node::hypervisor
