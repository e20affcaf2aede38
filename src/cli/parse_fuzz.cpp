// Any words, cut at zero bytes, and any text as a size: answered, never a crash, and an error is one line.
#include <cstdint>
#include <cstdlib>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "cli/elf.h"
#include "cli/limiter_library.h"
#include "cli/parse.h"
#include "cli/request.h"
#include "tools/fuzz/seeds.h"

namespace cli = tensor_fusion::cli;

// Command lines, their words cut at zero bytes; and the heads of programs, which are looked into.
std::vector<std::vector<std::uint8_t>> fuzz_seeds() {
  using namespace std::string_view_literals;
  std::vector<std::vector<std::uint8_t>> seeds;
  for (const std::string_view text :
       {"run\0--vram\0002Gi\0--compute\00030%\0--\0python\0train.py"sv,
        "run\0-m50%\0-r20%\0--compute=100%\0--qos\0high\0-g0\0-gGPU-01\0-eA=B\0-d\0--name=night\0--\0./serve"sv,
        "limit\0night\0--vram\0004Gi\0--compute\00020tflops"sv, "ps\0-o\0json"sv, "kill\0night\0--signal\0TERM"sv,
        "devices\0--help"sv, "#!/usr/bin/env -S python3 -u\nprint()"sv, "/a.so:/b.so /c.so"sv, "SIGKILL"sv})
    seeds.emplace_back(text.begin(), text.end());
  // A 64-bit little-endian executable of x86-64 with one program header: the name of its interpreter.
  std::vector<std::uint8_t> elf(64 + 56 + 32, 0);
  const auto put = [&](std::size_t at, std::string_view bytes) {
    for (const char byte : bytes) elf[at++] = static_cast<std::uint8_t>(byte);
  };
  put(0,
      "\x7f"
      "ELF\2\1\1"sv);
  put(16, "\3\0\x3e\0\1"sv);
  put(32, "\x40"sv);            // where the program headers begin
  put(52, "\x40\0\x38\0\1"sv);  // sizes, and one of them
  put(64, "\3\0\0\0\4"sv);      // interpreter, readable
  put(72, "\x78"sv);            // where its name lies
  put(96, "\x1c\0\0\0\0\0\0\0\x1c"sv);
  put(120, "/lib64/ld-linux-x86-64.so.2\0"sv);
  seeds.push_back(elf);
  return seeds;
}

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
