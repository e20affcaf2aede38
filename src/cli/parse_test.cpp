#include "cli/parse.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cctype>

#include "cli/other_words.h"

namespace tensor_fusion::cli {
namespace {

using Words = std::vector<std::string>;

TEST(Parse, reads_the_line_of_the_first_page) {
  const auto read = parse({"run", "--vram", "2Gi", "--compute=30%", "--", "python", "train.py", "--vram", "9Gi"});
  ASSERT_TRUE(read) << read.error().message;
  EXPECT_EQ(read->command->name, "run");
  EXPECT_EQ(read->value("vram"), "2Gi");
  EXPECT_EQ(read->value("compute"), "30%");
  EXPECT_EQ(read->arguments, (Words{"python", "train.py", "--vram", "9Gi"}));
}

TEST(Parse, leaves_everything_after_the_program_to_the_program) {
  const auto read = parse({"run", "-m", "1Gi", "python", "-c", "print()", "--help", "--", "-o", "json"});
  ASSERT_TRUE(read) << read.error().message;
  EXPECT_EQ(read->arguments, (Words{"python", "-c", "print()", "--help", "--", "-o", "json"}));
  EXPECT_FALSE(read->wants_help);
  EXPECT_FALSE(read->json());
}

TEST(Parse, notices_an_option_of_ours_among_the_programs_words) {
  EXPECT_EQ(parse({"run", "python", "train.py", "--compute", "40%"})->stray_option, "--compute");
  EXPECT_EQ(parse({"run", "python", "train.py", "--vram=1Gi"})->stray_option, "--vram");
  EXPECT_EQ(parse({"run", "--", "python", "--compute", "40%"})->stray_option, "");
  EXPECT_EQ(parse({"run", "--compute", "40%", "python", "--name", "x"})->stray_option, "");
}

TEST(Parse, names_the_long_option_where_one_dash_was_written) {
  EXPECT_NE(parse({"run", "-detach", "true"}).error().message.find("write `--detach`"), std::string::npos);
  EXPECT_NE(parse({"run", "-gpu", "0", "true"}).error().message.find("write `--gpu`"), std::string::npos);
  EXPECT_NE(parse({"run", "-name=x", "true"}).error().message.find("write `--name=x`"), std::string::npos);
  EXPECT_TRUE(parse({"run", "-dw", "-g0", "true"}));
}

TEST(Parse, tells_a_dash_of_another_kind) {
  EXPECT_NE(parse({"run", "\xE2\x80\x93vram", "1Gi", "true"}).error().message.find("write `--vram`"),
            std::string::npos);
  EXPECT_NE(parse({"run", "\xE2\x80\x94vram", "1Gi", "true"}).error().message.find("another kind"), std::string::npos);
  EXPECT_TRUE(parse({"run", "--", "\xE2\x80\x93vram"}));
}

TEST(Parse, takes_options_before_and_after_the_command_and_its_arguments) {
  for (const Words& words :
       {Words{"-o", "json", "ps"}, Words{"ps", "-ojson"}, Words{"--output=json", "ps"}, Words{"ps", "a", "-o=json"}}) {
    const auto read = parse(words);
    ASSERT_TRUE(read) << read.error().message;
    EXPECT_TRUE(read->json());
  }
}

TEST(Parse, collects_what_may_be_given_more_than_once) {
  const auto read = parse({"run", "-e", "A=1", "--env", "B=2", "-dw", "--gpu", "0", "-g1", "true"});
  ASSERT_TRUE(read) << read.error().message;
  EXPECT_EQ(read->values("env"), (Words{"A=1", "B=2"}));
  EXPECT_EQ(read->values("gpu"), (Words{"0", "1"}));
  EXPECT_TRUE(read->has("detach"));
  EXPECT_TRUE(read->has("wait"));
}

struct Refused {
  Words words;
  std::string_view says;  // part of the sentence
};

class RefusedLine : public testing::TestWithParam<Refused> {};

TEST_P(RefusedLine, is_answered_with_one_sentence_that_says_what_to_do) {
  const auto read = parse(GetParam().words);
  ASSERT_FALSE(read);
  EXPECT_NE(read.error().message.find(GetParam().says), std::string::npos) << read.error().message;
  EXPECT_EQ(read.error().message.find('\n'), std::string::npos);
}

INSTANTIATE_TEST_SUITE_P(
    Parse, RefusedLine,
    testing::Values(
        Refused{{}, "a command is missing"}, Refused{{"rum", "--", "true"}, "did you mean `run`?"},
        Refused{{"deviecs"}, "did you mean `devices`?"}, Refused{{"xyzzyplugh"}, "there is no command `xyzzyplugh`; "},
        Refused{{"run", "--vrma", "2Gi", "true"}, "did you mean `--vram`?"},
        Refused{{"run", "--comptue=3%", "true"}, "did you mean `--compute`?"},
        Refused{{"ps", "--vram", "2Gi"}, "`ps` has no option `--vram`"}, Refused{{"ps", "-x"}, "no option `-x`"},
        Refused{{"--vram", "2Gi", "run"}, "before a command"},
        Refused{{"run", "--vram"}, "`--vram` needs a value: --vram SIZE"},
        Refused{{"run", "--vram", "--", "true"}, "needs a value"}, Refused{{"run", "--vram=", "true"}, "not empty"},
        Refused{{"run", "--wait=yes", "true"}, "takes no value"},
        Refused{{"run", "--vram", "1Gi", "--vram", "2Gi", "true"}, "given twice"}, Refused{{"run"}, "`run` needs more"},
        Refused{{"run", "--"}, "`run` needs more"}, Refused{{"--", "true"}, "must stand before `--`"},
        Refused{{"limit"}, "needs more"}, Refused{{"limit", "a", "b"}, "does not take `b`"},
        Refused{{"version", "x"}, "does not take `x`"}, Refused{{"ps", "-o", "jsno"}, "did you mean `json`?"},
        Refused{{"run", "--qos", "hgih", "true"}, "did you mean `high`?"},
        Refused{{"completion", "bsh"}, "did you mean `bash`?"}, Refused{{"bench", "memroy"}, "did you mean `memory`?"},
        Refused{{"no\nsuch\x1b[31m"}, "no?such?[31m"}, Refused{{"list"}, "`tensor-fusion ps` lists slices"},
        Refused{{"stop"}, "`tensor-fusion kill NAME` ends a slice, `tensor-fusion hypervisor --stop` the hypervisor"},
        Refused{{"start"}, "`tensor-fusion run -- PROGRAM`"},
        Refused{{"run", "--mem", "2Gi", "true"}, "did you mean `--vram`?"},
        Refused{{"limit", "a", "--memory=2Gi"}, "did you mean `--vram`?"},
        Refused{{"ps", "--mem", "2Gi"}, "`ps` has no option `--mem`; "}),
    [](const auto& refused) {
      std::string name = std::to_string(refused.index) + (refused.param.words.empty() ? "_nothing" : "");
      for (const std::string& word : refused.param.words) {
        name += '_';
        for (const char letter : word)
          if (std::isalnum(static_cast<unsigned char>(letter)) != 0) name += letter;
      }
      return name;
    });

TEST(Parse, shows_help_for_a_command_whatever_else_is_missing) {
  const auto run = parse({"run", "--help"});
  ASSERT_TRUE(run);
  EXPECT_TRUE(run->wants_help);
  const auto all = parse({"-h"});
  ASSERT_TRUE(all);
  EXPECT_EQ(all->command->name, "help");
}

TEST(Parse, knows_version_as_an_option_too) {
  const auto read = parse({"--version"});
  ASSERT_TRUE(read);
  EXPECT_EQ(read->command->name, "version");
}

TEST(OtherWords, stand_for_no_command_or_option_of_ours) {
  for (const Command& command : commands()) {
    EXPECT_EQ(meant_by_command(command.name), "") << command.name;
    for (const Option& option : command.options) EXPECT_EQ(meant_by_option(option.name), "") << option.name;
  }
}

TEST(CommandTable, names_every_command_option_and_letter_once) {
  for (const Command& command : commands()) {
    std::vector<std::string_view> names;
    std::string letters;
    for (const auto& options : {command.options, global_options()}) {
      for (const Option& option : options) {
        EXPECT_EQ(std::ranges::find(names, option.name), names.end()) << command.name << " --" << option.name;
        names.push_back(option.name);
        if (option.letter == '\0') continue;
        EXPECT_EQ(letters.find(option.letter), std::string::npos) << command.name << " -" << option.letter;
        letters.push_back(option.letter);
        EXPECT_EQ(option.value.empty(), option.kind == OptionKind::kFlag) << option.name;
      }
    }
    EXPECT_EQ(find_command(command.name), &command);
  }
}

TEST(ExitCodes, of_run_stay_clear_of_the_programs_own) {
  EXPECT_EQ(run_exit_code(kExitUsage), 2);
  EXPECT_EQ(run_exit_code(10), 110);
  EXPECT_EQ(run_exit_code(kExitNotExecutable), 126);
  EXPECT_EQ(run_exit_code(kExitNoProgram), 127);
  for (const ExitCodeRow& row : exit_codes()) {
    EXPECT_LT(run_exit_code(row.code), 128) << row.meaning;
  }
}

TEST(Parse, ends_no_sentence_with_a_blank) {
  const auto refused = parse({"version", "extra"});
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().message, "`version` does not take `extra`: tensor-fusion version");
}

}  // namespace
}  // namespace tensor_fusion::cli
