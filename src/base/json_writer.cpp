#include "base/json_writer.h"

#include <charconv>
#include <cmath>
#include <string_view>

#include "base/text.h"

namespace tensor_fusion::base {
namespace {

// What a terminal obeys, by its number: a name could otherwise show another than it is.
void write_number_of(std::string& out, std::string_view character) {
  constexpr std::string_view kHex = "0123456789abcdef";
  unsigned number = 0;
  for (const char c : character) {
    const auto byte = static_cast<unsigned char>(c);
    // Lead bytes of two and three carry five and four bits, those that follow six.
    number = byte < 0x80 ? byte : byte < 0xc0 ? number << 6 | (byte & 0x3f) : byte < 0xe0 ? byte & 0x1f : byte & 0x0f;
  }
  out += "\\u";
  for (const int shift : {12, 8, 4, 0}) out += kHex[number >> shift & 15];
}

void write_string(std::string& out, std::string_view text) {
  constexpr std::string_view kNamed = "\"\\\n\r\t", kNames = "\"\\nrt";
  out += '"';
  while (!text.empty()) {
    std::size_t size = 1;
    if (const auto named = kNamed.find(text.front()); named != std::string_view::npos) {
      out += '\\';
      out += kNames[named];
    } else if (const std::size_t obeyed = obeyed_size(text); obeyed != 0) {
      write_number_of(out, text.substr(0, size = obeyed));
    } else {
      out += text.front();
    }
    text.remove_prefix(size);
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

}  // namespace

std::string write_json(const Json& value, int indent) {
  std::string out;
  Writer(out, indent).write(value, 0);
  return out;
}

}  // namespace tensor_fusion::base
