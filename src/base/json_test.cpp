#include "base/json.h"

#include <gtest/gtest.h>

namespace tensor_fusion::base {
namespace {

TEST(Json, reads_back_what_it_wrote) {
  const Json value = Json::object({{"a", 1},
                                   {"b", Json::array().push(true).push(nullptr).push(-2.5)},
                                   {"c", "q\"\\\n\x01ü"},
                                   {"d", 18446744073709551615ull},
                                   {"e", Json::object()}});
  const auto compact = Json::parse(value.dump());
  ASSERT_TRUE(compact) << compact.error().message;
  EXPECT_EQ(*compact, value);
  EXPECT_EQ(Json::parse(value.pretty()).value(), value);
  EXPECT_EQ((*compact)["d"].as_uint(), 18446744073709551615ull);
}

TEST(Json, refuses_what_is_not_json) {
  for (const char* text : {"", "{", "[1,", "{\"a\"}", "{\"a\":1,}", "nul", "1 2", "\"\\x\"", "\"\\ud800\"", "{1:2}",
                           "+-", "\"a\nb\"", "[1}"})
    EXPECT_FALSE(Json::parse(text)) << text;
  EXPECT_FALSE(Json::parse(std::string(10'000, '[')));
}

TEST(Json, gives_the_fallback_for_another_kind) {
  const Json value = Json::parse(R"({"a":"x","b":1e300})").value();
  EXPECT_EQ(value["a"].as_int(7), 7);
  EXPECT_EQ(value["b"].as_int(7), 7);
  EXPECT_TRUE(value["none"]["deeper"].is_null());
  EXPECT_TRUE(value.at(3).is_null());
  EXPECT_EQ(value["none"].string_or("z"), "z");
}

TEST(Json, writes_no_negative_zero) {
  EXPECT_EQ(Json(-0.0).dump(), "0");
  EXPECT_EQ(Json::parse("-0e0").value().dump(), "0");
}

TEST(Json, decodes_escapes) { EXPECT_EQ(Json::parse(R"("\u00fc\ud83d\ude00\/")").value().as_string(), "ü😀/"); }

TEST(Json, writes_nothing_that_a_terminal_obeys) {
  const std::string text = "\x1b[2J\x7f\u009b31m\u00a0";
  const std::string dumped = Json(text).dump();
  EXPECT_EQ(dumped, "\"\\u001b[2J\\u007f\\u009b31m\u00a0\"");
  EXPECT_EQ(Json::parse(dumped).value().as_string(), text);
}

TEST(Json, writes_marks_that_turn_the_direction_of_writing_by_their_numbers) {
  const std::string text = "a\u202e\u2066b\u200f\u061cc\u200b\u20ac";
  const std::string dumped = Json(text).dump();
  EXPECT_EQ(dumped, "\"a\\u202e\\u2066b\\u200f\\u061cc\u200b\u20ac\"");
  EXPECT_EQ(Json::parse(dumped).value().as_string(), text);
  EXPECT_EQ(Json::object({{"\u2069", 1}}).dump(), "{\"\\u2069\":1}");
}

}  // namespace
}  // namespace tensor_fusion::base
