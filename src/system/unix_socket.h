#pragma once
// Stream sockets in the file system, for talking to the daemon of this machine. A connection sends and receives lines;
// a line is bounded, and one that is longer closes the connection. One thread per object.
#include <sys/types.h>

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "base/result.h"
#include "system/fd.h"

namespace tensor_fusion::system {

inline constexpr const char* kClosed = "the hypervisor has closed the connection: it ends, or has too many; ask again";
inline constexpr const char* kNoAnswerInTime = "the hypervisor does not answer in time";
inline constexpr std::size_t kMaxLineBytes = 1u << 20;

struct Peer {
  pid_t pid = 0;
  std::uint64_t start_ticks = 0;  // of the process that connected; 0: it has gone, and its number may be another's
  uid_t uid = 0;
  gid_t gid = 0;
};

base::Result<void> check_socket_path(const std::string& path);         // short enough
base::Result<Fd> listen_unix(const std::string& path, unsigned mode);  // replaces a stale socket; non-blocking
base::Result<Fd> connect_unix(const std::string& path);                // blocking
// To be asked at once: later nobody can tell whose a number was, where the kernel gives no descriptor of the process.
std::optional<Peer> peer_of(int fd);

// Blocking side (a client). Each call waits at most until its deadline.
class LineConnection {
 public:
  explicit LineConnection(Fd fd) : fd_(std::move(fd)) {}
  base::Result<void> send(std::string_view line, std::uint64_t timeout_ms);
  base::Result<std::string> receive(std::uint64_t timeout_ms);  // without the newline; kUnavailable at end or deadline
  int fd() const { return fd_.get(); }

 private:
  Fd fd_;
  std::string buffer_;
};

}  // namespace tensor_fusion::system
