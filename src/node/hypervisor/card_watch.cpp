#include "node/hypervisor/card_watch.h"

#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>

#include <algorithm>
#include <cerrno>
#include <cstddef>

#include "system/unix_socket.h"

namespace tensor_fusion::node::hypervisor {
namespace {

constexpr int kPlaces = 8;  // hypervisors that can tell of each other
constexpr int kWaiting = 8;

// The same for all who see the card, in whatever folder: of a device its number, of a file which one it is.
std::string card_name(const std::string& uuid, const std::string& device_file) {
  struct stat info{};
  if (device_file.empty() || ::stat(device_file.c_str(), &info) != 0) return "";
  const bool device = S_ISCHR(info.st_mode);
  return "tensor-fusion/" + uuid.substr(0, 64) + "/" +
         (device ? "c" + std::to_string(info.st_rdev)
                 : std::to_string(info.st_dev) + "." + std::to_string(info.st_ino));
}

struct Address {
  sockaddr_un name{};
  socklen_t size = 0;
  const sockaddr* get() const { return reinterpret_cast<const sockaddr*>(&name); }
};

Address abstract(const std::string& name) {
  Address address;
  address.name.sun_family = AF_UNIX;
  const std::size_t length = std::min(name.size(), sizeof address.name.sun_path - 1);
  name.copy(address.name.sun_path + 1, length);  // behind the NUL that makes it abstract
  address.size = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + length);
  return address;
}

system::Fd make_socket() { return system::Fd(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0)); }

std::string who_listens(const std::string& name) {
  const system::Fd socket = make_socket();
  const Address address = abstract(name);
  if (!socket) return "";
  if (::connect(socket.get(), address.get(), address.size) != 0)
    return errno == EAGAIN ? "another process" : "";  // too busy to be asked
  const auto peer = system::peer_of(socket.get());
  return peer ? "process " + std::to_string(peer->pid) + " of user " + std::to_string(peer->uid) : "another process";
}

}  // namespace

CardWatch::~CardWatch() {
  for (const auto& [card, place] : held_) loop_.forget(place.listener.get());
}

std::string CardWatch::look(const std::string& uuid, const std::string& device_file) {
  const std::string card = card_name(uuid, device_file);
  if (card.empty()) return "";
  const auto place_name = [&](int place) { return card + "/" + std::to_string(place); };
  for (int place = 0; place < kPlaces && !held_.contains(card); ++place) {
    system::Fd listener = make_socket();
    const Address address = abstract(place_name(place));
    if (!listener || ::bind(listener.get(), address.get(), address.size) != 0 ||
        ::listen(listener.get(), kWaiting) != 0)
      continue;
    const int number = listener.get();
    // Whoever asks has its answer by then: the kernel says who listens.
    static_cast<void>(loop_.watch(number, EPOLLIN, [this, number](std::uint32_t) {
      const system::Fd asking(::accept4(number, nullptr, nullptr, SOCK_CLOEXEC));
      if (!asking && errno != EAGAIN && errno != EINTR && errno != ECONNABORTED) loop_.forget(number);
    }));
    held_[card] = {std::move(listener), place_name(place)};
  }
  for (int place = 0; place < kPlaces; ++place) {
    if (const auto own = held_.find(card); own != held_.end() && own->second.name == place_name(place)) continue;
    if (std::string other = who_listens(place_name(place)); !other.empty()) return other;
  }
  return "";
}

}  // namespace tensor_fusion::node::hypervisor
