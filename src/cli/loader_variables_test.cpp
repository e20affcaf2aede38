#include "cli/loader_variables.h"

#include <gtest/gtest.h>

namespace tensor_fusion::cli {
namespace {

using Words = std::vector<std::string>;

TEST(LoaderVariables, that_can_keep_the_limiter_out_are_taken_out_and_named) {
  Words environment{"A=1", "LD_AUDIT=/audit.so", "LD_AUDITS=x", "LD_LIBRARY_PATH=/lib", "LD_BIND_NOW=1"};
  EXPECT_EQ(take_out_loader_variables(environment), Words{"LD_AUDIT"});
  EXPECT_EQ(environment, (Words{"A=1", "LD_AUDITS=x", "LD_LIBRARY_PATH=/lib", "LD_BIND_NOW=1"}));
  environment = {"LD_AUDIT="};
  EXPECT_EQ(take_out_loader_variables(environment), Words{}) << "nobody needs to hear of one that does nothing";
}

TEST(LoaderVariables, let_the_limiter_stand_before_what_the_user_preloads) {
  Words environment{"A=1", "LD_PRELOAD=/jemalloc.so:/b.so"};
  preload_first(environment, "/l.so");
  EXPECT_EQ(environment, (Words{"A=1", "LD_PRELOAD=/l.so:/jemalloc.so:/b.so"}));
  environment = {"LD_PRELOAD="};
  preload_first(environment, "/l.so");
  EXPECT_EQ(environment, Words{"LD_PRELOAD="}) << "the file names it already";
}

}  // namespace
}  // namespace tensor_fusion::cli
