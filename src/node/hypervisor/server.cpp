#include "node/hypervisor/server.h"

#include <fcntl.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>

#include "node/hypervisor/protocol.h"

namespace tensor_fusion::node::hypervisor {
namespace {

constexpr std::uint64_t kRestNs = 100'000'000;

bool is_ours(uid_t user) { return user == 0 || user == ::geteuid(); }

void refuse(int fd) {
  const std::string line =
      error_reply({base::ErrorCode::kNoCapacity, "the hypervisor takes no more connections of yours for now: at most " +
                                                     std::to_string(Server::kMaxOfOneUser) +
                                                     " of one user, and some are kept for root"})
          .dump() +
      "\n";
  // Just made, it has room for this; who has gone already needs no answer.
  static_cast<void>(::send(fd, line.data(), line.size(), MSG_NOSIGNAL | MSG_DONTWAIT));
}

}  // namespace

struct Server::Connection {
  system::Fd fd;
  system::Peer peer;
  std::string in;
  std::string out;
  std::size_t unanswered = 0;  // requests without a reply yet; a stream's further replies do not count below 0
  std::uint32_t listening = EPOLLIN;
  bool answering = false;       // a line of it is being looked at, further up this stack
  bool waits_its_turn = false;  // with the next, after whatever else there is to do
  bool broken = false;

