#pragma once
// A process that is told lines on its standard input and answers each with one on its standard output. It ends when its
// input ends, and with who started it. One thread.
#include <sys/types.h>

#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace tensor_fusion::bench::card {

class Player {
 public:
  using Variables = std::vector<std::pair<std::string, std::string>>;

  Player(const std::vector<std::string>& command, const Variables& more = {});
  ~Player();
  Player(Player&& other) noexcept
      : pid_(std::exchange(other.pid_, -1)),
        in_(std::exchange(other.in_, -1)),
        out_(std::exchange(other.out_, -1)),
        heard_(std::move(other.heard_)) {}
  Player& operator=(Player&&) = delete;

  void tell(const std::string& line) const;
  // Nothing: it has ended, or says nothing for too long.
  std::optional<std::string> hear();
  std::optional<std::string> ask(const std::string& line) {
    tell(line);
    return hear();
  }

 private:
  pid_t pid_ = -1;
  int in_ = -1, out_ = -1;
  std::string heard_;
};

}  // namespace tensor_fusion::bench::card
