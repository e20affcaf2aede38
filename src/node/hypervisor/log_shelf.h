#pragma once
// What detached programs have printed, a file each, written by the programs themselves. A shelf keeps of each file the
// newest part, and of each user as many files and bytes as one may fill the state directory with: files of slices that
// still run stay, of the others the oldest go first. Nobody stands between a program and its file: what is too much is
// cut out of the front from outside, and on disk only, so that whoever writes or reads at a place stays at it. Reads
// and writes files; one thread.
#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "base/result.h"

namespace tensor_fusion::node::hypervisor {

struct ShelfBounds {
  std::uint64_t file_bytes = 8u << 20;
  std::uint64_t user_bytes = 64u << 20;
  std::size_t user_files = 64;  // of slices that have ended
};

class LogShelf {
 public:
  explicit LogShelf(std::string folder, ShelfBounds bounds = {}) : folder_(std::move(folder)), bounds_(bounds) {}

  void prune(const std::function<bool(const std::string& id)>& runs) const;
  // Of these only, all that run: what may have grown since.
  void cut_running(const std::vector<std::string>& ids) const;

 private:
  std::uint64_t kept_of_each(std::uint64_t running) const;
  std::string folder_;
  ShelfBounds bounds_;
};

// The newest `keep` bytes of a file that only we write, once it has more than `most`.
void shorten(const std::string& file, std::uint64_t most, std::uint64_t keep);

// What is there of an output from the file's place on; where its front was cut, from the first whole line. The place
// is behind it afterwards. A file that has become shorter than its place is read from its front.
base::Result<std::string> read_kept(int file);

}  // namespace tensor_fusion::node::hypervisor
