#include "base/json.h"

#include <charconv>
#include <cmath>
#include <limits>

namespace tensor_fusion::base {
namespace {

const Json kNull;
const std::string kEmptyText;
const Json::Array kNoItems;
const Json::Object kNoMembers;

void write_string(std::string& out, std::string_view text) {
  constexpr std::string_view kHex = "0123456789abcdef";
  out += '"';
  const auto escape = [&](unsigned char byte) {
    out += "\\u00";
    out += kHex[byte >> 4];
    out += kHex[byte & 15];
  };
  for (std::size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    const auto byte = static_cast<unsigned char>(c);
    const auto next = static_cast<unsigned char>(i + 1 < text.size() ? text[i + 1] : '\0');
    switch (c) {
      case '"':
        out += "\\\"";
        break;
      case '\\':
        out += "\\\\";
        break;
      case '\n':
        out += "\\n";
        break;
      case '\r':
        out += "\\r";
        break;
      case '\t':
        out += "\\t";
        break;
      default:
        if (byte < 0x20 || byte == 0x7f) {
          escape(byte);
        } else if (byte == 0xc2 && next >= 0x80 && next < 0xa0) {  // U+0080 to U+009F, which some terminals obey
          escape(next);
          ++i;
        } else {
          out += c;
        }
    }
  }
  out += '"';
}

void write_double(std::string& out, double value) {
  if (!std::isfinite(value)) {
    out += "null";  // JSON has no such number
    return;
  }
  if (value == 0) value = 0;  // "-0" would be read back as the integer 0
  char buffer[40];
  const auto [end, problem] = std::to_chars(buffer, buffer + sizeof buffer, value);
  out.append(buffer, problem == std::errc() ? end : buffer);
}

class Writer {
 public:
  Writer(std::string& out, int indent) : out_(out), indent_(indent) {}
  void write(const Json& value, int depth) {
    if (value.is_object()) {
      list('{', '}', value.members(), depth, [&](const auto& member) {
        write_string(out_, member.first);
        out_ += indent_ > 0 ? ": " : ":";
        write(member.second, depth + 1);
      });
    } else if (value.is_array()) {
      list('[', ']', value.items(), depth, [&](const Json& item) { write(item, depth + 1); });
    } else if (value.is_string()) {
      write_string(out_, value.as_string());
    } else if (value.is_bool()) {
      out_ += value.as_bool() ? "true" : "false";
    } else if (value.is_null()) {
      out_ += "null";
    } else {
      write_number(value);
    }
  }

 private:
  void write_number(const Json& value) {
    if (value.is_integer()) {
      out_ += value.is_negative() ? std::to_string(value.as_int()) : std::to_string(value.as_uint());
    } else {
      write_double(out_, value.as_double());
    }
  }
  void new_line(int depth) {
    if (indent_ == 0) return;
    out_ += '\n';
    out_.append(static_cast<std::size_t>(depth * indent_), ' ');
  }
  template <typename List, typename Each>
  void list(char open, char close, const List& values, int depth, Each each) {
    out_ += open;
    bool first = true;
    for (const auto& value : values) {
      if (!first) out_ += ',';
      first = false;
      new_line(depth + 1);
      each(value);
    }
    if (!first) new_line(depth);
    out_ += close;
  }
  std::string& out_;
  int indent_;
};

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

Json Json::object(std::initializer_list<std::pair<const char*, Json>> members) {
  Object result;
  for (const auto& [key, value] : members) result.emplace_back(key, value);
  return Json(std::move(result));
}

void Json::normalise() {
  if (const auto* large = std::get_if<std::uint64_t>(&value_);
      large && *large <= static_cast<std::uint64_t>(std::numeric_limits<std::int64_t>::max()))
    value_ = static_cast<std::int64_t>(*large);
}

bool Json::is_number() const { return is_integer() || std::holds_alternative<double>(value_); }
bool Json::is_integer() const {
  return std::holds_alternative<std::int64_t>(value_) || std::holds_alternative<std::uint64_t>(value_);
}
bool Json::is_negative() const {
  const auto* whole = std::get_if<std::int64_t>(&value_);
  return whole && *whole < 0;
}

bool Json::as_bool(bool fallback) const {
  const auto* value = std::get_if<bool>(&value_);
  return value ? *value : fallback;
}

std::int64_t Json::as_int(std::int64_t fallback) const {
  if (const auto* whole = std::get_if<std::int64_t>(&value_)) return *whole;
  if (const auto* real = std::get_if<double>(&value_); real && *real > -9.2e18 && *real < 9.2e18)
    return static_cast<std::int64_t>(*real);
  return fallback;
}

std::uint64_t Json::as_uint(std::uint64_t fallback) const {
  if (const auto* large = std::get_if<std::uint64_t>(&value_)) return *large;
  const std::int64_t whole = as_int(-1);
  return whole >= 0 ? static_cast<std::uint64_t>(whole) : fallback;
}

double Json::as_double(double fallback) const {
  if (const auto* real = std::get_if<double>(&value_)) return *real;
  if (const auto* whole = std::get_if<std::int64_t>(&value_)) return static_cast<double>(*whole);
  if (const auto* large = std::get_if<std::uint64_t>(&value_)) return static_cast<double>(*large);
  return fallback;
}

const std::string& Json::as_string() const {
  const auto* text = std::get_if<std::string>(&value_);
  return text ? *text : kEmptyText;
}

std::string Json::string_or(std::string_view fallback) const {
  return is_string() ? as_string() : std::string(fallback);
}

const Json::Array& Json::items() const {
  const auto* array = std::get_if<Array>(&value_);
  return array ? *array : kNoItems;
}

const Json::Object& Json::members() const {
  const auto* object = std::get_if<Object>(&value_);
  return object ? *object : kNoMembers;
}

const Json& Json::operator[](std::string_view key) const {
  for (const auto& [name, value] : members())
    if (name == key) return value;
  return kNull;
}

const Json& Json::at(std::size_t index) const { return index < items().size() ? items()[index] : kNull; }
std::size_t Json::size() const { return is_object() ? members().size() : items().size(); }

Json& Json::set(std::string key, Json value) {
  if (!is_object()) value_ = Object{};
  auto& object = std::get<Object>(value_);
  for (auto& [name, old] : object) {
    if (name != key) continue;
    old = std::move(value);
    return *this;
  }
  object.emplace_back(std::move(key), std::move(value));
  return *this;
}

Json& Json::push(Json value) {
  if (!is_array()) value_ = Array{};
  std::get<Array>(value_).push_back(std::move(value));
  return *this;
}

std::string Json::dump() const {
  std::string out;
  Writer(out, 0).write(*this, 0);
  return out;
}

std::string Json::pretty(int indent) const {
  std::string out;
  Writer(out, indent).write(*this, 0);
  return out;
}

Result<Json> Json::parse(std::string_view text) { return Reader(text).read(); }
bool Json::operator==(const Json& other) const { return value_ == other.value_; }

}  // namespace tensor_fusion::base
