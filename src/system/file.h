#pragma once
// Files as the daemon needs them: bounded reads, and writes that a crash cannot tear (write beside, sync, rename).
// Errors carry the path and what to do. Any thread.
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "system/fd.h"

namespace tensor_fusion::system {

// A sentence for the present errno of an operation on a path, with the matching code (no space, read-only, permission,
// …).
base::Error error_of(const std::string& doing, const std::string& path, int error_number);

base::Result<std::string> read_file(const std::string& path, std::size_t max_bytes = 16u << 20);
base::Result<void> replace_file(const std::string& path, std::string_view content, unsigned mode = 0644);
base::Result<void> make_directories(const std::string& path, unsigned mode = 0755);
base::Result<void> remove_tree(const std::string& path);           // does not follow links; a missing path is no error
std::vector<std::string> list_directory(const std::string& path);  // names, sorted, without dots; empty when unreadable
bool exists(const std::string& path);
// Lets one user, beside the owner and nobody else, look into and through a folder of ours. False where the file system
// keeps no lists of users; the folder is then as it was.
base::Result<bool> let_user_in(const std::string& folder, std::uint32_t user);

struct FileIdentity {
  std::uint64_t device = 0;
  std::uint64_t inode = 0;
  std::uint64_t size = 0;
  bool operator==(const FileIdentity&) const = default;
};
std::optional<FileIdentity> identity_of(const std::string& path);  // does not follow links
std::optional<FileIdentity> identity_of(int fd);

// An exclusive lock held as long as the object lives (and released by the kernel when the process dies).
class FileLock {
 public:
  // The error is kAlreadyRunning when another process holds it, and carries that process's pid in the sentence.
  static base::Result<FileLock> acquire(const std::string& path);
  int fd() const { return fd_.get(); }

 private:
  explicit FileLock(Fd fd) : fd_(std::move(fd)) {}
  Fd fd_;
};
// Whether somebody holds it, asked without holding it.
bool is_locked(const std::string& path);

}  // namespace tensor_fusion::system
