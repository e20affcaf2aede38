#pragma once
// A provider in a process of its own. Calls are asynchronous, answered in order, each with a deadline. When the process
// dies or a deadline passes it is killed, the calls under way fail, the health handler is told why in one sentence, and
// it is started again after a pause that doubles up to a minute. A library can so neither crash nor stop the daemon.
// One thread: the loop's.
#include <cstdint>
#include <deque>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "base/result.h"
#include "device/provider_wire.h"
#include "system/fd.h"
#include "system/loop.h"

namespace tensor_fusion::device {

struct ProviderDeadlines {
  std::uint64_t start_ns = 30'000'000'000;  // a driver may load firmware when it is first opened
  std::uint64_t call_ns = 3'000'000'000;
  std::uint64_t first_pause_ns = 200'000'000;
  std::uint64_t longest_pause_ns = 60'000'000'000;
};

class ProviderProcess {
 public:
  using Body = std::vector<char>;
  using Done = std::function<void(base::Result<Body>)>;  // the error's sentence names the call

  struct Events {
    std::function<void()> ready;                            // (again) started: read the devices afresh
    std::function<void(const std::string& why)> unhealthy;  // died, hung or refused to start
    std::function<void(const std::string& level, const std::string& message)> log;
  };

  // `library` empty: the built-in NVIDIA provider.
  ProviderProcess(system::Loop& loop, std::string library, ProviderDeadlines deadlines, Events events);
  ~ProviderProcess();
  ProviderProcess(const ProviderProcess&) = delete;
  ProviderProcess& operator=(const ProviderProcess&) = delete;

  void start();
  bool ready() const { return ready_; }
  pid_t pid() const { return pid_; }
  const std::string& name() const { return name_; }        // as it names itself
  const std::string& trouble() const { return trouble_; }  // why it is not ready; empty when it is
  std::uint64_t restarts() const { return restarts_; }
  std::size_t waiting() const { return calls_.size(); }

  void call(ProviderCall what, Body body, Done done);

  // The structs of a reply; a cut one is left out.
  template <typename Item>
  static std::vector<Item> items(const Body& body) {
    std::vector<Item> result(body.size() / sizeof(Item));
    if (!result.empty()) __builtin_memcpy(static_cast<void*>(result.data()), body.data(), result.size() * sizeof(Item));
    return result;
  }

 private:
  struct Call {
    ProviderCall what;
    Body body;
    Done done;
    std::uint64_t id;
  };
  void spawn();
  void send_next();
  void on_readable();
  bool take_message();
  void on_start(AccelResult result, const Body& body);
  void fail(const std::string& why);
  void drop_process();
  std::optional<int> end_process();  // the wait status where it could be reaped
  void schedule_restart();

  system::Loop& loop_;
  std::string library_;
  ProviderDeadlines deadlines_;
  Events events_;
  system::Fd socket_;
  pid_t pid_ = -1;
  bool ready_ = false;
  bool sent_ = false;  // the first of calls_ is with the process
  std::string name_;
  std::string trouble_ = "not started yet";
  std::uint64_t restarts_ = 0;
  std::uint64_t pause_ns_ = 0;
  std::uint64_t next_id_ = 1;
  system::Loop::TimerId deadline_ = 0;
  system::Loop::TimerId restart_ = 0;
  std::deque<Call> calls_;
  Body received_;
  std::uint64_t ready_since_ns_ = 0;
  std::vector<pid_t> stuck_;  // killed, but still inside the driver
};

}  // namespace tensor_fusion::device
