#pragma once
// Signals all processes of a slice, and after SIGKILL also who comes meanwhile: one round at a time over all slices
// that are being killed, with a rest ten times as long as it took, for some two seconds. A stranger's signals reach
// only whom the kernel would let that user signal. Owns no tenant. One thread: the loop's.
#include <sys/types.h>

#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "node/hypervisor/process_table.h"
#include "node/hypervisor/tenant.h"
#include "system/loop.h"

namespace tensor_fusion::node::hypervisor {

struct KillAnswer {
  std::vector<pid_t> reached;
  std::vector<pid_t> spared;  // it is not for who asked to signal them
};

class KillRounds {
 public:
  struct Hooks {
    std::function<std::vector<Tenant*>()> all;
    std::function<Tenant*(const std::string& id)> find;  // null: it is no more
    std::function<void(Tenant&)> emptied;                // nobody is left of it
  };
  KillRounds(system::Loop& loop, Hooks hooks) : loop_(loop), hooks_(std::move(hooks)) {}
  ~KillRounds() { loop_.cancel(timer_); }
  KillRounds(const KillRounds&) = delete;
  KillRounds& operator=(const KillRounds&) = delete;

  // `user`: who asks, where it is a stranger.
  KillAnswer signal(const Tenant& tenant, int number, std::optional<uid_t> user);
  void forget_look() { last_.reset(); }

 private:
  struct Kill {
    std::optional<uid_t> user;
    std::uint64_t until_ns = 0;
  };
  // The same for all who ask at the same time.
  struct Look {
    ProcessTable table;
    std::uint64_t at_ns = 0;
    std::uint64_t took_ns = 0;
  };
  void keep_killing(const std::string& id, std::optional<uid_t> user);
  void round();

  system::Loop& loop_;
  Hooks hooks_;
  std::map<std::string, Kill> killing_;  // by id
  std::optional<Look> last_;
  system::Loop::TimerId timer_ = 0;
};

}  // namespace tensor_fusion::node::hypervisor
