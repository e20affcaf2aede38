#include "cli/run.h"

#include <dlfcn.h>
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <csignal>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <functional>
#include <string_view>

#include "base/text.h"
#include "cli/limiter_library.h"
#include "cli/program_environment.h"
#include "cli/slice_view.h"
#include "contract/limiter_mark.h"
#include "system/clock.h"
#include "system/eventually.h"
#include "system/file.h"
#include "system/unix_socket.h"

namespace tensor_fusion::cli {
namespace {

namespace fs = std::filesystem;
using base::Json;

using system::eventually;

// Answers one connection at a time with a slice whose pages are plain files, and remembers what it was asked. A process
// of its own: the tests fork, and beside a thread the child could find a lock of the allocator taken.
class FakeHypervisor {
 public:
  explicit FakeHypervisor(fs::path state) : state_(std::move(state)) {
    fs::create_directories(slice());
    std::ofstream(state_ / node::hypervisor::kLockName) << "";  // or it would be somebody else's folder
    for (const char* page : {"grant", "claim"}) std::ofstream(slice() / page) << page;
    ::mkfifo((slice() / "bell").c_str(), 0666);
    listener_ = *system::listen_unix((state_ / node::hypervisor::kSocketName).string(), 0666);
    ::fcntl(listener_.get(), F_SETFL, 0);  // blocking
    const pid_t parent = ::getpid();
    std::fflush(nullptr);
    process_ = ::fork();
    if (process_ != 0) return;
    ::prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (::getppid() == parent) serve();
    ::_exit(1);
  }
  FakeHypervisor(const FakeHypervisor&) = delete;
  FakeHypervisor& operator=(const FakeHypervisor&) = delete;
  ~FakeHypervisor() {
    ::kill(process_, SIGKILL);
    ::waitpid(process_, nullptr, 0);
  }

  void leave_to_parent() { listener_.reset(); }  // in a child, that would keep its door open after its end

  fs::path slice() const { return state_ / "tenants/abc"; }
  void refuse_next(const std::string& code) const { std::ofstream(state_ / "refusal") << code; }
  std::size_t asked(std::string_view op) const {
    const auto all = asked();
    return static_cast<std::size_t>(
        std::ranges::count_if(all, [&](const Json& request) { return request["op"].as_string() == op; }));
  }
  std::vector<Json> asked() const {
    std::vector<Json> all;
    std::ifstream lines(state_ / "asked");
    for (std::string line; std::getline(lines, line);) all.push_back(*Json::parse(line));
    return all;
  }

 private:
  [[noreturn]] void serve() const {
    while (true) {
      const int accepted = ::accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC);
      if (accepted < 0) continue;
      system::LineConnection connection{system::Fd(accepted)};
      while (auto line = connection.receive(5000)) {
        if ((*Json::parse(*line))["op"].as_string() == "run") say_what_for(connection);
        if (!connection.send(answer(*Json::parse(*line)).dump(), 5000)) break;
      }
    }
  }
  // What the file holds, the last line of it by itself.
  void say_what_for(system::LineConnection& connection) const {
    const auto text = system::read_file((state_ / "waiting").string());
    if (!text) return;
    for (const std::string& why : {text->substr(0, text->rfind('\n')), text->substr(text->rfind('\n') + 1)})
      static_cast<void>(connection.send(Json::object({{"ok", true}, {"waiting", why}}).dump(), 5000));
  }
  Json answer(const Json& request) const {
    const std::string op = request["op"].as_string();
    if (op != "version") std::ofstream(state_ / "asked", std::ios::app) << request.dump() << "\n";  // a mere greeting
    if (op == "run") eventually([&] { return !system::exists((state_ / "full").string()); });
    Json reply = Json::object({{"ok", true}});
    if (const auto refusal = system::read_file((state_ / "refusal").string()); op == "run" && refusal) {
      fs::remove(state_ / "refusal");
      return node::hypervisor::error_reply({base::code_of(*refusal), "the card is taken"});
    }
    if (op == "run") {
      node::hypervisor::RunReply run;
      run.id = "abc";
      run.name = "night";
      run.slice_directory = slice().string();
      run.log_path = (state_ / "night.log").string();
      run.devices.emplace_back().uuid = "GPU-a";
      run.envs = {{"TENSOR_FUSION_SLICE", slice().string()}, {"CUDA_VISIBLE_DEVICES", "GPU-a"}};
      reply = to_json(run);
      reply.set("ok", true);
    }
    if (op == "devices") reply.set("devices", Json::array()).set("known", !system::exists((state_ / "new").string()));
    return reply;
  }

