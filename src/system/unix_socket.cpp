#include "system/unix_socket.h"

#include <poll.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>

#include <array>
#include <cerrno>
#include <cstring>

#include "system/clock.h"
#include "system/file.h"
#include "system/process.h"

namespace tensor_fusion::system {
namespace {

using base::ErrorCode;

constexpr int kPeerPidfd = 77;  // SO_PEERPIDFD of Linux 6.5

base::Result<sockaddr_un> address_of(const std::string& path) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  if (path.size() >= sizeof address.sun_path)
    return base::fail(ErrorCode::kUsage, "the path is too long for a socket (" +
                                             std::to_string(sizeof address.sun_path - 1) +
                                             " letters at most): " + path + "; choose a shorter --state");
  std::memcpy(address.sun_path, path.c_str(), path.size() + 1);
  return address;
}

const sockaddr* generic(const sockaddr_un& address) { return reinterpret_cast<const sockaddr*>(&address); }

base::Result<void> wait_for(int fd, short events, std::uint64_t deadline_ns) {
  while (true) {
    const std::uint64_t now = monotonic_ns();
    if (now >= deadline_ns) return base::fail(ErrorCode::kUnavailable, kNoAnswerInTime);
    pollfd item{fd, events, 0};
    const std::uint64_t left_ms = (deadline_ns - now) / 1'000'000 + 1;
    const int ready = ::poll(&item, 1, static_cast<int>(left_ms < 1'000'000'000 ? left_ms : 1'000'000'000));
    if (ready > 0) return {};
    if (ready < 0 && errno != EINTR) return std::unexpected(error_of("wait for", "the hypervisor", errno));
  }
}

// The process that holds the number, if it is the one that connected and lives.
std::uint64_t start_of_peer(int fd, pid_t pid) {
  int number = -1;
  socklen_t size = sizeof number;
  Fd pidfd;
  if (::getsockopt(fd, SOL_SOCKET, kPeerPidfd, &number, &size) == 0) {
    pidfd = Fd(number);
  } else if (errno == ENOPROTOOPT) {  // before Linux 6.5: whoever holds the number now is taken for it
    if (auto opened = open_pidfd(pid)) pidfd = *std::move(opened);
  }
  if (!pidfd) return 0;
  const auto ticks = start_ticks(pid);
  pollfd ended{pidfd.get(), POLLIN, 0};
  return ticks && ::poll(&ended, 1, 0) == 0 ? *ticks : 0;  // it lives, so the number was its own all the while
}

std::uint64_t deadline_after(std::uint64_t timeout_ms) { return monotonic_ns() + timeout_ms * 1'000'000; }

}  // namespace

base::Result<void> check_socket_path(const std::string& path) {
  if (const auto address = address_of(path); !address) return std::unexpected(address.error());
  return {};
}

base::Result<Fd> listen_unix(const std::string& path, unsigned mode) {
  const auto address = address_of(path);
  if (!address) return std::unexpected(address.error());
  Fd fd(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!fd) return std::unexpected(error_of("make the socket", path, errno));
  ::unlink(path.c_str());
  const mode_t old = ::umask(static_cast<mode_t>(~mode & 0777u));
  const int bound = ::bind(fd.get(), generic(*address), sizeof *address);
  const int problem = errno;
  ::umask(old);
  if (bound != 0) return std::unexpected(error_of("make the socket", path, problem));
  if (::listen(fd.get(), 128) != 0) return std::unexpected(error_of("listen on", path, errno));
  return fd;
}

base::Result<Fd> connect_unix(const std::string& path) {
  const auto address = address_of(path);
  if (!address) return std::unexpected(address.error());
  Fd fd(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
  if (!fd) return std::unexpected(error_of("make a socket for", path, errno));
  if (::connect(fd.get(), generic(*address), sizeof *address) == 0) return fd;
  if (errno == ENOENT || errno == ENOTDIR || errno == ECONNREFUSED)
    return base::fail(ErrorCode::kUnavailable,
                      "no hypervisor listens on " + path + "; start one with 'tensor-fusion hypervisor'");
  return std::unexpected(error_of("connect to", path, errno));
}

std::optional<Peer> peer_of(int fd) {
  ucred credentials{};
  socklen_t size = sizeof credentials;
  if (::getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &credentials, &size) != 0) return std::nullopt;
  return Peer{credentials.pid, start_of_peer(fd, credentials.pid), credentials.uid, credentials.gid};
}

base::Result<void> LineConnection::send(std::string_view line, std::uint64_t timeout_ms) {
  const std::uint64_t deadline = deadline_after(timeout_ms);
  std::string message(line);
  message += '\n';
  for (std::string_view rest = message; !rest.empty();) {
    const ssize_t sent = ::send(fd_.get(), rest.data(), rest.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
    if (sent >= 0) {
      rest.remove_prefix(static_cast<std::size_t>(sent));
    } else if (errno == EAGAIN) {
      if (auto ready = wait_for(fd_.get(), POLLOUT, deadline); !ready) return ready;
    } else if (errno != EINTR) {
      return base::fail(ErrorCode::kUnavailable, kClosed);
    }
  }
  return {};
}

base::Result<std::string> LineConnection::receive(std::uint64_t timeout_ms) {
  const std::uint64_t deadline = deadline_after(timeout_ms);
  std::array<char, 16384> block{};
  while (true) {
    if (const std::size_t end = buffer_.find('\n'); end != std::string::npos) {
      std::string line = buffer_.substr(0, end);
      buffer_.erase(0, end + 1);
      return line;
    }
    constexpr std::size_t kMaxReply = 16 * kMaxLineBytes;  // a list of many tenants
    if (buffer_.size() > kMaxReply) return base::fail(ErrorCode::kProtocol, "the hypervisor's answer has no end");
    const ssize_t got = ::recv(fd_.get(), block.data(), block.size(), MSG_DONTWAIT);
    if (got > 0) {
      buffer_.append(block.data(), static_cast<std::size_t>(got));
    } else if (got == 0 || (errno != EAGAIN && errno != EINTR)) {
      return base::fail(ErrorCode::kUnavailable, kClosed);
    } else if (auto ready = wait_for(fd_.get(), POLLIN, deadline); !ready) {
      return std::unexpected(ready.error());
    }
  }
}

}  // namespace tensor_fusion::system
