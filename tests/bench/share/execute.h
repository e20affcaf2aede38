#pragma once
// In a child of fork: becomes that program, with these variables besides, and ends with who started it.
#include <signal.h>
#include <sys/prctl.h>
#include <unistd.h>

#include <cstdlib>
#include <string>
#include <utility>
#include <vector>

namespace tensor_fusion::bench::share {

[[noreturn]] inline void execute(const std::vector<std::string>& command,
                                 const std::vector<std::pair<std::string, std::string>>& variables) {
  for (const auto& [name, value] : variables) ::setenv(name.c_str(), value.c_str(), 1);
  std::vector<char*> words;
  for (const std::string& word : command) words.push_back(const_cast<char*>(word.c_str()));
  words.push_back(nullptr);
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  ::execv(words[0], words.data());
  std::_Exit(127);
}

}  // namespace tensor_fusion::bench::share
