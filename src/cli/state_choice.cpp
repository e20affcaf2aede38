#include "cli/state_choice.h"

#include <unistd.h>

#include <algorithm>
#include <array>

#include "node/hypervisor/client.h"
#include "system/file.h"
#include "system/unix_socket.h"

namespace tensor_fusion::cli {
namespace {

// Root's, or this user's: a user's own directory may lie where anybody could have made it.
bool answers(const std::string& state) {
  const std::string socket = state + "/" + node::hypervisor::kSocketName;
  if (::access(socket.c_str(), W_OK) != 0) return false;
  const auto connected = system::connect_unix(socket);
  if (!connected) return false;
  const auto peer = system::peer_of(connected->get());
  return peer && (peer->uid == 0 || peer->uid == ::geteuid());
}

}  // namespace

std::string choose_state(const std::string& own, const std::string& machine) {
  if (answers(own)) return own;
  if (answers(machine)) return machine;
  // Records and pages of others' slices are not for everybody to list.
  return holds_slices(own) || system::list_directory(machine + "/tenants").empty() ? own : machine;
}

bool holds_slices(const std::string& state) {
  return std::ranges::any_of(std::array{"/records", "/pages"}, [&](const char* folder) {
    const auto names = system::list_directory(state + folder);
    return std::ranges::any_of(
        names, [](const std::string& name) { return name.ends_with(".json") || name.ends_with(".grant"); });
  });
}

}  // namespace tensor_fusion::cli
