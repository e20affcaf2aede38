#include "sim/ptx/lexer.h"

#include <bit>
#include <charconv>

namespace tensor_fusion::sim::ptx {
namespace {

bool is_digit(char c) { return c >= '0' && c <= '9'; }
bool is_word_start(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_' || c == '$' || c == '%';
}
bool is_word(char c) { return is_word_start(c) || is_digit(c); }

int digit_of(char c) {
  if (is_digit(c)) return c - '0';
  if (c >= 'a' && c <= 'f') return c - 'a' + 10;
  if (c >= 'A' && c <= 'F') return c - 'A' + 10;
  return 99;
}

}  // namespace

void Lexer::advance(std::size_t count) {
  for (std::size_t end = at_ + count; at_ < end; ++at_) {
    if (text_[at_] == '\n') {
      ++line_;
      line_begin_ = at_ + 1;
    }
  }
}

void Lexer::skip_blanks() {
  while (at_ < text_.size()) {
    const char c = text_[at_];
    if (c == ' ' || c == '\t' || c == '\n' || c == '\r' || c == '\f' || c == '\v') {
      advance(1);
    } else if (text_.substr(at_).starts_with("//")) {
      const std::size_t end = text_.find('\n', at_);
      at_ = end == std::string_view::npos ? text_.size() : end;
    } else if (text_.substr(at_).starts_with("/*")) {
      const std::size_t end = text_.find("*/", at_ + 2);
      advance((end == std::string_view::npos ? text_.size() : end + 2) - at_);
    } else {
      return;
    }
  }
}

Token Lexer::number(Token token) {
  const std::size_t begin = at_;
  std::size_t i = at_;
  const auto finish = [&](TokenKind kind) {
    token.kind = kind;
    token.text = text_.substr(begin, i - begin);
    at_ = i;
    return token;
  };
  const auto digits = [&](int base, std::uint64_t& value) {
    std::size_t count = 0;
    for (; i < text_.size() && digit_of(text_[i]) < base; ++i, ++count) {
      value = value * static_cast<std::uint64_t>(base) + static_cast<std::uint64_t>(digit_of(text_[i]));
    }
    return count;
  };
  const char second = i + 1 < text_.size() ? text_[i + 1] : '\0';
  if (text_[i] == '0' && (second == 'f' || second == 'F' || second == 'd' || second == 'D')) {
    const bool is_double = second == 'd' || second == 'D';
    i += 2;
    const std::size_t count = digits(16, token.bits);
    if (count != (is_double ? 16U : 8U)) return finish(TokenKind::bad);
    return finish(is_double ? TokenKind::float64 : TokenKind::float32);
  }
  if (text_[i] == '0' && (second == 'x' || second == 'X' || second == 'b' || second == 'B')) {
    i += 2;
    if (digits(second == 'x' || second == 'X' ? 16 : 2, token.bits) == 0) return finish(TokenKind::bad);
  } else {
    std::size_t j = i;
    while (j < text_.size() && is_digit(text_[j])) ++j;
    if (j < text_.size() && (text_[j] == '.' || text_[j] == 'e' || text_[j] == 'E')) {
      double value = 0;
      const auto [end, error] = std::from_chars(text_.data() + i, text_.data() + text_.size(), value);
      i = static_cast<std::size_t>(end - text_.data());
      token.bits = std::bit_cast<std::uint64_t>(value);
      return finish(error == std::errc{} && i > begin ? TokenKind::float64 : TokenKind::bad);
    }
    digits(text_[i] == '0' && j > i + 1 ? 8 : 10, token.bits);
  }
  if (i < text_.size() && (text_[i] == 'U' || text_[i] == 'u')) ++i;
  if (i < text_.size() && is_word(text_[i])) return finish(TokenKind::bad);
  return finish(TokenKind::integer);
}

Token Lexer::next() {
  skip_blanks();
  Token token;
  token.line = line_;
  token.column = static_cast<int>(at_ - line_begin_) + 1;
  if (at_ >= text_.size()) return token;
  const char c = text_[at_];
  const std::size_t begin = at_;
  if (is_digit(c)) return number(token);
  const bool directive = c == '.' && at_ + 1 < text_.size() && is_word(text_[at_ + 1]);
  if (directive || is_word_start(c)) {
    std::size_t i = at_ + 1;
    while (i < text_.size()) {
      if (is_word(text_[i])) {
        ++i;
      } else if (text_[i] == '.' && i + 1 < text_.size() && is_word(text_[i + 1]) && !directive) {
        ++i;
      } else if (text_[i] == ':' && i + 2 < text_.size() && text_[i + 1] == ':' && is_word(text_[i + 2])) {
        i += 2;
      } else {
        break;
      }
    }
    token.kind = directive ? TokenKind::directive : TokenKind::word;
    token.text = text_.substr(begin + (directive ? 1 : 0), i - begin - (directive ? 1 : 0));
    at_ = i;
    return token;
  }
  if (c == '"') {
    const std::size_t end = text_.find('"', at_ + 1);
    if (end == std::string_view::npos) {
      token.kind = TokenKind::bad;
      token.text = text_.substr(begin, 1);
      advance(text_.size() - at_);
      return token;
    }
    token.kind = TokenKind::string;
    token.text = text_.substr(begin + 1, end - begin - 1);
    advance(end + 1 - at_);
    return token;
  }
  constexpr std::string_view kPunctuation = ",;:{}[]()<>@!+-=|~*/&^";
  token.kind = kPunctuation.contains(c) ? TokenKind::punctuation : TokenKind::bad;
  token.text = text_.substr(begin, 1);
  ++at_;
  return token;
}

}  // namespace tensor_fusion::sim::ptx
