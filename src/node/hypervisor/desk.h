#pragma once
// Answers what is asked over the local socket. Owns who asked before the devices were known and who listens on;
// requests for slices are RunQueue's. Whoever may reach the socket may look; changing a tenant takes its own user, root
// or the daemon's user. One thread.
#include <functional>
#include <list>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "device/provider_process.h"
#include "node/hypervisor/end_wait.h"
#include "node/hypervisor/meter.h"
#include "node/hypervisor/run_queue.h"
#include "node/hypervisor/server.h"
#include "node/hypervisor/state_directory.h"
#include "node/hypervisor/tenant_table.h"

namespace tensor_fusion::node::hypervisor {

class Desk {
 public:
  struct Parts {
    system::Loop& loop;
    const StateDirectory& state;
    EventRing& events;
    DeviceTable& devices;
    TenantTable& tenants;
    Meter& meter;
    ShareLoop& share;
    device::ProviderProcess& provider;
    std::function<void()> stop;
    std::string version;
    std::size_t slices_per_user;
    std::vector<std::pair<std::string, std::string>> variables;  // that programs get
  };
  explicit Desk(Parts parts);
  ~Desk();

  void set_server(Server* server) { server_ = server; }
  void on_request(ConnectionId connection, const system::Peer& peer, const base::Json& request);
  void on_closed(ConnectionId connection);
  void retry_waiting();  // something was given back, or the devices are known now
  void on_event(const Event& event);
  bool idle() const { return queue_.empty(); }

 private:
  struct Stream {
    bool events = false;
    system::Loop::TimerId timer = 0;
  };
  // Came before the devices were known.
  struct Held {
    ConnectionId connection;
    system::Peer peer;
    base::Json request;
    system::Loop::TimerId timer;
  };
  using Handler = void (Desk::*)(ConnectionId, const system::Peer&, const base::Json&);
  struct Row {
    const char* op;
    Handler handler;
    std::uint64_t patience_ns = 0;  // how long it may be held until the devices are known
  };
  static const Row kRows[];

  void run(ConnectionId, const system::Peer&, const base::Json&);
  void started(ConnectionId, const system::Peer&, const base::Json&);
  void list(ConnectionId, const system::Peer&, const base::Json&);
  void list_devices(ConnectionId, const system::Peer&, const base::Json&);
  void top(ConnectionId, const system::Peer&, const base::Json&);
  void limit(ConnectionId, const system::Peer&, const base::Json&);
  void kill(ConnectionId, const system::Peer&, const base::Json&);
  void await_end(ConnectionId, const system::Peer&, const base::Json&);
  void logs(ConnectionId, const system::Peer&, const base::Json&);
  void doctor(ConnectionId, const system::Peer&, const base::Json&);
  void list_events(ConnectionId, const system::Peer&, const base::Json&);
  void version(ConnectionId, const system::Peer&, const base::Json&);
  void stop(ConnectionId, const system::Peer&, const base::Json&);

  void hold(ConnectionId, const system::Peer&, const base::Json&, std::uint64_t patience_ns);
  void refuse(ConnectionId connection, const base::Error& error, const std::vector<std::string>& reasons = {});
  Tenant* tenant_for(ConnectionId connection, const system::Peer& peer, const base::Json& request, const char* key);
  // False: it is another user's, and that is answered.
  bool is_for(ConnectionId connection, const system::Peer& peer, const Tenant& tenant);

  Parts parts_;
  Server* server_ = nullptr;
  RunQueue queue_;
  EndWait ends_;
  std::list<Held> held_;
  std::map<ConnectionId, Stream> streams_;
  std::uint64_t started_ns_;
};

}  // namespace tensor_fusion::node::hypervisor
