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

// What a program calls itself must not move the cursor or change colours of who looks at it.
TEST(Printable, leaves_nothing_that_a_terminal_obeys) {
  EXPECT_EQ(printable("a\x1b[31mb\n"), "a?[31mb?");
  EXPECT_EQ(printable("\u009b31m"), "?31m");
  EXPECT_EQ(printable("\x9b"
                      "31m"),
            "\ufffd31m");
  EXPECT_EQ(printable("ü 😀"), "ü 😀");
}

TEST(Printable, shows_marks_that_turn_the_direction_of_writing) {
  EXPECT_EQ(printable("a\u202e\u2066\u200fb\u061c"), "a???b?");
  EXPECT_EQ(printable("\u20ac\u2065\u200b"), "\u20ac\u2065\u200b");
  EXPECT_EQ(printable("a\nb\t\r\x1b[2J", Lines::kMany), "a\nb\t??[2J");
}

// Somebody else's text may be of any length, and the one who compares may have others waiting.
TEST(NearestWord, spends_nothing_on_words_that_are_no_typos) {
  const std::string endless(4u << 20, 'a');
  const std::string_view long_word(endless.data(), endless.size() - 1);
  const std::vector<std::string_view> words{long_word, "night"};
  EXPECT_FALSE(nearest_word(endless, words)) << "takes hours where every letter is compared";
  EXPECT_EQ(nearest_word("nihgt", words), "night");
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

TEST(Id, tells_short_ids_from_other_words) {
  for (std::uint64_t number = 0; number < 1000; ++number) EXPECT_TRUE(is_short_id(short_id(number))) << number;
  for (const char* word : {"", "acme", "customers", "k3f9q", "k3f9qdd", "K3f9qd", "k3f9q.", "book01"})
    EXPECT_FALSE(is_short_id(word)) << word;
}

}  // namespace
}  // namespace tensor_fusion::base
