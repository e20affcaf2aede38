// What clang makes of ordinary kernels (testdata/ordinary*.c), for several cards, with and without optimisation, run
// here and compared with what it makes of the same source for the host.
#include <dlfcn.h>
#include <fcntl.h>
#include <gtest/gtest.h>
#include <spawn.h>
#include <sys/wait.h>

#include <bit>
#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <tuple>

#include "sim/ptx/test_instruction.h"

extern char** environ;

namespace tensor_fusion::sim::ptx {
namespace {

constexpr std::uint32_t kThreads = 128, kBlocks = 9, kCount = kThreads * kBlocks;
using Words = std::vector<std::uint64_t>;
using HostKernel = void (*)(std::uint64_t*, const std::uint64_t*, const std::uint64_t*, const std::uint64_t*,
                            std::uint32_t);

int run_program(std::vector<std::string> words, const std::string& errors = "/dev/null") {
  std::vector<char*> argv;
  for (std::string& word : words) argv.push_back(word.data());
  argv.push_back(nullptr);
  posix_spawn_file_actions_t actions;
  ::posix_spawn_file_actions_init(&actions);
  ::posix_spawn_file_actions_addopen(&actions, 1, "/dev/null", O_WRONLY, 0);
  ::posix_spawn_file_actions_addopen(&actions, 2, errors.c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0600);
  pid_t child = 0;
  const int failed = ::posix_spawnp(&child, argv[0], &actions, nullptr, argv.data(), environ);
  ::posix_spawn_file_actions_destroy(&actions);
  int status = -1;
  if (failed != 0 || ::waitpid(child, &status, 0) != child) return -1;
  return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

std::string read_file(const std::filesystem::path& path) {
  std::ifstream in(path);
  std::stringstream text;
  text << in.rdbuf();
  return text.str();
}

// The compiler, a folder for what it makes, and the host's side of each source.
class Compiler {
 public:
  static Compiler& get() {
    static Compiler compiler;
    return compiler;
  }
  [[nodiscard]] bool found() const { return !program_.empty(); }

  // PTX; empty, and why, when it cannot be made.
  std::string device(const std::string& source, int card, int level, std::string& why) const {
    const auto out = folder_ / (source + ".ptx");
    std::vector<std::string> command{
        program_,        "--target=nvptx64-nvidia-cuda",   "-march=sm_" + std::to_string(card),
        "-nogpulib",     "-DCARD=" + std::to_string(card), "-O" + std::to_string(level),
        "-ffreestanding"};
    for (const char* word : {"-Xclang", "-target-feature", "-Xclang"}) command.emplace_back(word);
    command.emplace_back(card >= 90 ? "+ptx83" : card >= 80 ? "+ptx71" : "+ptx63");
    return compile(std::move(command), {"-S"}, source, out, why) ? read_file(out) : std::string();
  }
  void* host(const std::string& source, std::string& why) {
    void*& library = libraries_[source];
    if (library != nullptr) return library;
    const auto out = folder_ / (source + ".so");
    if (!compile({program_, "-O1", "-Xclang", "-ffloat16-excess-precision=none", "-fno-builtin", "-shared", "-fPIC"},
                 {"-lm"}, source, out, why))
      return nullptr;
    library = ::dlopen(out.c_str(), RTLD_NOW | RTLD_LOCAL);
    if (library == nullptr) why = ::dlerror();
    return library;
  }

 private:
  Compiler() {
    for (const char* name : {"clang-19", "clang-20", "clang-21", "clang"}) {
      if (run_program({name, "--target=nvptx64-nvidia-cuda", "-march=sm_90", "-nogpulib", "-S", "-x", "c", "/dev/null",
                       "-o", "/dev/null"}) != 0)
        continue;
      program_ = name;
      break;
    }
    char path[] = "/tmp/tensor-fusion-corpus-XXXXXX";
    if (::mkdtemp(path) != nullptr) folder_ = path;
  }
  ~Compiler() {
    std::error_code ignored;
    std::filesystem::remove_all(folder_, ignored);
  }
  bool compile(std::vector<std::string> command, std::vector<std::string> last, const std::string& source,
               const std::filesystem::path& out, std::string& why) const {
    const auto testdata = std::filesystem::read_symlink("/proc/self/exe").parent_path().parent_path() / "testdata/ptx";
    const auto errors = folder_ / "errors";
    command.insert(command.end(),
                   {"-ffp-contract=off", "-w", (testdata / (source + ".c")).string(), "-o", out.string()});
    command.insert(command.end(), last.begin(), last.end());
    if (run_program(std::move(command), errors) == 0) return true;
    why = read_file(errors).substr(0, 2000);
    return false;
  }

  std::string program_;
  std::filesystem::path folder_;
  std::map<std::string, void*> libraries_;
};

Words operand(unsigned seed) {
  Words words = random_bits<std::uint64_t>(kCount, seed);
  const auto narrow = random_bits<std::uint32_t>(kCount, seed + 100);
  for (std::size_t i = 0; i < words.size(); ++i)  // some with a small float in each half, so that sums round
    if (i % 3 == 1) words[i] = narrow[i] | std::uint64_t{narrow[kCount - 1 - i]} << 32;
  return words;
}

bool alike(const std::string& kernel, std::uint64_t a, std::uint64_t b) {
  if (a == b) return true;
  if (!kernel.starts_with("about_")) return false;
  const auto x = std::bit_cast<double>(a), y = std::bit_cast<double>(b);
  return std::abs(x - y) <= 2e-6 * std::max({std::abs(x), std::abs(y), 1e-3});
}

class Corpus : public ::testing::TestWithParam<std::tuple<int, int>> {
 protected:
  static void compare(const std::string& source) {
    Compiler& compiler = Compiler::get();
    if (!compiler.found()) GTEST_SKIP() << "no clang that makes PTX is installed (Debian: clang-19)";
    const auto [card, level] = GetParam();
    std::string why;
    void* const host = compiler.host(source, why);
    ASSERT_NE(host, nullptr) << why;
    const std::string text = compiler.device(source, card, level, why);
    ASSERT_FALSE(text.empty()) << why;
    TestDevice device(text);
    ASSERT_NE(device.image.module, nullptr) << device.error.render();
    const Words a = operand(1), b = operand(2), c = operand(3);
    const auto at = device.upload(a), bt = device.upload(b), ct = device.upload(c);
    for (const Kernel& kernel : device.image.module->kernels()) {
      SCOPED_TRACE(kernel.name);
      const auto reference = reinterpret_cast<HostKernel>(::dlsym(host, kernel.name.c_str()));
      ASSERT_NE(reference, nullptr);
      Words expected(kCount);
      reference(expected.data(), a.data(), b.data(), c.data(), kCount);
      const auto out = device.allocate(kCount * 8);
      const Outcome outcome = device.launch(kernel.name, {kBlocks, 1, 1}, {kThreads, 1, 1}, out, at, bt, ct, kCount);
      EXPECT_EQ(outcome.status, Status::ok) << status_name(outcome.status) << " at line " << outcome.line;
      const auto result = device.download<std::uint64_t>(out, kCount);
      for (std::size_t i = 0; i < kCount; ++i) {
        if (alike(kernel.name, result[i], expected[i])) continue;
        ADD_FAILURE() << "of " << std::hex << a[i] << ' ' << b[i] << ' ' << c[i] << ": " << result[i] << ", expected "
                      << expected[i] << std::dec << " at " << i;
        break;
      }
    }
  }
};

TEST_P(Corpus, of_plain_arithmetic_gives_what_the_host_gives) { compare("ordinary"); }
TEST_P(Corpus, of_memory_and_control_flow_gives_what_the_host_gives) { compare("ordinary_control"); }
TEST_P(Corpus, of_warps_and_atomics_gives_what_the_host_gives) { compare("ordinary_warp"); }
TEST_P(Corpus, of_functions_and_rounding_gives_what_the_host_gives) { compare("ordinary_math"); }
TEST_P(Corpus, of_matrices_gives_what_the_host_gives) { compare("ordinary_matrix"); }
TEST_P(Corpus, of_copies_barriers_and_brain_floats_gives_what_the_host_gives) { compare("ordinary_async"); }

INSTANTIATE_TEST_SUITE_P(of_clang, Corpus, ::testing::Combine(::testing::Values(70, 80, 90), ::testing::Values(0, 2)),
                         [](const auto& which) {
                           return "sm_" + std::to_string(std::get<0>(which.param)) + "_O" +
                                  std::to_string(std::get<1>(which.param));
                         });

}  // namespace
}  // namespace tensor_fusion::sim::ptx
