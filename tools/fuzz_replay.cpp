// Runs a fuzz target without libFuzzer: over the files and folders named on the command line, or, when none is named,
// over a fixed number of pseudo-random inputs, so that every build exercises every target.
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <random>
#include <vector>

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size);

namespace {
void replay(const std::filesystem::path& path) {
  std::ifstream in(path, std::ios::binary);
  const std::vector<char> bytes{std::istreambuf_iterator<char>(in), {}};
  LLVMFuzzerTestOneInput(reinterpret_cast<const std::uint8_t*>(bytes.data()), bytes.size());
}
}  // namespace

int main(int argc, char** argv) {
  std::size_t inputs = 0;
  for (int i = 1; i < argc; ++i) {
    if (std::filesystem::is_directory(argv[i])) {
      for (const auto& entry : std::filesystem::recursive_directory_iterator(argv[i])) {
        if (entry.is_regular_file()) replay(entry.path()), ++inputs;
      }
    } else {
      replay(argv[i]), ++inputs;
    }
  }
  if (argc == 1) {
    std::mt19937 random(20240229);
    for (; inputs < 2000; ++inputs) {
      std::vector<std::uint8_t> bytes(random() % 512);
      for (auto& byte : bytes) byte = static_cast<std::uint8_t>(random());
      LLVMFuzzerTestOneInput(bytes.data(), bytes.size());
    }
  }
  std::printf("%zu inputs\n", inputs);
  return 0;
}
