#pragma once
// The command line's side of the local protocol: blocking calls on one connection. The run request's connection is also
// its lease: until `started` has been said, losing the connection gives the placement back. One thread per client.
//
// Replies that are only shown stay JSON; their fields are listed in docs/internals/protocol.md:
//   list     {"tenants":[{"id","name","command","state","pid","user","qos","created_ms","tampered","devices":[{"uuid",
//            "index","memory_limit_bytes","memory_used_bytes","memory_peak_bytes","unledgered_bytes","request_share",
//            "limit_share","used_share","held_launches","refused"}],"processes":[{"pid","tenant_pid","command","limiter",
//            "memory_bytes"}]}],"unlimited":[{"pid","uuid","command","memory_bytes"}]}
//   devices  {"devices":[{"uuid","index","model","vendor","node","numa","memory_bytes","memory_used_bytes","tflops",
//            "utilization_percent","temperature_celsius","power_watts","healthy","health","request_share_total",
//            "limit_share_total","memory_reserved_bytes","tenants":[names]}],"provider":{…}}
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"
#include "node/hypervisor/protocol.h"
#include "system/unix_socket.h"

namespace tensor_fusion::node::hypervisor {

// Where the state directory is: an explicit one, else TENSOR_FUSION_STATE, else /run/tensor-fusion for root,
// $XDG_RUNTIME_DIR/tensor-fusion, /tmp/tensor-fusion-<uid>.
std::string state_directory(const std::string& explicit_directory = "");

// The reason that a hypervisor's log gives for its end, without the name it is said under; "" when there is none.
std::string last_complaint(std::string_view log);

struct EnsureOptions {
  std::string state;  // as resolved by state_directory()
  std::vector<std::string>
      hypervisor_command;  // argv that starts one, e.g. {"/proc/self/exe","hypervisor","--state",S}
  std::uint64_t timeout_ms = 10'000;
};

class Client {
 public:
  // kUnavailable when no hypervisor listens there.
  static base::Result<Client> connect(const std::string& state);
  // Connects; starts a hypervisor as a daemon (own session, output in <state>/hypervisor.log, leaves when idle) when
  // there is none. A second one racing for the same state is no error.
  static base::Result<Client> ensure_running(const EnsureOptions& options);

  // Waits as long as request.wait_ms and an answer; `waits` is told for what, each time that changes.
  base::Result<RunReply> run(const RunRequest& request, const std::function<void(const std::string&)>& waits = {});
  base::Result<void> started(const std::string& id, int pid);  // pid of the child on the host, before or after exec
  base::Result<base::Json> list();
  base::Result<base::Json> devices();
  base::Result<base::Json> limit(const LimitRequest& request);
  base::Result<base::Json> kill(const std::string& tenant, int signal_number);  // every process of the tenant
  // {"over","pids"}: whether it is over, after so long at most, and who is known to live in it.
  base::Result<base::Json> await_end(const std::string& id, std::uint64_t wait_ms);
  base::Result<base::Json> logs(const std::string& tenant);  // {"path"}: of a running or a finished tenant
  base::Result<base::Json> doctor();                         // {"facts":[{"name","ok","stops","detail","advice"}]}
  base::Result<base::Json> events(
      std::uint64_t after = 0);  // {"events":[{"seq","time_ms","kind","tenant","device","message"}]}
  base::Result<base::Json> version(
      std::uint64_t timeout_ms = 10'000);  // {"version","protocol","pid","state","uptime_ms"}
  base::Result<void> stop();               // ends the hypervisor; tenants keep running

  // Sends {"op":"top"|"events", "interval_ms"} and hands every line to `each` until it returns false or the end.
  base::Result<void> stream(const base::Json& request, const std::function<bool(const base::Json&)>& each);
  base::Result<base::Json> call(const base::Json& request, std::uint64_t timeout_ms = 10'000);
  pid_t pid() const { return pid_; }  // the hypervisor's; 0 = not to be seen from here
  // Called with its pid when an answer takes more than a second: people should not wait in silence.
  void when_slow(std::function<void(pid_t)> tell) { when_slow_ = std::move(tell); }

 private:
  static base::Result<Client> connect_and_greet(const std::string& state);
  Client(system::LineConnection connection, pid_t pid) : connection_(std::move(connection)), pid_(pid) {}
  base::Result<base::Json> call_patiently(const base::Json& request, std::uint64_t timeout_ms);
  base::Error said(base::Error error) const;  // of one that does not answer: which, and what to do
  base::Result<std::string> receive(std::uint64_t timeout_ms);
  system::LineConnection connection_;
  pid_t pid_ = 0;
  std::function<void(pid_t)> when_slow_;
};

}  // namespace tensor_fusion::node::hypervisor
