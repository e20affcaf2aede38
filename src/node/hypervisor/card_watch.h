#pragma once
// Whether another hypervisor of this machine, with another state directory, shares out the same card: neither would
// know what the other has promised. Each listens on a name in the kernel (abstract, so gone with its process) made of
// the card's UUID and of what its device file is, since simulated machines may have cards of equal UUIDs. Anybody may
// take such a name, so it is a reason to warn, never to refuse. One thread.
#include <map>
#include <string>

#include "system/fd.h"
#include "system/loop.h"

namespace tensor_fusion::node::hypervisor {

class CardWatch {
 public:
  explicit CardWatch(system::Loop& loop) : loop_(loop) {}
  ~CardWatch();
  CardWatch(const CardWatch&) = delete;
  CardWatch& operator=(const CardWatch&) = delete;

  // Announces that this one does, and says who else: "process 12 of user 1000", or nothing. Nothing also for a card
  // without a device file.
  std::string look(const std::string& uuid, const std::string& device_file);

 private:
  system::Loop& loop_;
  struct Place {
    system::Fd listener;
    std::string name;
  };
  std::map<std::string, Place> held_;  // by card
};

}  // namespace tensor_fusion::node::hypervisor
