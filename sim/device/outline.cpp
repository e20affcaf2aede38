#include "sim/device/outline.h"

#include <algorithm>
#include <utility>

namespace tensor_fusion::sim::device {
namespace {

constexpr int kMaxDepth = 16;

struct Line {
  std::size_t number;
  std::size_t indent;
  std::string_view text;  // without indentation, comment and trailing space
};

[[nodiscard]] std::string_view trim(std::string_view s) {
  while (!s.empty() && (s.front() == ' ' || s.front() == '\t')) s.remove_prefix(1);
  while (!s.empty() && (s.back() == ' ' || s.back() == '\t' || s.back() == '\r')) s.remove_suffix(1);
  return s;
}

// Up to a comment: '#' at the start or after a space, outside quotes.
[[nodiscard]] std::string_view without_comment(std::string_view s) {
  char quote = 0;
  for (std::size_t i = 0; i < s.size(); ++i) {
    if (quote != 0) {
      if (s[i] == quote) quote = 0;
    } else if (s[i] == '"' || s[i] == '\'') {
      quote = s[i];
    } else if (s[i] == '#' && (i == 0 || s[i - 1] == ' ' || s[i - 1] == '\t')) {
      return s.substr(0, i);
    }
  }
  return s;
}

class Reader {
 public:
  explicit Reader(std::string_view text) {
    for (std::size_t number = 1; !text.empty(); ++number) {
      const std::string_view raw = text.substr(0, text.find('\n'));
      text.remove_prefix(std::min(raw.size() + 1, text.size()));
      const std::string_view content = trim(without_comment(raw));
      if (content.empty() || content == "---") continue;
      const std::size_t indent = raw.find_first_not_of(' ');
      if (raw[indent] == '\t') fail(number, "indent with spaces, not tabs");
      lines_.push_back({number, indent, content});
    }
  }

  [[nodiscard]] std::expected<Outline, std::string> read() {
    Outline root;
    root.kind = Outline::Kind::map;
    if (error_.empty() && !lines_.empty()) root = block(lines_.front().indent, 0);
    if (error_.empty() && at_ < lines_.size()) fail(lines_[at_].number, "the indentation fits nothing above it");
    if (!error_.empty()) return std::unexpected(error_);
    return root;
  }

 private:
  void fail(std::size_t line, const std::string& why) {
    if (error_.empty()) error_ = "line " + std::to_string(line) + ": " + why;
  }
  [[nodiscard]] bool more(std::size_t indent) const {
    return error_.empty() && at_ < lines_.size() && lines_[at_].indent == indent;
  }

  // The map or list whose entries stand at this indentation.
  [[nodiscard]] Outline block(std::size_t indent, int depth) {
    Outline node;
    node.line = lines_[at_].number;
    if (depth > kMaxDepth) fail(node.line, "nested too deeply");
    const bool list = is_item(lines_[at_].text);
    node.kind = list ? Outline::Kind::list : Outline::Kind::map;
    if (!list && split_key(lines_[at_].text).second == std::string_view::npos) {
      const Line line = lines_[at_++];
      return value(line.text, line.number, depth);
    }
    while (more(indent)) {
      if (is_item(lines_[at_].text) != list) {
        fail(lines_[at_].number, "a list item and a key stand side by side");
      } else if (list) {
        node.values.push_back(item(indent, depth));
      } else {
        entry(node, indent, depth);
      }
    }
    return node;
  }

  [[nodiscard]] static bool is_item(std::string_view text) { return text == "-" || text.starts_with("- "); }

  [[nodiscard]] Outline item(std::size_t indent, int depth) {
    Line& line = lines_[at_];
    const std::string_view rest = trim(line.text.substr(1));
    if (rest.empty()) {
      ++at_;
      return nested(indent, line.number, depth);
    }
    if (rest.front() != '{' && rest.front() != '[' &&
        (is_item(rest) || split_key(rest).second != std::string_view::npos)) {
      // "- key: value": the rest of the line is the first line of a block that is indented to where it starts.
      line.indent += static_cast<std::size_t>(rest.data() - line.text.data());
      line.text = rest;
      return block(line.indent, depth + 1);
    }
    ++at_;
    return value(rest, line.number, depth);
  }

  // Key and where the value starts; npos if this is no "key: value".
  [[nodiscard]] static std::pair<std::string_view, std::size_t> split_key(std::string_view text) {
    std::size_t from = 0;
    if (!text.empty() && (text.front() == '"' || text.front() == '\'')) {
      from = text.find(text.front(), 1);
      if (from == std::string_view::npos) return {text, from};
    } else if (!text.empty() && (text.front() == '{' || text.front() == '[')) {
      return {text, std::string_view::npos};
    }
    for (std::size_t i = from; i < text.size(); ++i) {
      if (text[i] == ':' && (i + 1 == text.size() || text[i + 1] == ' ')) return {trim(text.substr(0, i)), i + 1};
    }
    return {text, std::string_view::npos};
  }

