// Runs a fuzz target without libFuzzer, the same way every time: over its seeds (tools/fuzz/seeds.h), those in the
// files and folders named on the command line and those it makes itself, over some mutations of each, and over random
// bytes. An input that ends the program is named, and written beside it.
#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <random>
#include <string>
#include <vector>

#include "tools/fuzz/seeds.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size);
extern "C" [[gnu::weak]] void __sanitizer_set_death_callback(void (*callback)());

namespace {

using Bytes = std::vector<std::uint8_t>;
struct Seed {
  std::string name;
  Bytes bytes;
};

constexpr std::size_t kMutations = 300;                     // of each seed
constexpr std::size_t kRandom = 1000;                       // inputs that have no seed
constexpr std::size_t kMostChanges = 6;                     // of one mutation
constexpr auto kLongest = std::chrono::milliseconds(1500);  // after this no more seeds are mutated; each ran once

// The input that runs now, for whoever ends the program.
const Bytes* g_bytes = nullptr;
char g_name[256];
char g_file[4096];

void tell() {
  if (g_bytes == nullptr) return;
  const int file = open(g_file, O_WRONLY | O_CREAT | O_TRUNC, 0600);
  const bool written = file >= 0 && write(file, g_bytes->data(), g_bytes->size()) >= 0;
  g_bytes = nullptr;
  for (const char* part : {"fuzz: the input is ", const_cast<const char*>(g_name), written ? ", written to " : "\n",
                           written ? const_cast<const char*>(g_file) : "", written ? "\n" : ""})
    if (write(STDERR_FILENO, part, std::strlen(part)) < 0) return;
}

void tell_and_end(int signal) {
  tell();
  std::signal(signal, SIG_DFL);
  std::raise(signal);
}

void run(const std::string& name, const Bytes& bytes) {
  std::snprintf(g_name, sizeof g_name, "%s", name.c_str());
  g_bytes = &bytes;
  LLVMFuzzerTestOneInput(bytes.data(), bytes.size());
  g_bytes = nullptr;
}

Seed read_seed(const std::filesystem::path& path) {
  std::ifstream in(path, std::ios::binary);
  Seed seed{path.filename().string(), {}};
  std::transform(std::istreambuf_iterator<char>(in), {}, std::back_inserter(seed.bytes),
                 [](char letter) { return static_cast<std::uint8_t>(letter); });
  return seed;
}

std::vector<Seed> seeds_of(int argc, char** argv) {
  std::vector<Seed> seeds;
  for (int i = 1; i < argc; ++i) {
    if (!std::filesystem::is_directory(argv[i])) {
      seeds.push_back(read_seed(argv[i]));
      continue;
    }
    for (const auto& entry : std::filesystem::recursive_directory_iterator(argv[i]))
      if (entry.is_regular_file()) seeds.push_back(read_seed(entry.path()));
  }
  if (&fuzz_seeds != nullptr)
    for (auto& bytes : fuzz_seeds()) seeds.push_back({"made_" + std::to_string(seeds.size()), std::move(bytes)});
  // A folder lists in any order; every run is to be the same.
  std::sort(seeds.begin(), seeds.end(), [](const Seed& one, const Seed& other) { return one.name < other.name; });
  return seeds;
}

// Bytes changed, taken out, doubled, or taken from another seed.
Bytes mutated(Bytes bytes, const Bytes& other, std::mt19937& random) {
  for (std::size_t changes = 1 + random() % kMostChanges; changes > 0 && !bytes.empty(); --changes) {
    const auto at = static_cast<std::ptrdiff_t>(random() % bytes.size());
    const auto left = static_cast<std::ptrdiff_t>(bytes.size()) - at;
    const auto length = std::min<std::ptrdiff_t>(left, 1 + static_cast<std::ptrdiff_t>(random() % 16));
    const auto begin = bytes.begin() + at;
    switch (random() % 6) {
      case 0:
        *begin = static_cast<std::uint8_t>(random());
        break;
      case 1:
        *begin = static_cast<std::uint8_t>(*begin ^ 1u << random() % 8);
        break;
      case 2:
        bytes.erase(begin, begin + length);
        break;
      case 3: {
        const Bytes again(begin, begin + length);
        bytes.insert(begin, again.begin(), again.end());
        break;
      }
      case 4:
        std::fill(begin, begin + length, static_cast<std::uint8_t>(random() % 2 == 0 ? 0 : 0xff));
        break;
      default:
        if (other.empty()) break;
        const std::size_t from = random() % other.size();
        const std::size_t most = std::min<std::size_t>(other.size() - from, 64);
        const auto first = other.begin() + static_cast<std::ptrdiff_t>(from);
        bytes.insert(begin, first, first + static_cast<std::ptrdiff_t>(most));
    }
  }
  return bytes;
}

}  // namespace

int main(int argc, char** argv) {
  std::snprintf(g_file, sizeof g_file, "%s.failed", argv[0]);
  if (&__sanitizer_set_death_callback != nullptr) __sanitizer_set_death_callback(&tell);
  for (const int signal : {SIGABRT, SIGTRAP, SIGILL}) std::signal(signal, &tell_and_end);
  if (&__sanitizer_set_death_callback == nullptr)
    for (const int signal : {SIGSEGV, SIGBUS, SIGFPE}) std::signal(signal, &tell_and_end);

  const std::vector<Seed> seeds = seeds_of(argc, argv);
  const auto end = std::chrono::steady_clock::now() + kLongest;
  for (const Seed& seed : seeds) run(seed.name, seed.bytes);
  std::mt19937 random(20240229);
  std::size_t mutations = 0;
  // Every seed once, then every seed again, so that little time is shared by all of them.
  for (std::size_t round = 0; round < kMutations && !seeds.empty(); ++round) {
    for (const Seed& seed : seeds) {
      const Bytes bytes = mutated(seed.bytes, seeds[random() % seeds.size()].bytes, random);
      if (std::chrono::steady_clock::now() > end) break;
      run(seed.name + ", mutation " + std::to_string(round), bytes);
      ++mutations;
    }
  }
  for (std::size_t i = 0; i < kRandom; ++i) {
    Bytes bytes(random() % 512);
    for (auto& byte : bytes) byte = static_cast<std::uint8_t>(random());
    run("random " + std::to_string(i), bytes);
  }
  std::printf("%zu seeds, %zu mutations, %zu random inputs\n", seeds.size(), mutations, kRandom);
  return 0;
}
