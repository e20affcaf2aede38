#pragma once
// The daemon's end of the local protocol: accepts, cuts lines, parses JSON, writes replies. Bounded in connections (of
// one user too), in what one may send without an end of line and in what it may leave unread; who exceeds a bound is
// told so where it reads, and closed. Requests of a client that has many unanswered or unread ones wait in its socket;
// of those that came together one is looked at, then everybody else has a turn.
// Where no descriptor is left it closes others than root's and its own user's, and then rests. One thread.
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "base/json.h"
#include "system/loop.h"
#include "system/unix_socket.h"

namespace tensor_fusion::node::hypervisor {

using ConnectionId = std::uint64_t;

class Server {
 public:
  static constexpr std::size_t kMaxConnections = 512;
  static constexpr std::size_t kMaxOfOneUser = 128;        // but for root and the daemon's own user
  static constexpr std::size_t kKeptFree = 32;             // of all, for these two
  static constexpr std::size_t kSpares = 8;                // descriptors for these two when there are no others
  static constexpr std::size_t kMostAtOnce = 16;           // taken or refused, before the loop looks at anything else
  static constexpr std::size_t kMaxUnanswered = 16;        // requests of one connection at work at the same time
  static constexpr std::size_t kPauseUnread = 256u << 10;  // no new request is looked at above this
  static constexpr std::size_t kMaxUnread = 8u << 20;      // bytes of replies a client has not taken yet

  struct Handlers {
    std::function<void(ConnectionId, const system::Peer&, const base::Json&)> request;
    std::function<void(ConnectionId)> closed;
  };

  Server(system::Loop& loop, system::Fd listener, Handlers handlers);
  ~Server();
  Server(const Server&) = delete;
  Server& operator=(const Server&) = delete;

  void send(ConnectionId connection, const base::Json& reply);  // nothing when it is gone
  bool open(ConnectionId connection) const { return connections_.contains(connection); }
  bool is_behind(ConnectionId connection) const;  // it has not taken all that it was sent
  void close(ConnectionId connection);
  std::size_t connections() const { return connections_.size(); }
  ConnectionId next() const { return next_; }  // what the next one will be called

 private:
  struct Connection;
  void accept_some();
  void take(system::Fd fd, const system::Peer& peer);
  bool has_room_for(uid_t user) const;
  void keep_spares();
  void rest();
  void on_event(ConnectionId id, std::uint32_t events);
  void read_from(ConnectionId id);
  void answer_line(ConnectionId id);
  void answer_later(ConnectionId id);
  void listen_to(Connection& connection);
  void flush(Connection& connection);

  system::Loop& loop_;
  system::Fd listener_;
  Handlers handlers_;
  std::map<ConnectionId, std::unique_ptr<Connection>> connections_;
  std::vector<system::Fd> spares_;
  system::Loop::TimerId resting_ = 0;
  ConnectionId next_ = 1;
};

}  // namespace tensor_fusion::node::hypervisor
