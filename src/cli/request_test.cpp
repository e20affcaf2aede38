#include "cli/request.h"

#include <gtest/gtest.h>
#include <signal.h>

#include <cctype>

namespace tensor_fusion::cli {
namespace {

Invocation line(std::vector<std::string> words) {
  auto read = parse(words);
  EXPECT_TRUE(read) << read.error().message;
  return std::move(*read);
}

TEST(RunRequest, carries_what_was_asked_for) {
  const auto request =
      run_request_of(line({"run", "--vram", "2Gi", "--compute", "20tflops", "--compute-request", "10%", "--gpus", "2",
                           "--qos", "high", "--name", "night", "--", "python", "train.py"}));
  ASSERT_TRUE(request) << request.error().message;
  EXPECT_EQ(std::get<base::Bytes>(*request->vram).value, 2u << 30);
  EXPECT_DOUBLE_EQ(std::get<base::Tflops>(*request->compute).value, 20);
  EXPECT_EQ(std::get<base::Percent>(*request->compute_request).basis_points, 1000u);
  EXPECT_EQ(request->gpus, 2u);
  EXPECT_EQ(request->name, "night");
  EXPECT_EQ(request->qos, "high");
  EXPECT_EQ(request->command, "python train.py");
}

TEST(RunRequest, may_be_certain_of_nothing) {
  const auto request = run_request_of(line({"run", "--compute-request", "0%", "--compute", "40%", "true"}));
  ASSERT_TRUE(request) << request.error().message;
  EXPECT_EQ(std::get<base::Percent>(*request->compute_request).basis_points, 0u);
  EXPECT_EQ(node::hypervisor::run_request_from(node::hypervisor::to_json(*request))->compute_request,
            request->compute_request);
}

TEST(RunRequest, asks_for_as_many_gpus_as_are_named) {
  EXPECT_EQ(run_request_of(line({"run", "-g", "0", "-g", "3", "true"}))->gpus, 2u);
  EXPECT_EQ(run_request_of(line({"run", "true"}))->gpus, 1u);
}

struct Bad {
  std::string option;
  std::string value;
  std::string_view says;
};
class BadValue : public testing::TestWithParam<Bad> {};

TEST_P(BadValue, is_refused_as_a_usage_error_that_names_the_option) {
  const auto request = run_request_of(line({"run", GetParam().option + "=" + GetParam().value, "true"}));
  ASSERT_FALSE(request);
  EXPECT_EQ(request.error().code, base::ErrorCode::kUsage);
  EXPECT_NE(request.error().message.find(GetParam().says), std::string::npos) << request.error().message;
  EXPECT_NE(request.error().message.find(GetParam().option), std::string::npos) << request.error().message;
}

INSTANTIATE_TEST_SUITE_P(
    RunRequest, BadValue,
    testing::Values(Bad{"--vram", "1", "did you mean `1Gi`?"}, Bad{"--vram", "8", "did you mean `8Gi`?"},
                    Bad{"--vram", "1Ki", "write it like `1Gi`"}, Bad{"--vram", "15Mi", "the least is 16Mi"},
                    Bad{"--vram", "4000000", "write it like `1Gi`"}, Bad{"--vram", "0", "0"},
                    Bad{"--vram", "-1Gi", "-1Gi"}, Bad{"--vram", "nan", "nan"}, Bad{"--vram", "infGi", "infGi"},
                    Bad{"--vram", "8Gib8", "8Gib8"}, Bad{"--vram", "120%", "120%"},
                    Bad{"--vram", "99999999999Gi", "99999999999Gi"}, Bad{"--compute", "0%", "0%"},
                    Bad{"--compute", "-5%", "-5%"}, Bad{"--compute", "101%", "101%"}, Bad{"--compute", "nan%", "nan%"},
                    Bad{"--compute", "20tflosp", "tflops"}, Bad{"--compute", "40", "40"},
                    Bad{"--gpus", "0", "from 1 to 16"}, Bad{"--gpus", "17", "from 1 to 16"},
                    Bad{"--gpus", "-1", "from 1 to 16"}, Bad{"--gpus", "1e3", "from 1 to 16"},
                    Bad{"--gpu", ",", "leaves a GPU out"}, Bad{"--gpu", "0,,1", "leaves a GPU out"},
                    Bad{"--name", "a/b", "letters, digits"}, Bad{"--name", "..", "begins with"}),
    [](const auto& bad) {
      std::string name = std::to_string(bad.index) + "_";
      for (const char letter : bad.param.option + " " + bad.param.value)
        if (letter != '-') name += std::isalnum(static_cast<unsigned char>(letter)) != 0 ? letter : '_';
      return name;
    });

TEST(RunRequest, takes_the_least_memory_that_a_program_can_begin_with) {
  EXPECT_TRUE(run_request_of(line({"run", "--vram", "16Mi", "true"})));
  EXPECT_TRUE(run_request_of(line({"run", "--vram", "0.1%", "true"}))) << "what it is of the card is not known here";
  EXPECT_FALSE(limit_request_of(line({"limit", "night", "--vram", "1"})));
}

TEST(RunRequest, refuses_a_floor_above_the_cap) {
  const auto request = run_request_of(line({"run", "--compute", "20%", "--compute-request", "30%", "true"}));
  ASSERT_FALSE(request);
  EXPECT_NE(request.error().message.find("--compute-request 30% is more than --compute 20%"), std::string::npos);
}

TEST(LimitRequest, needs_something_to_change) {
  EXPECT_FALSE(limit_request_of(line({"limit", "night"})));
  const auto request = limit_request_of(line({"limit", "night", "--compute", "60%"}));
  ASSERT_TRUE(request);
  EXPECT_EQ(request->tenant, "night");
  EXPECT_FALSE(request->vram);
}

TEST(Signal, is_a_name_with_or_without_sig_or_a_number) {
  EXPECT_EQ(signal_of("TERM"), SIGTERM);
  EXPECT_EQ(signal_of("sigint"), SIGINT);
  EXPECT_EQ(signal_of("9"), 9);
  EXPECT_FALSE(signal_of("0"));
  EXPECT_FALSE(signal_of("999"));
  EXPECT_NE(signal_of("TREM").error().message.find("did you mean `TERM`?"), std::string::npos);
}

}  // namespace
}  // namespace tensor_fusion::cli
