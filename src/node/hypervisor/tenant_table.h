#pragma once
// All tenants: made, restored, ended, and found by id, name or process. Owns them, and the watch over their first
// processes, pages and views; what goes on in their claims is ProcessWatch's. One thread.
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "node/hypervisor/claim_view.h"
#include "node/hypervisor/device_table.h"
#include "node/hypervisor/end_watch.h"
#include "node/hypervisor/event_ring.h"
#include "node/hypervisor/kill_rounds.h"
#include "node/hypervisor/owner_book.h"
#include "node/hypervisor/process_watch.h"
#include "node/hypervisor/state_directory.h"
#include "node/hypervisor/tenant.h"
#include "system/loop.h"
#include "system/process.h"

namespace tensor_fusion::node::hypervisor {

class TenantTable {
 public:
  struct Hooks {
    std::function<void()> rang;            // some tenant's process came, left, or asks for a settlement
    std::function<void(Tenant&)> changed;  // its processes came or went
    std::function<void()> capacity;        // something was given back
  };

  TenantTable(system::Loop& loop, const StateDirectory& state, EventRing& events, ShareLoop& share,
              DeviceTable& devices);
  ~TenantTable();
  TenantTable(const TenantTable&) = delete;
  TenantTable& operator=(const TenantTable&) = delete;
  void set_hooks(Hooks hooks) { hooks_ = std::move(hooks); }

  void restore();  // from the state directory; once, at the start
  base::Result<Tenant*> create(TenantRecord record, ConnectionId lease);
  base::Result<void> started(Tenant& tenant, const system::ProcessStat& first);
  base::Result<void> change(Tenant& tenant, TenantRecord changed);  // new limits or shares
  void remove(Tenant& tenant, const std::string& why);
  KillAnswer signal(const Tenant& tenant, int number, std::optional<uid_t> user) {
    return kills_.signal(tenant, number, user);
  }
  void look_for_end(Tenant& tenant) { end_if_over(tenant); }  // it may be gone afterwards
  // Whether all that are known of it have ended, and it is only not yet taken away; then that is looked at now. Not
  // where somebody may hide in it, who keeps it for as long as he likes.
  bool is_ending(Tenant& tenant);
  bool is_any_ending();
  void lease_lost(ConnectionId connection);
  // What another hypervisor gave to a run at the moment of its own end.
  void remove_unheard_of(const std::string& token, uid_t user);
  void settle_shares();  // gives the share loop the devices' ordinals once they are known

  Tenant* find(const std::string& id_or_name);
  Tenant* find_by_id(const std::string& id);
  std::vector<Tenant*> all();
  bool empty() const { return tenants_.empty(); }
  bool busy() const;  // some tenant has a process with a claim
  std::string free_id();
  std::vector<pool::PlaceAllocation> allocations(const std::string& except_id = "") const;

  // Whose process it is, by its claim slot, its namespace or its descent. Null: no tenant's.
  Tenant* owner_of(pid_t host_pid);

  // Whether it has a live claim, and the limiter at work as far as that is to be seen from here.
  bool is_limited(Tenant& tenant, pid_t host_pid);

  void scan(Tenant& tenant) { watch_.scan(tenant); }
  void scan_all();        // some ten times a second: who died before its claim was seen is reclaimed by this
  void look_after_all();  // verify and repair: about once a second

 private:
  void adopt(std::unique_ptr<Tenant> tenant);
  void restore_one(const std::string& id);
  Tenant* belongs_to(pid_t host_pid) { return owners_.owner_of(host_pid, all()); }
  void watch_root(Tenant& tenant);
  void look_where_it_is(Tenant& tenant);
  std::vector<pid_t> in_namespace(const Tenant& tenant);
  void find_view(Tenant& tenant);
  void guard_view(Tenant& tenant);
  void end_if_over(Tenant& tenant);
  void end(Tenant& tenant);
  void end_in_turn(Tenant& tenant);
  void end_next();
  void verify(Tenant& tenant);
  void note_tampering(Tenant& tenant, const std::string& what);
  ShareTenant share_tenant(const Tenant& tenant) const;
  std::vector<ShareDevice> share_devices(const Tenant& tenant) const;
  std::string hidden(const std::string& id) const { return state_.pages() + "/" + id; }

  system::Loop& loop_;
  const StateDirectory& state_;
  EventRing& events_;
  ShareLoop& share_;
  DeviceTable& devices_;
  Hooks hooks_;
  ProcessWatch watch_;
  std::map<std::string, std::unique_ptr<Tenant>> tenants_;  // by id
  OwnerBook owners_;
  std::optional<ProcessTable> restoring_;  // as long as it serves for all of them
  std::deque<std::string> ending_;         // ids of those whose turn it is to be ended
  EndWatch ends_;
  KillRounds kills_;
  system::Fd notify_;  // eventfd, written by the share loop, which listens to the bells
  std::uint64_t next_share_id_ = 1;
  std::uint64_t next_number_;
};

}  // namespace tensor_fusion::node::hypervisor
