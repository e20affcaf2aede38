#pragma once
// Owns one file descriptor. Move only; closes on destruction.
#include <unistd.h>

#include <utility>

namespace tensor_fusion::system {

class Fd {
 public:
  Fd() = default;
  explicit Fd(int number) : number_(number) {}
  Fd(Fd&& other) noexcept : number_(std::exchange(other.number_, -1)) {}
  Fd& operator=(Fd&& other) noexcept {
    if (this != &other) {
      reset();
      number_ = std::exchange(other.number_, -1);
    }
    return *this;
  }
  ~Fd() { reset(); }
  int get() const { return number_; }
  bool valid() const { return number_ >= 0; }
  explicit operator bool() const { return valid(); }
  int release() { return std::exchange(number_, -1); }
  void reset() {
    if (number_ >= 0) ::close(number_);
    number_ = -1;
  }

 private:
  int number_ = -1;
};

}  // namespace tensor_fusion::system