  fs::path state_;
  system::Fd listener_;
  pid_t process_ = -1;
};

struct Ended {
  int status = 0;  // as waitpid gives it
  std::string output;
  std::string errors;
  pid_t pid = 0;
};

class RunTest : public testing::Test {
 protected:
  void SetUp() override {
    std::string pattern = "/dev/shm/run-test-XXXXXX";
    ASSERT_NE(::mkdtemp(pattern.data()), nullptr);
    folder_ = pattern;
    fs::create_directories(folder_ / "state");
    hypervisor_.emplace(folder_ / "state");
    Dl_info info{};
    ASSERT_NE(::dladdr(reinterpret_cast<void*>(static_cast<double (*)(double)>(&std::cbrt)), &info), 0);
    // Any small library that loads everywhere, marked as ours.
    limiter_ = (folder_ / "limiter.so").string();
    std::ofstream(limiter_, std::ios::binary)
        << system::read_file(info.dli_fname).value_or("")
        << std::string_view(reinterpret_cast<const char*>(&contract::kLimiterMark), sizeof(contract::kLimiterMark));
  }
  void TearDown() override {
    hypervisor_.reset();
    fs::remove_all(folder_);
  }

  // Starts `tensor-fusion run …` in a process of its own, with its output in files.
  pid_t start(std::vector<std::string> words, const std::vector<std::string>& variables = {}) {
    words.insert(words.begin(), {"--state", (folder_ / "state").string(), "run"});
    std::fflush(nullptr);  // else the child prints our lines again
    const pid_t child = ::fork();
    if (child != 0) return child;
    hypervisor_->leave_to_parent();
    ::setenv(kLimiterVariable, limiter_.c_str(), 1);
    for (const std::string& variable : variables) ::putenv(const_cast<char*>(variable.c_str()));
    ::dup2(::open((folder_ / "output").c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600), STDOUT_FILENO);
    ::dup2(::open((folder_ / "errors").c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600), STDERR_FILENO);
    auto invocation = parse(words);
    ::_exit(invocation ? cli::run(Context(std::move(*invocation), "tensor-fusion"), patience_ns_) : 200);
  }
  Ended finish(pid_t child) {
    Ended ended;
    ended.pid = child;
    while (::waitpid(child, &ended.status, 0) < 0 && errno == EINTR) {
    }
    ended.output = system::read_file((folder_ / "output").string()).value_or("");
    ended.errors = system::read_file((folder_ / "errors").string()).value_or("");
    return ended;
  }
  Ended run(std::vector<std::string> words, const std::vector<std::string>& variables = {}) {
    return finish(start(std::move(words), variables));
  }

  void await_file(const std::string& name) {
    ASSERT_TRUE(eventually([&] { return system::exists((folder_ / name).string()); })) << name;
  }

  void await_asked(std::string_view op, std::size_t times) {
    ASSERT_TRUE(eventually([&] { return hypervisor_->asked(op) >= times; })) << op;
  }

