#pragma once

#include <cstdint>
#include <string_view>

namespace tensor_fusion::sim::ptx {

enum class TokenKind : std::uint8_t { end, word, directive, integer, float32, float64, string, punctuation, bad };

struct Token {
  TokenKind kind = TokenKind::end;
  std::string_view text;   // directive: without the leading dot; string: without quotes
  std::uint64_t bits = 0;  // integer value, or the bits of the float
  int line = 1;
  int column = 1;

  [[nodiscard]] bool is(std::string_view punctuation) const {
    return kind == TokenKind::punctuation && text == punctuation;
  }
};

// Cuts PTX text into tokens. A word keeps its dots ("ld.global.v4.f32", "%tid.x"); comments vanish. Text that is no
// token becomes one of kind `bad`. The text must outlive the tokens.
class Lexer {
 public:
  explicit Lexer(std::string_view text) : text_(text) {}
  Token next();

 private:
  void skip_blanks();
  Token number(Token token);
  void advance(std::size_t count);

  std::string_view text_;
  std::size_t at_ = 0;
  int line_ = 1;
  std::size_t line_begin_ = 0;
};

}  // namespace tensor_fusion::sim::ptx
