#pragma once
// Who has asked to be told when a slice is over: each is answered at once when it is, and else after the time that it
// gave, with the processes that are known to live in it. Meanwhile whether it is over is looked at more often than
// otherwise: a slice's last process need be none that is watched. Owns no tenant. One thread: the loop's.
#include <cstdint>
#include <functional>
#include <list>
#include <string>

#include "base/json.h"
#include "node/hypervisor/server.h"
#include "node/hypervisor/tenant.h"
#include "system/loop.h"

namespace tensor_fusion::node::hypervisor {

class EndWait {
 public:
  struct Hooks {
    std::function<Tenant*(const std::string& id)> find;  // null: it is no more
    std::function<void(Tenant&)> look;                   // whether it is over; it may be gone afterwards
    std::function<void(ConnectionId, const base::Json&)> send;
  };
  EndWait(system::Loop& loop, Hooks hooks) : loop_(loop), hooks_(std::move(hooks)) {}
  ~EndWait() { loop_.cancel(timer_); }
  EndWait(const EndWait&) = delete;
  EndWait& operator=(const EndWait&) = delete;

  // False: this connection waits already, and for one slice at a time.
  bool ask(ConnectionId connection, const std::string& id, std::uint64_t wait_ms);
  void closed(ConnectionId connection);
  void look_soon() { look_in(0); }  // some slice is over

 private:
  struct Asked {
    ConnectionId connection;
    std::string id;
    std::uint64_t until_ns;
  };
  void look_in(std::uint64_t ns);
  void look();

  system::Loop& loop_;
  Hooks hooks_;
  std::list<Asked> asked_;
  system::Loop::TimerId timer_ = 0;
};

}  // namespace tensor_fusion::node::hypervisor
