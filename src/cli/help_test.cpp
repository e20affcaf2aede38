#include "cli/help.h"

#include <gtest/gtest.h>
#include <sys/wait.h>

#include <cstdlib>
#include <fstream>

#include "base/version.h"
#include "cli/completion.h"

namespace tensor_fusion::cli {
namespace {

bool contains(const std::string& text, std::string_view part) { return text.find(part) != std::string::npos; }

TEST(Help, shows_every_command_and_every_option) {
  const std::string all = help_text();
  const std::string manual = manual_page();
  const std::string reference = reference_page();
  for (const Command& command : commands()) {
    EXPECT_TRUE(contains(all, command.summary)) << command.name;
    EXPECT_TRUE(contains(manual, command.name)) << command.name;
    EXPECT_TRUE(contains(reference, std::string("## ") + std::string(command.name))) << command.name;
    const std::string own = help_text(command);
    for (const Option& option : command.options) {
      EXPECT_TRUE(contains(own, std::string("--") + std::string(option.name))) << option.name;
      EXPECT_TRUE(contains(reference, std::string("--") + std::string(option.name))) << option.name;
    }
  }
}

TEST(Help, lists_the_words_of_an_option_unless_it_names_them_all) {
  const std::string run = help_text(*find_command("run"));
  EXPECT_TRUE(contains(run, "(low, medium, high, critical)")) << run;
  EXPECT_FALSE(contains(run, "(table")) << run;
  EXPECT_FALSE(contains(reference_page(), "(table"));
}

TEST(Help, keeps_its_lines_short_enough_for_a_terminal) {
  for (const Command& command : commands()) {
    const std::string text = help_text(command);
    std::size_t start = 0;
    while (start < text.size()) {
      const auto end = std::min(text.find('\n', start), text.size());
      EXPECT_LE(end - start, 116u) << text.substr(start, end - start);
      start = end + 1;
    }
  }
}

TEST(Manual, has_no_line_that_roff_would_take_for_a_request) {
  std::string manual = manual_page();
  for (std::size_t at = 0; at < manual.size(); at = manual.find('\n', at) + 1) {
    if (manual[at] == '\'') ADD_FAILURE() << manual.substr(at, 40);
    if (manual[at] == '.') {
      EXPECT_TRUE(manual[at + 1] >= 'A' && manual[at + 1] <= 'z') << manual.substr(at, 40);
    }
    if (manual.find('\n', at) == std::string::npos) break;
  }
  EXPECT_TRUE(contains(manual, base::kVersion));
}

// Each shell that is installed reads its own script without complaint.
class Completion : public testing::TestWithParam<const char*> {};

TEST_P(Completion, script_is_read_by_its_shell) {
  const std::string shell = GetParam();
  if (std::system(("command -v " + shell + " >/dev/null").c_str()) != 0) GTEST_SKIP() << shell << " is not installed";
  const std::string path = testing::TempDir() + "completion." + shell;
  std::ofstream(path) << completion_for(shell);
  EXPECT_EQ(std::system((shell + " -n " + path).c_str()), 0);
}

INSTANTIATE_TEST_SUITE_P(Shells, Completion, testing::Values("bash", "zsh", "fish"),
                         [](const auto& one) { return std::string(one.param); });

TEST(CompletionScript, in_bash_offers_commands_options_and_words) {
  const std::string script = testing::TempDir() + "completion.offers.bash";
  std::ofstream(script) << bash_completion() << R"(
offers() { COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1)); _tensor_fusion; printf '%s\n' "${COMPREPLY[@]}"; }
offers tensor-fusion de | grep -qx devices || exit 1
offers tensor-fusion run --vr | grep -qx -- --vram || exit 2
offers tensor-fusion run --qos hi | grep -qx high || exit 3
offers tensor-fusion -o json l | grep -qx limit || exit 4
offers tensor-fusion completion z | grep -qx zsh || exit 5
offers tensor-fusion ps -o j | grep -qx json || exit 6
! offers tensor-fusion ps --vr | grep -q vram || exit 7
)";
  const int status = std::system(("bash " + script).c_str());
  EXPECT_EQ(WEXITSTATUS(status), 0);
}

TEST(CompletionScript, names_every_command_in_every_shell) {
  for (const char* shell : {"bash", "zsh", "fish"}) {
    const std::string script = completion_for(shell);
    for (const Command& command : commands())
      EXPECT_TRUE(contains(script, command.name)) << shell << " " << command.name;
  }
  EXPECT_TRUE(completion_for("tcsh").empty());
}

}  // namespace
}  // namespace tensor_fusion::cli
