#pragma once
// Where a hypervisor keeps what must outlive it: records (limits and placement of each tenant), pages (second names of
// the tenants' pages, where no tenant reaches), tenants (what tenants see), logs. Opening it takes the lock, so that
// there is one hypervisor for one directory, and tries a write, so that a full or read-only directory is one clear
// sentence at the start and not a broken slice later.
#include <sys/types.h>

#include <optional>
#include <string>

#include "base/result.h"
#include "system/file.h"

namespace tensor_fusion::node::hypervisor {

class StateDirectory {
 public:
  static base::Result<StateDirectory> open(const std::string& path);

  const std::string& path() const { return path_; }
  std::string socket() const;
  std::string records() const { return path_ + "/records"; }
  std::string record(const std::string& id) const { return records() + "/" + id + ".json"; }
  std::string pages() const { return path_ + "/pages"; }
  std::string tenants() const { return path_ + "/tenants"; }
  std::string tenant(const std::string& id) const { return tenants() + "/" + id; }
  std::string logs() const { return path_ + "/logs"; }
  // Makes the file for what a detached program prints, its user's own, and remembers it as the last of that name.
  base::Result<void> keep_log(const std::string& id, const std::string& name, uid_t user, gid_t group) const;
  void prune_logs() const;  // the oldest beyond kLogsKept go
  static constexpr std::size_t kLogsKept = 256;
  std::string log(const std::string& id) const { return logs() + "/" + id + ".log"; }

 private:
  StateDirectory(std::string path, system::FileLock lock) : path_(std::move(path)), lock_(std::move(lock)) {}
  std::string path_;
  system::FileLock lock_;
};

// What is kept of a slice, named by its id or its name (the last of that name), whether or not a hypervisor runs.
std::optional<std::string> kept_log(const std::string& state, const std::string& word);

}  // namespace tensor_fusion::node::hypervisor
