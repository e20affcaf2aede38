#include "node/hypervisor/card_watch.h"

#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstddef>

#include "system/process.h"
#include "system/unix_socket.h"

namespace tensor_fusion::node::hypervisor {
namespace {

constexpr int kWaiting = 8;

constexpr std::size_t kMostSaid = 64;

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

struct Listener {
  enum class Answer : std::uint8_t { none, unasked, known } answer = Answer::none;
  system::Peer peer{};
  std::string text() const { return "process " + std::to_string(peer.pid) + " of user " + std::to_string(peer.uid); }
};

Listener who_listens(const std::string& place) {
  using Answer = Listener::Answer;
  const system::Fd socket = make_socket();
  const Address address = abstract(place);
  // Too busy to be asked, or no descriptor or memory to ask it with.
  if (!socket) return {.answer = Answer::unasked};
  if (::connect(socket.get(), address.get(), address.size) != 0)
    return {.answer = errno == ECONNREFUSED ? Answer::none : Answer::unasked};
  const auto peer = system::peer_of(socket.get());
  return peer ? Listener{.answer = Answer::known, .peer = *peer} : Listener{.answer = Answer::unasked};
}

// A user's own build of it is another file, and that it is one is not to be seen. Its file is not touched, which may be
// of a file system of the stranger's own, that answers nobody: among the same mounts the same path is the same file.
bool executes_this_program(pid_t pid) {
  const std::uint64_t mounts = system::namespace_inode(::getpid(), "mnt");
  const std::string program = system::process_program(::getpid());
  return mounts != 0 && system::namespace_inode(pid, "mnt") == mounts && !program.empty() &&
         system::process_program(pid) == program;
}

bool is_believed(const system::Peer& peer) {
  return peer.uid == 0 || peer.uid == ::geteuid() || executes_this_program(peer.pid);
}

}  // namespace

std::string card_place(const std::string& uuid, const std::string& device_file, int place) {
  const std::string card = card_name(uuid, device_file);
  return card.empty() ? "" : card + "/" + std::to_string(place);
}

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
    held_[card] = {std::move(listener), place_name(place)};
  }
  if (const auto own = held_.find(card); own != held_.end() && !own->second.listened_to) listen_to(card, own->second);
  if (!held_.contains(card))
    say_once(uuid,
             "others have all the names by which a hypervisor tells that it gives out a card; none learns of this one");
  std::string other;
  for (int place = 0; place < kPlaces; ++place) {
    if (const auto own = held_.find(card); own != held_.end() && own->second.name == place_name(place)) continue;
    if (std::string who = believed_at(uuid, place_name(place)); other.empty()) other = std::move(who);
  }
  return other;
}

// Whoever asks has its answer by then: the kernel says who listens. Without a descriptor for those who wait the loop
// would be told of them again and again.
void CardWatch::listen_to(const std::string& card, Place& place) {
  const int number = place.listener.get();
  const auto take = [this, number, card](std::uint32_t) {
    const system::Fd asking(::accept4(number, nullptr, nullptr, SOCK_CLOEXEC));
    if (asking || errno == EAGAIN || errno == EINTR || errno == ECONNABORTED) return;
    held_[card].listened_to = false;
    loop_.forget(number);
  };
  place.listened_to = loop_.watch(number, EPOLLIN, take).has_value();
}

std::string CardWatch::believed_at(const std::string& uuid, const std::string& place) {
  const Listener listener = who_listens(place);
  switch (listener.answer) {
    case Listener::Answer::none:
      believed_.erase(place);
      return "";
    case Listener::Answer::unasked:
      // Anybody may keep it too busy to be asked: what was known of it stays.
      if (const auto known = believed_.find(place); known != believed_.end()) return known->second;
      say_once(uuid, "a process that cannot be asked says that it gives out this card, too");
      return "";
    case Listener::Answer::known:
      break;
  }
  if (is_believed(listener.peer)) return believed_[place] = listener.text();
  believed_.erase(place);
  say_once(uuid, listener.text() + " says that it gives out this card, too; that it is a hypervisor is not to be seen");
  return "";
}

void CardWatch::say_once(const std::string& uuid, const std::string& sentence) {
  if (said_.size() >= kMostSaid || !said_.insert(uuid + ' ' + sentence).second || !doubt_) return;
  doubt_(uuid, sentence);
}

}  // namespace tensor_fusion::node::hypervisor