  fs::path folder_;
  std::uint64_t patience_ns_ = 10'000'000'000;
  std::string limiter_;
  std::optional<FakeHypervisor> hypervisor_;
};

TEST_F(RunTest, ends_with_the_exit_code_of_the_program) {
  for (const int code : {0, 1, 7, 118, 255}) {
    const Ended ended = run({"--", "sh", "-c", "exit " + std::to_string(code)});
    EXPECT_TRUE(WIFEXITED(ended.status));
    EXPECT_EQ(WEXITSTATUS(ended.status), code) << ended.errors;
  }
}

TEST_F(RunTest, ends_by_the_signal_that_ended_the_program) {
  for (const int number : {SIGKILL, SIGTERM, SIGUSR1}) {
    const Ended ended = run({"sh", "-c", "kill -" + std::to_string(number) + " $$"});
    ASSERT_TRUE(WIFSIGNALED(ended.status)) << ended.status;
    EXPECT_EQ(WTERMSIG(ended.status), number);
  }
}

TEST_F(RunTest, hands_signals_to_the_program) {
  for (const int number : {SIGTERM, SIGINT, SIGHUP, SIGUSR1, SIGUSR2, SIGQUIT, SIGWINCH}) {
    fs::remove(folder_ / "ready");
    const pid_t child = start({"sh", "-c",
                               "trap 'exit 42' " + std::to_string(number) + "; : > " + (folder_ / "ready").string() +
                                   "; while :; do sleep 0.01; done"});
    await_file("ready");
    ::kill(child, number);
    EXPECT_EQ(WEXITSTATUS(finish(child).status), 42) << number;
  }
}

TEST_F(RunTest, is_the_program_itself_so_that_terminal_and_job_control_are_its_own) {
  FILE* plain = ::popen("ls /proc/self/fd | wc -l", "r");
  std::array<char, 32> open_files{};
  ASSERT_NE(std::fgets(open_files.data(), open_files.size(), plain), nullptr);
  ::pclose(plain);
  const Ended ended = run({"--", "sh", "-c", "echo $$ $PPID; ls /proc/self/fd | wc -l"});
  EXPECT_EQ(ended.output, std::to_string(ended.pid) + " " + std::to_string(::getpid()) + "\n" + open_files.data())
      << "and no descriptor of ours is left open; " << ended.status << " " << ended.errors;
}

// A line of ours on a standard stream breaks tools that read the program's output.
TEST_F(RunTest, adds_nothing_to_the_standard_streams) {
  if (!can_make_namespaces())
    GTEST_SKIP() << "without namespaces a notice is printed: " << can_make_namespaces().error();
  const Ended ended = run({"--", "printf", "a\\0b"});
  EXPECT_EQ(ended.output, std::string("a\0b", 3));
  EXPECT_EQ(ended.errors, "");
}

TEST_F(RunTest, tells_the_hypervisor_its_pid_before_the_program_starts) {
  const Ended ended = run({"--vram", "2Gi", "--compute", "30%", "--name", "night", "--", "true", "x"});
  EXPECT_EQ(WEXITSTATUS(ended.status), 0) << ended.errors;
  const auto asked = hypervisor_->asked();
  ASSERT_GE(asked.size(), 2u);
  EXPECT_EQ(asked.front()["op"].as_string(), "run");
  EXPECT_EQ(asked.front()["name"].as_string(), "night");
  EXPECT_EQ(asked.front()["command"].as_string(), "true x");
  EXPECT_EQ(asked.back()["op"].as_string(), "started");
  EXPECT_EQ(asked.back()["id"].as_string(), "abc");
  EXPECT_EQ(asked.back()["pid"].as_int(), ended.pid);
}

TEST_F(RunTest, gives_the_program_its_devices_and_the_asked_environment) {
  const Ended ended = run({"-e", "A=1", "-e", "HOME", "-e", "CUDA_VISIBLE_DEVICES=all", "--", "sh", "-c",
                           "echo $A ${HOME-none} $CUDA_VISIBLE_DEVICES $TENSOR_FUSION_SIM"},
                          {"TENSOR_FUSION_SIM=2xh100"});
  EXPECT_EQ(ended.output, "1 none GPU-a 2xh100\n");
}

TEST_F(RunTest, without_a_namespace_preloads_a_kept_copy_and_says_so_once) {
  const Ended ended = run({"--no-namespace", "--", "sh", "-c", "echo $LD_PRELOAD; echo $TENSOR_FUSION_SLICE"},
                          {"LD_PRELOAD=/nowhere/jemalloc.so"});
  const auto lines = base::split(ended.output, '\n');
  ASSERT_GE(lines.size(), 2u);
  EXPECT_TRUE(lines[0].starts_with((folder_ / "state/limiter/limiter-").string())) << ended.output;
  EXPECT_TRUE(lines[0].ends_with(":/nowhere/jemalloc.so")) << ended.output;
  EXPECT_EQ(lines[1], hypervisor_->slice().string());
  EXPECT_NE(ended.errors.find("LD_PRELOAD only"), std::string::npos);
}

TEST_F(RunTest, names_no_slice_directory_where_the_fixed_place_holds_it) {
  if (!can_make_namespaces()) GTEST_SKIP() << can_make_namespaces().error();
  EXPECT_EQ(
      run({"--", "sh", "-c", "echo ${TENSOR_FUSION_SLICE-none} ${LD_PRELOAD-none}; cat /run/tensor-fusion/slice/grant"})
          .output,
      "none none\ngrant");
}

TEST_F(RunTest, starts_nothing_when_the_hypervisor_refuses) {
  const std::pair<std::string, int> cases[] = {{"no_capacity", 110},    {"impossible", 111}, {"not_found", 112},
                                               {"already_exists", 113}, {"permission", 115}, {"usage", 2}};
  for (const auto& [code, status] : cases) {
    hypervisor_->refuse_next(code);
    const Ended ended = run({"--", "echo", "started"});
    EXPECT_EQ(WEXITSTATUS(ended.status), status) << code;
    EXPECT_EQ(ended.output, "");
    EXPECT_NE(ended.errors.find("the card is taken"), std::string::npos);
    EXPECT_EQ(std::ranges::count(ended.errors, '\n'), 1) << ended.errors;
  }
}

TEST_F(RunTest, waits_in_line_when_asked_and_says_what_for_each_time_that_changes) {
  std::ofstream(folder_ / "state/waiting") << "1 device asked\n  GPU 0: held by a\nGPU 0: held by b\x1b[2J";
  const Ended ended = run({"--wait", "--", "echo", "started"});
  EXPECT_EQ(ended.output, "started\n");
  EXPECT_EQ(ended.errors.substr(0, ended.errors.find("tensor-fusion: limits")),
            "tensor-fusion: waiting in line: 1 device asked\n  GPU 0: held by a\n"
            "tensor-fusion: waiting in line: GPU 0: held by b?[2J\n");
  const auto asked = hypervisor_->asked();
  EXPECT_GT(asked[0]["wait_ms"].as_uint(), 1u);
  EXPECT_TRUE(asked[0]["tells"].as_bool());
  EXPECT_EQ(hypervisor_->asked("run"), 1u);
}

TEST_F(RunTest, stands_in_line_with_the_next_hypervisor_however_long_it_stood_with_the_ones_before) {
  patience_ns_ = 1'500'000'000;
  std::ofstream(folder_ / "state/full") << "yes";
  const pid_t child = start({"--wait", "--", "echo", "started"});
  for (std::size_t hypervisors = 1; hypervisors <= 3; ++hypervisors) {
    await_asked("run", hypervisors);
    // With each less, and with all longer than its patience.
    const std::uint64_t stood_ns = system::monotonic_ns() + patience_ns_ / 5 * 2;
    ASSERT_TRUE(eventually([&] { return system::monotonic_ns() > stood_ns; }));
    hypervisor_.reset();
    hypervisor_.emplace(folder_ / "state");
  }
  fs::remove(folder_ / "state/full");
  const Ended ended = finish(child);
  EXPECT_EQ(ended.output, "started\n") << ended.errors;
}

TEST_F(RunTest, gives_a_new_hypervisor_time_for_its_driver) {
  patience_ns_ = 1;
  std::ofstream(folder_ / "state/new") << "yes";
  const pid_t child = start({"--", "echo", "started"});
  await_asked("devices", 3);
  fs::remove(folder_ / "state/new");
  const Ended ended = finish(child);
  EXPECT_EQ(ended.output, "started\n") << ended.errors;
  EXPECT_EQ(hypervisor_->asked("run"), 1u);
}

TEST_F(RunTest, refuses_what_cannot_be_limited_before_it_asks_for_anything) {
  EXPECT_EQ(WEXITSTATUS(run({"--", "no-such-program"}).status), 127);
  EXPECT_EQ(WEXITSTATUS(run({"--", "/etc"}).status), 126);
  limiter_ = "/bin/sh";
  const Ended other = run({"--", "true"});
  EXPECT_EQ(WEXITSTATUS(other.status), kRunOffset + kExitCannotLimit);
  EXPECT_NE(other.errors.find("some other file"), std::string::npos) << other.errors;
  limiter_ = "/no/such/limiter.so";
  const Ended missing = run({"--", "true"});
  EXPECT_EQ(WEXITSTATUS(missing.status), kRunOffset + kExitCannotLimit);
  EXPECT_NE(missing.errors.find("nothing would be limited"), std::string::npos);
  EXPECT_TRUE(hypervisor_->asked().empty());
}

TEST_F(RunTest, refuses_to_nest_slices) {
  const Ended ended = run({"--", "true"}, {"TENSOR_FUSION_SLICE=/some/slice"});
  EXPECT_EQ(WEXITSTATUS(ended.status), 2);
  EXPECT_NE(ended.errors.find("already runs in the slice"), std::string::npos);
}

TEST_F(RunTest, detached_prints_the_name_and_keeps_the_output) {
  const Ended ended = run({"--detach", "--", "sh", "-c", "echo out; echo err >&2; : > " + (folder_ / "done").string()});
  EXPECT_EQ(WEXITSTATUS(ended.status), 0) << ended.errors;
  EXPECT_EQ(ended.output, "night\n");
  await_file("done");
  const std::string log = system::read_file((folder_ / "state/night.log").string()).value_or("");
  EXPECT_NE(log.find("out\nerr\n"), std::string::npos) << log;
}

TEST_F(RunTest, detached_reports_what_went_wrong_before_the_program_started) {
  hypervisor_->refuse_next("no_capacity");
  const Ended ended = run({"-d", "--", "true"});
  EXPECT_EQ(WEXITSTATUS(ended.status), 110);
  EXPECT_NE(ended.errors.find("the card is taken"), std::string::npos);
}

TEST(ProgramEnvironment, puts_the_slice_last_so_that_nothing_takes_it_off) {
  EXPECT_EQ(program_environment({"A=1", "B=2", "LD_PRELOAD=x"}, {{"LD_PRELOAD", "limiter"}, {"C", "3"}},
                                {"B", "A=9", "LD_PRELOAD=", "D=4"}),
            (std::vector<std::string>{"A=9", "D=4", "LD_PRELOAD=limiter", "C=3"}));
}

TEST(Run, says_which_named_cards_those_of_the_slice_take_the_place_of) {
  const std::vector<std::pair<std::string, std::string>> slice{{"CUDA_VISIBLE_DEVICES", "GPU-a"}};
  EXPECT_EQ(overruled_cards({"CUDA_VISIBLE_DEVICES=1"}, slice, {}), "1");
  EXPECT_EQ(overruled_cards({"A=1"}, slice, {"CUDA_VISIBLE_DEVICES=2"}), "2");
  EXPECT_EQ(overruled_cards({"CUDA_VISIBLE_DEVICES=1"}, slice, {"CUDA_VISIBLE_DEVICES"}), std::nullopt);
  EXPECT_EQ(overruled_cards({"CUDA_VISIBLE_DEVICES=GPU-a"}, slice, {}), std::nullopt);
  EXPECT_EQ(overruled_cards({"CUDA_VISIBLE_DEVICES=1"}, {}, {}), std::nullopt);
}

}  // namespace
}  // namespace tensor_fusion::cli
