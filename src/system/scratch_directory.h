#pragma once
// A directory for a test or a benchmark, removed with everything in it at the end.
#include <cstdlib>
#include <string>

#include "system/file.h"

namespace tensor_fusion::system {

class ScratchDirectory {
 public:
  ScratchDirectory() {
    const char* base = std::getenv("TMPDIR");
    std::string name = std::string(base ? base : "/tmp") + "/tensor-fusion-scratch-XXXXXX";
    if (::mkdtemp(name.data())) root_ = name;
  }
  ScratchDirectory(const ScratchDirectory&) = delete;
  ScratchDirectory& operator=(const ScratchDirectory&) = delete;
  ~ScratchDirectory() {
    if (!root_.empty()) static_cast<void>(remove_tree(root_));
  }
  const std::string& root() const { return root_; }
  std::string path(const std::string& name) const { return root_ + "/" + name; }

 private:
  std::string root_;
};

}  // namespace tensor_fusion::system