  bool paused() const { return waits_its_turn || unanswered >= kMaxUnanswered || out.size() > kPauseUnread; }
};

Server::Server(system::Loop& loop, system::Fd listener, Handlers handlers)
    : loop_(loop), listener_(std::move(listener)), handlers_(std::move(handlers)) {
  static_cast<void>(loop_.watch(listener_.get(), EPOLLIN, [this](std::uint32_t) { accept_some(); }));
  keep_spares();
}

Server::~Server() {
  if (resting_ != 0) loop_.cancel(resting_);
  loop_.forget(listener_.get());
  for (const auto& [id, connection] : connections_) loop_.forget(connection->fd.get());
}

// Who connects without a pause is never done: the loop comes back here by itself as long as anybody waits.
void Server::accept_some() {
  bool lent = false;  // a spare's place
  for (std::size_t taken = 0; taken < kMostAtOnce; ++taken) {
    system::Fd fd(::accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
    if (!fd) {
      const int problem = errno;
      if ((problem == EMFILE || problem == ENFILE) && !lent && !spares_.empty()) {
        spares_.pop_back();
        lent = true;
        continue;
      }
      // Whoever waits is still there: without a rest the loop would be told of them at once, and again.
      if (problem == EMFILE || problem == ENFILE || problem == ENOMEM || problem == ENOBUFS) rest();
      break;
    }
    const auto peer = system::peer_of(fd.get());
    if (peer && has_room_for(peer->uid) && (!lent || is_ours(peer->uid))) {
      take(std::move(fd), *peer);
    } else {
      refuse(fd.get());
      fd.reset();
      keep_spares();
    }
    lent = false;
  }
  keep_spares();
}

void Server::take(system::Fd fd, const system::Peer& peer) {
  const ConnectionId id = next_++;
  auto connection = std::make_unique<Connection>();
  connection->fd = std::move(fd);
  connection->peer = peer;
  const int number = connection->fd.get();
  connections_[id] = std::move(connection);
  static_cast<void>(loop_.watch(number, EPOLLIN, [this, id](std::uint32_t events) { on_event(id, events); }));
}

bool Server::has_room_for(uid_t user) const {
  if (is_ours(user)) return connections_.size() < kMaxConnections;
  const auto of_user =
      std::ranges::count_if(connections_, [user](const auto& entry) { return entry.second->peer.uid == user; });
  return connections_.size() < kMaxConnections - kKeptFree && static_cast<std::size_t>(of_user) < kMaxOfOneUser;
}

void Server::keep_spares() {
  while (spares_.size() < kSpares) {
    system::Fd spare(::fcntl(listener_.get(), F_DUPFD_CLOEXEC, 0));
    if (!spare) return;
    spares_.push_back(std::move(spare));
  }
}

void Server::rest() {
  if (resting_ != 0) return;
  loop_.change(listener_.get(), 0);
  resting_ = loop_.after(kRestNs, [this] {
    resting_ = 0;
    loop_.change(listener_.get(), EPOLLIN);
  });
}

void Server::on_event(ConnectionId id, std::uint32_t events) {
  const auto found = connections_.find(id);
  if (found == connections_.end()) return;
  if (events & EPOLLOUT) flush(*found->second);
  if (found->second->waits_its_turn) {
    // What came first is looked at first; then the loop tells of this again.
  } else if (!found->second->paused() && (events & (EPOLLIN | EPOLLHUP | EPOLLERR))) {
    read_from(id);
  } else if (events & (EPOLLHUP | EPOLLERR)) {
    found->second->broken = true;
  } else {
    answer_line(id);  // what has been written may have made room for the next
  }
  const auto still = connections_.find(id);
  if (still != connections_.end() && still->second->broken) close(id);
}

void Server::read_from(ConnectionId id) {
  std::array<char, 16384> block;
  Connection* connection = connections_.at(id).get();
  const ssize_t got = ::recv(connection->fd.get(), block.data(), block.size(), 0);
  if (got < 0 && (errno == EAGAIN || errno == EINTR)) return;
  if (got <= 0) {
    connection->broken = true;
    return;
  }
  connection->in.append(block.data(), static_cast<std::size_t>(got));
  answer_line(id);
}

void Server::answer_line(ConnectionId id) {
  Connection* connection = connections_.at(id).get();
  if (connection->answering) return;
  connection->answering = true;
  if (const std::size_t end = connection->in.find('\n'); !connection->paused() && end <= kLongestRequest) {
    const auto request = base::Json::parse(std::string_view(connection->in).substr(0, end));
    ++connection->unanswered;
    if (!request || !request->is_object()) {
      send(id,
           error_reply({base::ErrorCode::kProtocol, request ? "a request is a JSON object" : request.error().message}));
    } else if (const auto bounded = check_request(*request); !bounded) {
      send(id, error_reply(bounded.error()));
    } else {
      handlers_.request(id, connection->peer, *request);
    }
    if (!connections_.contains(id) || connection->broken) return;
    connection->in.erase(0, end + 1);
  }
  connection->answering = false;
  if (const std::size_t next = std::min(connection->in.find('\n'), connection->in.size());
      !connection->paused() && next > kLongestRequest) {
    send(id, error_reply({base::ErrorCode::kProtocol,
                          "a request of more than " + std::to_string(kLongestRequest >> 10) + " KiB is not read"}));
    connection->broken = true;
  } else if (!connection->paused() && next < connection->in.size()) {
    answer_later(id);
  }
  listen_to(*connection);
}

// One request may take a while, and who sends many at once is not alone.
void Server::answer_later(ConnectionId id) {
  connections_.at(id)->waits_its_turn = true;
  loop_.after(0, [this, id] {
    if (const auto found = connections_.find(id); found != connections_.end()) {
      found->second->waits_its_turn = false;
      answer_line(id);
    }
    const auto still = connections_.find(id);
    if (still != connections_.end() && still->second->broken) close(id);
  });
}

bool Server::is_behind(ConnectionId id) const {
  const auto found = connections_.find(id);
  return found != connections_.end() && !found->second->out.empty();
}

void Server::send(ConnectionId id, const base::Json& reply) {
  const auto found = connections_.find(id);
  if (found == connections_.end() || found->second->broken) return;
  Connection& connection = *found->second;
  const bool was_paused = connection.paused();
  if (connection.unanswered > 0) --connection.unanswered;
  connection.out += reply.dump();
  connection.out += '\n';
  flush(connection);
  if (connection.out.size() > kMaxUnread) connection.broken = true;
  // Closing happens from the loop: the caller may be in the middle of this connection's requests.
  if (connection.broken) {
    loop_.after(0, [this, id] { close(id); });
  } else if (was_paused && !connection.paused() && !connection.answering) {
    answer_later(id);
  }
}

void Server::flush(Connection& connection) {
  while (!connection.out.empty()) {
    const ssize_t sent = ::send(connection.fd.get(), connection.out.data(), connection.out.size(), MSG_NOSIGNAL);
    if (sent > 0) {
      connection.out.erase(0, static_cast<std::size_t>(sent));
    } else if (errno == EAGAIN) {
      break;
    } else if (errno != EINTR) {
      connection.broken = true;
      return;
    }
  }
  listen_to(connection);
}

void Server::listen_to(Connection& connection) {
  const std::uint32_t events = (connection.paused() ? 0u : EPOLLIN) | (connection.out.empty() ? 0u : EPOLLOUT);
  if (events != connection.listening) loop_.change(connection.fd.get(), events);
  connection.listening = events;
}

void Server::close(ConnectionId id) {
  const auto found = connections_.find(id);
  if (found == connections_.end()) return;
  loop_.forget(found->second->fd.get());
  connections_.erase(found);
  keep_spares();
  if (handlers_.closed) handlers_.closed(id);
}

}  // namespace tensor_fusion::node::hypervisor
