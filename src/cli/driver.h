#pragma once
// Whether the GPU's driver starts here. Loading a driver runs its code, which may hang, crash or talk, so it is asked
// in a process of its own with a deadline. Any thread; nothing cached.
#include <expected>
#include <functional>
#include <string>

namespace tensor_fusion::cli {

inline constexpr int kDriverDeadlineMs = 20'000;  // a real card without a persistence daemon takes seconds

// The error is one sentence: what the driver itself says, and what to do.
std::expected<void, std::string> check_driver(int deadline_ms = kDriverDeadlineMs);

// Whether this file is a provider's library, as far as loading it shows.
std::expected<void, std::string> check_provider(const std::string& library, int deadline_ms = kDriverDeadlineMs);

// The same for any question asked in a process of its own: `ask` ends it with what it writes to standard error.
struct Asked {
  std::string name = "the driver";  // which does not answer, or crashes
  std::string hangs = "look at dmesg, or restart the machine";
  std::string crashes = "install the driver again";
};
std::expected<void, std::string> ask_apart(const std::function<int()>& ask, int deadline_ms, const Asked& asked = {});

}  // namespace tensor_fusion::cli