  void entry(Outline& node, std::size_t indent, int depth) {
    const Line line = lines_[at_++];
    const auto [key, start] = split_key(line.text);
    if (start == std::string_view::npos) return fail(line.number, "'key: value' is wanted");
    const std::string_view rest = trim(line.text.substr(start));
    add(node, unquote(key), rest.empty() ? nested(indent, line.number, depth) : value(rest, line.number, depth),
        line.number);
  }
  void add(Outline& node, std::string key, Outline child, std::size_t line) {
    if (node.find(key) != nullptr) fail(line, "the key '" + key + "' stands twice");
    node.keys.push_back(std::move(key));
    node.values.push_back(std::move(child));
  }

  // What a key or dash without a value on its line holds: a deeper block, or nothing. A list may stand level with its
  // key.
  [[nodiscard]] Outline nested(std::size_t indent, std::size_t line, int depth) {
    Outline empty;
    empty.line = line;
    if (!error_.empty() || at_ >= lines_.size()) return empty;
    const Line& next = lines_[at_];
    if (next.indent > indent || (next.indent == indent && is_item(next.text) && !is_item(lines_[at_ - 1].text))) {
      return block(next.indent, depth + 1);
    }
    return empty;
  }

  [[nodiscard]] static std::string unquote(std::string_view s) {
    if (s.size() >= 2 && (s.front() == '"' || s.front() == '\'') && s.back() == s.front())
      s = s.substr(1, s.size() - 2);
    return std::string(s);
  }

  [[nodiscard]] Outline value(std::string_view text, std::size_t line, int depth) {
    std::string_view rest = text;
    Outline node = flow(rest, line, depth, "");
    if (!trim(rest).empty()) fail(line, "unexpected '" + std::string(trim(rest)) + "'");
    return node;
  }

  // One value of flow style; takes it off `rest`. A plain scalar ends before any character of `stops`.
  [[nodiscard]] Outline flow(std::string_view& rest, std::size_t line, int depth, std::string_view stops) {
    Outline node;
    node.line = line;
    rest = trim(rest);
    if (depth > kMaxDepth) fail(line, "nested too deeply");
    if (!error_.empty() || rest.empty()) return node;
    const char first = rest.front();
    if (first == '{' || first == '[') {
      const char close = first == '{' ? '}' : ']';
      node.kind = first == '{' ? Outline::Kind::map : Outline::Kind::list;
      rest.remove_prefix(1);
      for (;;) {
        rest = trim(rest);
        if (rest.empty()) fail(line, std::string("'") + close + "' is missing");
        if (!error_.empty()) return node;
        if (rest.front() == close) {
          rest.remove_prefix(1);
          return node;
        }
        if (first == '[') {
          node.values.push_back(flow(rest, line, depth + 1, ",]"));
        } else {
          const Outline key = flow(rest, line, depth + 1, ":,}");
          rest = trim(rest);
          if (rest.empty() || rest.front() != ':' || key.kind != Outline::Kind::scalar) {
            fail(line, "'key: value' is wanted");
            return node;
          }
          rest.remove_prefix(1);
          add(node, key.scalar, flow(rest, line, depth + 1, ",}"), line);
        }
        rest = trim(rest);
        if (!rest.empty() && rest.front() == ',')
          rest.remove_prefix(1);
        else if (!rest.empty() && rest.front() != close)
          fail(line, "',' is missing");
      }
    }
    if (first == '"' || first == '\'') {
      const std::size_t end = rest.find(first, 1);
      if (end == std::string_view::npos) {
        fail(line, "the quote is not closed");
        return node;
      }
      node.scalar = std::string(rest.substr(1, end - 1));
      rest.remove_prefix(end + 1);
      return node;
    }
    if (std::string_view("&*!|>%@`").find(first) != std::string_view::npos)
      fail(line, std::string("a value cannot start with '") + first + "'");
    const std::size_t end = stops.empty() ? rest.size() : std::min(rest.find_first_of(stops), rest.size());
    node.scalar = std::string(trim(rest.substr(0, end)));
    rest.remove_prefix(end);
    return node;
  }

  std::vector<Line> lines_;
  std::size_t at_ = 0;
  std::string error_;
};

}  // namespace

std::expected<Outline, std::string> read_outline(std::string_view text) { return Reader(text).read(); }

}  // namespace tensor_fusion::sim::device
