// Any words, cut at zero bytes, and any text as a size: answered, never a crash, and an error is one line.
#include <cstdint>
#include <cstdlib>
#include <string>
#include <utility>
#include <vector>

#include "cli/elf.h"
#include "cli/limiter_library.h"
#include "cli/parse.h"
#include "cli/request.h"

namespace cli = tensor_fusion::cli;

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  std::vector<std::string> words;
  std::string word;
  for (std::size_t i = 0; i < size; ++i) {
    if (data[i] == 0) {
      words.push_back(std::exchange(word, {}));
    } else {
      word.push_back(static_cast<char>(data[i]));
    }
  }
  words.push_back(word);
  const auto check = [](const std::vector<std::string>& line) {
    const auto read = cli::parse(line);
    if (!read && read.error().message.empty()) std::abort();
    if (!read || read->wants_help) return;
    if (read->command->name == "run" && !cli::run_request_of(*read) &&
        cli::run_request_of(*read).error().message.empty())
      std::abort();
    if (read->command->name == "limit") (void)cli::limit_request_of(*read);
  };
  check(words);
  words.insert(words.begin(), "run");
  check(words);
  for (const char* option : {"--vram", "--compute", "--compute-request", "--gpus", "--name"})
    check({"run", option, words.back(), "true"});
  (void)cli::signal_of(words.back());
  (void)cli::inspect_elf({data, size});
  (void)cli::inspect_shebang({data, size});
  const std::string text(reinterpret_cast<const char*>(data), size);
  if (cli::merged_preload(cli::merged_preload(text, "/l.so"), "/l.so") != cli::merged_preload(text, "/l.so"))
    std::abort();
  return 0;
}
