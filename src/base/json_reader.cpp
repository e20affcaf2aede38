#include "base/json_reader.h"

#include <charconv>
#include <cmath>
#include <limits>
#include <string>

namespace tensor_fusion::base {
namespace {

// Recursive descent over the whole text. The first problem stops it.
class Reader {
 public:
  explicit Reader(std::string_view text) : text_(text) {}
  Result<Json> read() {
    Json value = this->value(0);
    space();
    if (!problem_ && at_ != text_.size()) stop("something follows the value");
    if (problem_) return fail(ErrorCode::kProtocol, "not JSON at byte " + std::to_string(at_) + ": " + problem_);
    return value;
  }

 private:
  void stop(const char* problem) {
    if (!problem_) problem_ = problem;
  }
  void space() {
    while (at_ < text_.size() && (text_[at_] == ' ' || text_[at_] == '\n' || text_[at_] == '\t' || text_[at_] == '\r'))
      ++at_;
  }
  char peek() const { return at_ < text_.size() ? text_[at_] : '\0'; }
  bool take(char c) {
    if (at_ >= text_.size() || text_[at_] != c) return false;
    ++at_;
    return true;
  }
  bool take_word(std::string_view word) {
    if (text_.substr(at_, word.size()) != word) return false;
    at_ += word.size();
    return true;
  }

  Json value(int depth) {
    space();
    if (depth > Json::kMaxDepth) {
      stop("nested too deeply");
      return {};
    }
    switch (peek()) {
      case '{':
        return object(depth);
      case '[':
        return array(depth);
      case '"':
        return Json(string());
      case 't':
        if (take_word("true")) return Json(true);
        break;
      case 'f':
        if (take_word("false")) return Json(false);
        break;
      case 'n':
        if (take_word("null")) return {};
        break;
      default:
        return number();
    }
    stop("an unknown word");
    return {};
  }

  Json object(int depth) {
    Json::Object members;
    ++at_;
    space();
    if (take('}')) return Json(std::move(members));
    do {
      space();
      if (peek() != '"') stop("a key must be a string");
      if (problem_) return {};
      std::string key = string();
      space();
      if (!take(':')) stop("a ':' is missing");
      if (problem_) return {};
      members.emplace_back(std::move(key), value(depth + 1));
      space();
    } while (!problem_ && take(','));
    if (!take('}')) stop("a '}' is missing");
    return Json(std::move(members));
  }

  Json array(int depth) {
    Json::Array items;
    ++at_;
    space();
    if (take(']')) return Json(std::move(items));
    do {
      items.push_back(value(depth + 1));
      space();
    } while (!problem_ && take(','));
    if (!take(']')) stop("a ']' is missing");
    return Json(std::move(items));
  }

  std::string string() {
    std::string out;
    ++at_;
    while (at_ < text_.size() && !problem_) {
      const char c = text_[at_++];
      if (c == '"') return out;
      if (static_cast<unsigned char>(c) < 0x20) stop("a control character inside a string");
      if (c == '\\') {
        escape(out);
      } else {
        out += c;
      }
    }
    stop("a string without end");
    return out;
  }

  void escape(std::string& out) {
    switch (const char c = peek(); c) {
      case '"':
      case '\\':
      case '/':
        out += c;
        break;
      case 'b':
        out += '\b';
        break;
      case 'f':
        out += '\f';
        break;
      case 'n':
        out += '\n';
        break;
      case 'r':
        out += '\r';
        break;
      case 't':
        out += '\t';
        break;
      case 'u':
        ++at_;
        unicode(out);
        return;
      default:
        stop("an unknown escape");
        return;
    }
    ++at_;
  }

  unsigned hex4() {
    unsigned code = 0;
    const std::string_view digits = text_.substr(at_, 4);
    const auto [end, problem] = std::from_chars(digits.data(), digits.data() + digits.size(), code, 16);
    if (problem != std::errc() || digits.size() != 4 || end != digits.data() + 4) stop("four hex digits are needed");
    at_ += digits.size();
    return code;
  }

  void unicode(std::string& out) {
    unsigned code = hex4();
    if (code >= 0xd800 && code < 0xdc00) {
      const unsigned low = take_word("\\u") ? hex4() : 0;
      if (low < 0xdc00 || low > 0xdfff) return stop("half of a surrogate pair");
      code = 0x10000 + ((code - 0xd800) << 10) + (low - 0xdc00);
    } else if (code >= 0xdc00 && code < 0xe000) {
      return stop("half of a surrogate pair");
    }
    const auto put = [&](unsigned byte) { out += static_cast<char>(static_cast<unsigned char>(byte)); };
    if (code < 0x80) {
      put(code);
    } else if (code < 0x800) {
      put(0xc0 | code >> 6), put(0x80 | (code & 63));
    } else if (code < 0x10000) {
      put(0xe0 | code >> 12), put(0x80 | (code >> 6 & 63)), put(0x80 | (code & 63));
    } else {
      put(0xf0 | code >> 18), put(0x80 | (code >> 12 & 63)), put(0x80 | (code >> 6 & 63)), put(0x80 | (code & 63));
    }
  }

  Json number() {
    const std::size_t begin = at_;
    while (at_ < text_.size() && std::string_view("+-.eE0123456789").find(text_[at_]) != std::string_view::npos) ++at_;
    const std::string_view body = text_.substr(begin, at_ - begin);
    const char* first = body.data();
    const char* last = first + body.size();
    if (body.find_first_of(".eE") == std::string_view::npos) {
      std::int64_t whole = 0;
      if (const auto r = std::from_chars(first, last, whole); r.ec == std::errc() && r.ptr == last)
        return Json(static_cast<long long>(whole));
      std::uint64_t large = 0;
      if (const auto r = std::from_chars(first, last, large); r.ec == std::errc() && r.ptr == last)
        return Json(static_cast<unsigned long long>(large));
    }
    double real = 0;
    if (const auto r = std::from_chars(first, last, real); body.empty() || r.ec != std::errc() || r.ptr != last) {
      at_ = begin;
      stop("not a value");
    }
    return Json(real);
  }

  std::string_view text_;
  std::size_t at_ = 0;
  const char* problem_ = nullptr;
};

}  // namespace

Result<Json> read_json(std::string_view text) { return Reader(text).read(); }

}  // namespace tensor_fusion::base
