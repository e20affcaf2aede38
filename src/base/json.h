#pragma once
// One JSON value: what the local protocol, the state files and `-o json` are made of. Objects keep the order in which
// keys were set, integers keep 64 bits. The reader takes whole UTF-8 text of bounded depth and size and refuses the
// rest with the offset; reading a value of another kind gives the fallback, never a crash. Pure; one thread per value.
#include <cstdint>
#include <initializer_list>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "base/result.h"

namespace tensor_fusion::base {

class Json {
 public:
  using Array = std::vector<Json>;
  using Object = std::vector<std::pair<std::string, Json>>;

  Json() = default;  // null
  Json(std::nullptr_t) {}
  Json(bool value) : value_(value) {}
  Json(int value) : value_(static_cast<std::int64_t>(value)) {}
  Json(long value) : value_(static_cast<std::int64_t>(value)) {}
  Json(long long value) : value_(static_cast<std::int64_t>(value)) {}
  Json(unsigned value) : value_(static_cast<std::int64_t>(value)) {}
  Json(unsigned long value) : value_(static_cast<std::uint64_t>(value)) { normalise(); }
  Json(unsigned long long value) : value_(static_cast<std::uint64_t>(value)) { normalise(); }
  Json(double value) : value_(value) {}
  Json(const char* value) : value_(std::string(value)) {}
  Json(std::string_view value) : value_(std::string(value)) {}
  Json(std::string value) : value_(std::move(value)) {}
  Json(Array value) : value_(std::move(value)) {}
  Json(Object value) : value_(std::move(value)) {}

  static Json array() { return Json(Array{}); }
  static Json object() { return Json(Object{}); }
  static Json object(std::initializer_list<std::pair<const char*, Json>> members);

  bool is_null() const { return value_.index() == 0; }
  bool is_bool() const { return std::holds_alternative<bool>(value_); }
  bool is_number() const;
  bool is_integer() const;
  bool is_negative() const;  // an integer below 0
  bool is_string() const { return std::holds_alternative<std::string>(value_); }
  bool is_array() const { return std::holds_alternative<Array>(value_); }
  bool is_object() const { return std::holds_alternative<Object>(value_); }

  bool as_bool(bool fallback = false) const;
  std::int64_t as_int(std::int64_t fallback = 0) const;
  std::uint64_t as_uint(std::uint64_t fallback = 0) const;
  double as_double(double fallback = 0) const;
  const std::string& as_string() const;  // "" when it is no string
  std::string string_or(std::string_view fallback) const;

  const Array& items() const;                          // empty when it is no array
  const Object& members() const;                       // empty when it is no object
  const Json& operator[](std::string_view key) const;  // null when absent
  const Json& at(std::size_t index) const;             // null when out of range
  bool has(std::string_view key) const { return !(*this)[key].is_null(); }
  std::size_t size() const;

  Json& set(std::string key, Json value);  // turns null into an object; replaces; returns *this
  Json& push(Json value);                  // turns null into an array; returns *this

  std::string dump() const;  // one line, no spaces
  std::string pretty(int indent = 2) const;

  static constexpr int kMaxDepth = 64;
  static Result<Json> parse(std::string_view text);

  bool operator==(const Json& other) const;

 private:
  void normalise();  // unsigned values that fit are kept signed, so that equal numbers compare equal
  std::variant<std::monostate, bool, std::int64_t, std::uint64_t, double, std::string, Array, Object> value_;
};

}  // namespace tensor_fusion::base
