#include "base/text.h"

#include <gtest/gtest.h>

#include <array>

#include "base/id.h"

namespace tensor_fusion::base {
namespace {

TEST(Text, finds_the_word_a_typo_meant) {
  constexpr std::array<std::string_view, 4> kWords = {"devices", "doctor", "limit", "ps"};
  EXPECT_EQ(nearest_word("devcies", kWords), "devices");
  EXPECT_EQ(nearest_word("limt", kWords), "limit");
  EXPECT_EQ(nearest_word("sp", kWords), "ps");
  EXPECT_FALSE(nearest_word("banana", kWords));
}

TEST(Text, measures_swapped_letters_as_one) {
  EXPECT_EQ(distance("abcd", "abdc"), 1u);
  EXPECT_EQ(distance("", "abc"), 3u);
  EXPECT_EQ(distance("Same", "sAME"), 0u);
}

TEST(Text, splits_and_joins) {
  EXPECT_EQ(split("a,,b", ',').size(), 3u);
  const std::array<std::string, 2> parts = {"a", "b"};
  EXPECT_EQ(join(parts, ", "), "a, b");
  EXPECT_EQ(trim(" \tx\n"), "x");
}

TEST(Text, replaces_what_is_no_character) {
  for (const char* fine : {"", "plain", "ü", "日本", "😀", "\u007f"}) EXPECT_EQ(valid_utf8(fine), fine);
  EXPECT_EQ(valid_utf8("a\xff"
                       "b"),
            "a\ufffdb");
  EXPECT_EQ(valid_utf8("\xc0\x80"), "\ufffd\ufffd") << "overlong";
  EXPECT_EQ(valid_utf8("\xed\xa0\x80"), "\ufffd\ufffd\ufffd") << "a surrogate";
  EXPECT_EQ(valid_utf8("\xf4\x90\x80\x80"), "\ufffd\ufffd\ufffd\ufffd") << "past the last character";
  EXPECT_EQ(valid_utf8("\xe6\x97\""), "\ufffd\ufffd\"") << "cut: what follows is kept";
}

TEST(Id, brings_uuids_to_one_spelling) {
  EXPECT_EQ(canonical_uuid("GPU-ABCDEF00-1111-2222-3333-444455556666"), "GPU-abcdef00-1111-2222-3333-444455556666");
  EXPECT_EQ(canonical_uuid("ABCDEF00-1111-2222-3333-444455556666"), "GPU-abcdef00-1111-2222-3333-444455556666");
  EXPECT_EQ(canonical_uuid("MIG-AbC"), "MIG-AbC");
  EXPECT_TRUE(same_device("gpu-AB", "GPU-ab"));
}

TEST(Id, refuses_names_that_are_no_file_names) {
  for (const char* name : {"", "..", "a/b", "-x", "a b", "ü"}) EXPECT_FALSE(check_name(name)) << name;
  EXPECT_TRUE(check_name("train-1.a_B"));
  EXPECT_FALSE(check_name(std::string(64, 'a')));
}

TEST(Id, gives_distinct_short_ids) {
  EXPECT_NE(short_id(1), short_id(2));
  EXPECT_EQ(short_id(7).size(), 6u);
}

}  // namespace
}  // namespace tensor_fusion::base
