#pragma once
// Where a hypervisor keeps what must outlive it: records (limits and placement of each tenant), pages (second names of
// the tenants' pages, where no tenant reaches), tenants (what tenants see), logs. Opening it takes the lock, so that
// there is one hypervisor for one directory, and tries a write, so that a full or read-only directory is one clear
// sentence at the start and not a broken slice later.
#include <sys/types.h>

#include <optional>
#include <string>
#include <vector>

#include "base/result.h"
#include "system/file.h"

namespace tensor_fusion::node::hypervisor {

// Refuses a directory of another user, to root, too: what stands in it is acted on.
base::Result<void> check_owner(const std::string& path);

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
  // Makes the file for what a detached program prints, its user's own.
  base::Result<void> make_log(const std::string& id, uid_t user, gid_t group) const;
  void remove_log(const std::string& id) const;
  // Remembers it as the last of its user's of that name, once the slice is there.
  base::Result<void> name_log(const std::string& id, const std::string& name, uid_t user) const;
  void prune_logs() const;                                       // as LogShelf does, and the daemon's own
  void cut_logs(const std::vector<std::string>& running) const;  // of these only
  std::string log(const std::string& id) const { return logs() + "/" + id + ".log"; }

 private:
  StateDirectory(std::string path, system::FileLock lock) : path_(std::move(path)), lock_(std::move(lock)) {}
  std::string path_;
  system::FileLock lock_;
};

// What is kept of a slice, named by its id or its name, whether or not a hypervisor runs. Of a name it is the last one
// of this user; root and the state directory's own user get the last of anybody's where they have none.
std::optional<std::string> kept_log(const std::string& state, const std::string& word, uid_t user);

}  // namespace tensor_fusion::node::hypervisor
