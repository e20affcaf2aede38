#include "view/table.h"

#include <gtest/gtest.h>

namespace tensor_fusion::view {
namespace {

TEST(Table, makes_columns_as_wide_as_their_widest_cell) {
  Table table({{"NAME"}, {"N", Align::kRight}, {"LAST"}});
  table.add({{"a"}, {"1"}, {"x"}});
  table.add({{"longer"}, {"1000"}, {"y"}});
  EXPECT_EQ(table.render({}),
            "NAME       N  LAST\n"
            "a          1  x\n"
            "longer  1000  y\n");
}

TEST(Table, counts_a_character_of_several_bytes_as_one_column) {
  Table table({{"A"}, {"B"}});
  table.add({{"é…"}, {"x"}});
  table.add({{"abc"}, {"y"}});
  EXPECT_EQ(table.render({}), "A    B\né…   x\nabc  y\n");
}

TEST(Table, cuts_only_the_last_column_to_the_width) {
  Table table({{"A"}, {"COMMAND"}});
  table.add({{"abcdef"}, {"python train.py --long"}});
  EXPECT_EQ(table.render({.colours = false, .width = 14}), "A       COMMAN\nabcdef  python\n");
}

TEST(Table, leaves_out_spare_columns_before_it_cuts) {
  Table table({{"A"}, {"SPARE", Align::kLeft, 1}, {"SPARER", Align::kLeft, 2}, {"COMMAND"}});
  table.add({{"a"}, {"b"}, {"c"}, {"python train.py"}});
  EXPECT_EQ(table.render({.colours = false, .width = 40}),
            "A  SPARE  SPARER  COMMAND\na  b      c       python train.py\n");
  EXPECT_EQ(table.render({.colours = false, .width = 24}), "A  SPARE  COMMAND\na  b      python train.p\n");
  EXPECT_EQ(table.render({.colours = false, .width = 10}), "A  COMMAND\na  python\n");
}

TEST(Table, lets_no_control_character_of_a_program_name_reach_the_terminal) {
  Table table({{"A"}});
  table.add({{"evil\x1b[2J\n\x7f"}});
  EXPECT_EQ(table.render({}), "A\nevil?[2J??\n");
}

TEST(Table, colours_only_when_asked) {
  Table table({{"A"}, {"B"}});
  table.add({{"x", Tone::kBad}, {"y"}});
  EXPECT_EQ(table.render({}).find('\x1b'), std::string::npos);
  EXPECT_NE(table.render({.colours = true}).find("\x1b[31mx\x1b[0m"), std::string::npos);
}

TEST(Table, keeps_a_row_with_missing_or_surplus_cells) {
  Table table({{"A"}, {"B"}});
  table.add({{"x"}});
  table.add({{"x"}, {"y"}, {"z"}});
  EXPECT_EQ(table.render({}), "A  B\nx\nx  y\n");
}

}  // namespace
}  // namespace tensor_fusion::view
