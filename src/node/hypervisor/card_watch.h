#pragma once
// Whether another hypervisor of this machine, with another state directory, shares out the same card: neither would
// know what the other has promised. Each listens on a name in the kernel (abstract, so gone with its process) made of
// the card's UUID and of what its device file is, since simulated machines may have cards of equal UUIDs. Anybody may
// take such a name, so it is a reason to warn, never to refuse, and one who has it is believed only where it is root's
// or one's own user's or executes this very program: a stranger's is told of as a doubt, once. Who could not be asked
// is not gone: what was known of it stays. One thread.
#include <functional>
#include <map>
#include <set>
#include <string>

#include "system/fd.h"
#include "system/loop.h"

namespace tensor_fusion::node::hypervisor {

// Under which a hypervisor may say that it gives out the card. "": it has no device file.
std::string card_place(const std::string& uuid, const std::string& device_file, int place);

class CardWatch {
 public:
  static constexpr int kPlaces = 8;  // hypervisors that can tell of each other
  using Doubt = std::function<void(const std::string& uuid, const std::string& sentence)>;
  explicit CardWatch(system::Loop& loop, Doubt doubt = {}) : loop_(loop), doubt_(std::move(doubt)) {}
  ~CardWatch();
  CardWatch(const CardWatch&) = delete;
  CardWatch& operator=(const CardWatch&) = delete;

  // Announces that this one does, and says who else: "process 12 of user 1000", or nothing. Nothing also for a card
  // without a device file.
  std::string look(const std::string& uuid, const std::string& device_file);

 private:
  std::string believed_at(const std::string& uuid, const std::string& place);
  void say_once(const std::string& uuid, const std::string& sentence);

  system::Loop& loop_;
  Doubt doubt_;
  struct Place {
    system::Fd listener;
    std::string name;
    bool listened_to = false;  // in the loop: not after it could take nobody, till the next look
  };
  void listen_to(const std::string& card, Place& place);
  std::map<std::string, Place> held_;            // by card
  std::map<std::string, std::string> believed_;  // who has the place, where that was seen last
  std::set<std::string> said_;
};

}  // namespace tensor_fusion::node::hypervisor
