#pragma once
// Requests for slices: each is placed at once, refused with the reasons, or waits here in the order they came until
// something is given back. What a slice has whose processes have all ended is not refused as taken: it is about to be
// given back. Owns those that wait and their timers; what is placed is the tenant table's. Refuses a name
// that is taken, a second request of a stranger's connection that has not started its first, and more slices of one
// stranger than the state directory is to be filled with. One thread.
#include <functional>
#include <list>
#include <string>
#include <utility>
#include <vector>

#include "device/provider_process.h"
#include "node/hypervisor/server.h"
#include "node/hypervisor/state_directory.h"
#include "node/hypervisor/tenant_table.h"

namespace tensor_fusion::node::hypervisor {

inline constexpr std::uint64_t kInventoryNs = 31'000'000'000;  // as long as a provider may take to start

// What a limit that is changed later asks of the pool, too.
pool::PlaceRequest place_request(const RunRequest& request);
base::Error error_for(const pool::Refusal& refusal);

bool is_stranger(const system::Peer& peer);  // neither root nor the user whose rights this daemon has

// The devices are known, or will not be soon: a provider that has failed once will not have them within a request's
// patience.
bool has_looked(const DeviceTable& devices, const device::ProviderProcess& provider);

class RunQueue {
 public:
  struct Parts {
    system::Loop& loop;
    const StateDirectory& state;
    EventRing& events;
    DeviceTable& devices;
    TenantTable& tenants;
    device::ProviderProcess& provider;
    std::function<void(ConnectionId, const base::Json&)> send;
    std::function<void(std::function<void()>)> read_account;     // what the cards hold; then calls
    std::size_t slices_per_user;                                 // of a stranger
    std::vector<std::pair<std::string, std::string>> variables;  // that programs get
  };
  explicit RunQueue(Parts parts) : parts_(std::move(parts)) {}
  ~RunQueue();

  void run(ConnectionId connection, const system::Peer& peer, const base::Json& json);
  void retry();  // something was given back, or the devices are known now
  void closed(ConnectionId connection);
  bool empty() const { return waiting_.empty(); }

 private:
  struct Waiting {
    ConnectionId connection;
    system::Peer peer;
    RunRequest request;
    std::uint64_t asked_ns;
    system::Loop::TimerId timer = 0;
    bool rereads = false;       // the account is read anew before it is refused
    bool ends = false;          // a slice is about to be over: what it had may serve
    std::string told;           // what it waits for, as it was told last
    std::uint64_t rest_ns = 0;  // before it is told what has changed
    std::uint64_t may_tell_ns = 0;
    system::Loop::TimerId tell_timer = 0;  // runs while what it waits for is another, which may not last
    bool may_tell = false;                 // it has lasted
  };
  bool may_be_last(const Waiting& waiting) const;
  void retry_later();
  void tell(Waiting& waiting, std::string why);
  void tell_later(Waiting& waiting);
  void forget(const Waiting& waiting);
  bool try_run(Waiting& waiting, bool last);  // true: answered
  bool has_all(const system::Peer& peer) const;
  void give(const Waiting& waiting, const pool::Placement& placement);
  void answer(ConnectionId connection);  // one that waits, now
  bool is_crowded() const;
  void refuse(ConnectionId connection, const base::Error& error, const std::vector<std::string>& reasons = {});

  Parts parts_;
  std::list<Waiting> waiting_;
  system::Loop::TimerId retry_timer_ = 0;
};

}  // namespace tensor_fusion::node::hypervisor
