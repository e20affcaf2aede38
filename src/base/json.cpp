#include "base/json.h"

#include <cmath>
#include <limits>

#include "base/json_reader.h"
#include "base/json_writer.h"

namespace tensor_fusion::base {
namespace {

const Json kNull;
const std::string kEmptyText;
const Json::Array kNoItems;
const Json::Object kNoMembers;

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

bool Json::operator==(const Json& other) const { return value_ == other.value_; }

std::string Json::dump() const { return write_json(*this, 0); }

std::string Json::pretty(int indent) const { return write_json(*this, indent); }

Result<Json> Json::parse(std::string_view text) { return read_json(text); }

}  // namespace tensor_fusion::base
