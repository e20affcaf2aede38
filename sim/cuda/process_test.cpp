// What takes several processes: each role below runs in a fresh process of this very program, on the machine its parent
// made. A role reports by a byte on the pipe that stands for its standard output; its exit status says how it went.
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <fstream>
#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "sim/cuda/test_context.h"
#include "sim/device/memory.h"
#include "sim/device/mig.h"
#include "sim/device/test_machine.h"

namespace tensor_fusion::sim::cuda {
namespace {

constexpr const char* kEndless = R"(
.version 6.3
.target sm_70
.address_size 64
.visible .entry spin(.param .u64 word)
{
  .reg .pred %p<2>;
  .reg .b64 %rd<3>;
  .reg .b32 %r<2>;
  ld.param.u64 %rd1, [word];
  cvta.to.global.u64 %rd2, %rd1;
again:
  ld.volatile.global.u32 %r1, [%rd2];
  setp.eq.u32 %p1, %r1, 0;
  @%p1 bra again;
  ret;
}
)";

constexpr std::size_t kMuch = std::size_t{64} << 20;

using Variables = std::vector<std::pair<std::string, std::string>>;

class Role {
 public:
  Role(const std::string& name, const Variables& variables) {
    int line[2];
    EXPECT_EQ(::pipe(line), 0);
    pid_ = ::fork();
    if (pid_ == 0) {
      ::dup2(line[1], STDOUT_FILENO);
      ::close(line[0]);
      ::setenv(kRole, name.c_str(), 1);
      for (const auto& [key, value] : variables) ::setenv(key.c_str(), value.c_str(), 1);
      ::execl("/proc/self/exe", "role", nullptr);
      ::_exit(127);
    }
    ::close(line[1]);
    out_ = line[0];
  }
  ~Role() {
    if (pid_ > 0) {
      ::kill(pid_, SIGKILL);
      (void)join();
    }
    ::close(out_);
  }
  Role(const Role&) = delete;
  Role& operator=(const Role&) = delete;
  // Until it has said so, or is gone.
  bool reached() {
    char byte = 0;
    while (::read(out_, &byte, 1) == 1)
      if (byte == kReached) return true;
    return false;
  }
  [[nodiscard]] pid_t pid() const { return pid_; }
  void kill() { ::kill(pid_, SIGKILL); }
  int join() {
    int status = 0;
    ::waitpid(std::exchange(pid_, 0), &status, 0);
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  }

 private:
  static constexpr char kReached = '\a';
  pid_t pid_ = 0;
  int out_ = -1;
};

void say_reached() { ASSERT_EQ(::write(STDOUT_FILENO, "\a", 1), 1); }

// --- the roles

// A context with one function, and a word of memory that is zero.
struct Beginning {
  CUcontext context = nullptr;
  CUfunction function = nullptr;
  CUdeviceptr word = 0;
};
void begin(Beginning& b, const char* text, const char* name) {
  CUmodule code = nullptr;
  ASSERT_OK(cuInit(0));
  ASSERT_OK(cuCtxCreate_v2(&b.context, 0, 0));
  ASSERT_OK(cuModuleLoadData(&code, text));
  ASSERT_OK(cuModuleGetFunction(&b.function, code, name));
  ASSERT_OK(cuMemAlloc_v2(&b.word, 4));
  ASSERT_OK(cuMemsetD32_v2(b.word, 0, 1));
  ASSERT_OK(cuCtxSynchronize());
}

void start_spinning(Beginning& b) {
  begin(b, kEndless, "spin");
  void* params[] = {&b.word};
  ASSERT_OK(cuLaunchKernel(b.function, 1, 1, 1, 1, 1, 1, 0, nullptr, params, nullptr));
  EXPECT_EQ(cuStreamQuery(nullptr), CUDA_ERROR_NOT_READY);
}

void spins_for_ever() {
  Beginning b;
  start_spinning(b);
  say_reached();
  EXPECT_OK(cuCtxSynchronize());
}

void leaves_a_kernel_spinning() {
  Beginning b;
  start_spinning(b);
  EXPECT_OK(cuCtxDestroy_v2(b.context));  // ends the kernel
}

void works_and_goes() {
  Beginning b;
  begin(b, kTestKernels, "store");
  std::uint32_t value = 77, seen = 0;
  void* params[] = {&b.word, &value};
  ASSERT_OK(cuLaunchKernel(b.function, 1, 1, 1, 1, 1, 1, 0, nullptr, params, nullptr));
  ASSERT_OK(cuMemcpyDtoH_v2(&seen, b.word, 4));
  EXPECT_EQ(seen, 77U);
}

// On an instance of ROLE_SMS multiprocessors and ROLE_MIB of memory: sees that much, can take no more, and keeps it
// busy.
void uses_an_instance() {
  int count = 0, multiprocessors = 0;
  std::size_t total = 0;
  ASSERT_OK(cuInit(0));
  ASSERT_OK(cuDeviceGetCount(&count));
  EXPECT_EQ(count, 1);
  ASSERT_OK(cuDeviceGetAttribute(&multiprocessors, CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT, 0));
  EXPECT_EQ(std::to_string(multiprocessors), ::getenv("ROLE_SMS"));
  ASSERT_OK(cuDeviceTotalMem_v2(&total, 0));
  EXPECT_EQ(std::to_string(total >> 20), ::getenv("ROLE_MIB"));
  CUcontext context = nullptr;
  ASSERT_OK(cuCtxCreate_v2(&context, 0, 0));
  CUdeviceptr most = 0;
  EXPECT_EQ(cuMemAlloc_v2(&most, total), CUDA_ERROR_OUT_OF_MEMORY);
  EXPECT_OK(cuMemAlloc_v2(&most, total / 2));
  CUmodule code = nullptr;
  CUfunction busy = nullptr;
  ASSERT_OK(cuModuleLoadData(&code, kTestKernels));
  ASSERT_OK(cuModuleGetFunction(&busy, code, "tensor_fusion_busy"));
  CUevent begin = nullptr, end = nullptr;
  ASSERT_OK(cuEventCreate(&begin, 0));
  ASSERT_OK(cuEventCreate(&end, 0));
  std::uint64_t ns = 1'000'000;
  void* params[] = {&ns};
  Held held(nullptr);
  ASSERT_OK(cuEventRecord(begin, nullptr));
  for (int i = 0; i < 300; ++i) ASSERT_OK(cuLaunchKernel(busy, 1024, 1, 1, 1, 1, 1, 0, nullptr, params, nullptr));
  ASSERT_OK(cuEventRecord(end, nullptr));
  held.let_go();
  say_reached();
  ASSERT_OK(cuEventSynchronize(end));
  float ms = 0;
  ASSERT_OK(cuEventElapsedTime(&ms, begin, end));
  EXPECT_NEAR(ms, 300.0F, 3.0F);  // whatever the other instance does
}

// Holds memory, and works in short steps until the file ROLE_STOP is there.
void works_in_steps() {
  Beginning b;
  begin(b, kTestKernels, "add");
  CUdeviceptr much = 0;
  ASSERT_OK(cuMemAlloc_v2(&much, kMuch));
  std::uint32_t one = 1, seen = 0;
  void* params[] = {&b.word, &one};
  std::uint32_t step = 0;
  while (!std::filesystem::exists(::getenv("ROLE_STOP"))) {
    ++step;
    ASSERT_OK(cuLaunchKernel(b.function, 1, 1, 1, 1, 1, 1, 0, nullptr, params, nullptr));
    ASSERT_OK(cuMemcpyDtoH_v2(&seen, b.word, 4));
    if (step == 10) say_reached();
  }
  EXPECT_EQ(seen, step);
}

// Takes a checkpoint of the process ROLE_PID and lets it go on.
void checkpoints_another() {
  const int pid = std::atoi(::getenv("ROLE_PID"));
  const auto free_bytes = [] {
    std::size_t free = 0, total = 0;
    EXPECT_OK(cuMemGetInfo_v2(&free, &total));
    return free;
  };
  CUcontext context = nullptr;
  CUprocessState state{};
  ASSERT_OK(cuInit(0));
  ASSERT_OK(cuCtxCreate_v2(&context, 0, 0));
  EXPECT_EQ(cuCheckpointProcessLock(1 << 30, nullptr), CUDA_ERROR_INVALID_VALUE);  // nobody here
  EXPECT_EQ(cuCheckpointProcessCheckpoint(pid, nullptr), CUDA_ERROR_ILLEGAL_STATE);
  const std::size_t before = free_bytes();
  CUcheckpointLockArgs patient{};
  patient.timeoutMs = 20'000;
  ASSERT_OK(cuCheckpointProcessLock(pid, &patient));
  EXPECT_OK(cuCheckpointProcessGetState(pid, &state));
  EXPECT_EQ(state, CU_PROCESS_STATE_LOCKED);
  EXPECT_EQ(free_bytes(), before);
  ASSERT_OK(cuCheckpointProcessCheckpoint(pid, nullptr));
  EXPECT_GE(free_bytes(), before + kMuch);
  CUdeviceptr taken = 0;
  ASSERT_OK(cuMemAlloc_v2(&taken, before + kMuch));
  EXPECT_EQ(cuCheckpointProcessRestore(pid, nullptr), CUDA_ERROR_OUT_OF_MEMORY);
  EXPECT_OK(cuMemFree_v2(taken));
  EXPECT_OK(cuCheckpointProcessRestore(pid, nullptr));
  EXPECT_EQ(free_bytes(), before);
  EXPECT_OK(cuCheckpointProcessUnlock(pid, nullptr));
  EXPECT_EQ(cuCheckpointProcessUnlock(pid, nullptr), CUDA_ERROR_ILLEGAL_STATE);
  EXPECT_OK(cuCheckpointProcessGetState(pid, &state));
  EXPECT_EQ(state, CU_PROCESS_STATE_RUNNING);
}

// Keeps the card busy for 300 ms, beside a kernel that never ends.
void needs_three_tenths_of_a_second() {
  Beginning b;
  begin(b, kTestKernels, "tensor_fusion_busy");
  std::uint64_t ns = 10'000'000;
  void* params[] = {&ns};
  ASSERT_OK(cuLaunchKernel(b.function, 1024, 1, 1, 1, 1, 1, 0, nullptr, params, nullptr));
  ASSERT_OK(cuCtxSynchronize());  // the card has found out about the endless one
  CUevent begin = nullptr, end = nullptr;
  ASSERT_OK(cuEventCreate(&begin, 0));
  ASSERT_OK(cuEventCreate(&end, 0));
  Held held(nullptr);
  ASSERT_OK(cuEventRecord(begin, nullptr));
  for (int i = 0; i < 30; ++i) ASSERT_OK(cuLaunchKernel(b.function, 1024, 1, 1, 1, 1, 1, 0, nullptr, params, nullptr));
  ASSERT_OK(cuEventRecord(end, nullptr));
  held.let_go();
  ASSERT_OK(cuEventSynchronize(end));
  float ms = 0;
  ASSERT_OK(cuEventElapsedTime(&ms, begin, end));
  EXPECT_GT(ms, 550.0F);  // every other slice is the endless kernel's
  EXPECT_LT(ms, 680.0F);
}

// Asks several times for what this driver does not have.
void asks_for_what_is_missing() {
  ASSERT_OK(cuInit(0));
  CUmemPoolProps properties{};
  properties.allocType = CU_MEM_ALLOCATION_TYPE_PINNED;
  properties.location = {CU_MEM_LOCATION_TYPE_HOST, 0};
  properties.handleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
  CUmemoryPool pool = nullptr;
  for (int i = 0; i < 3; ++i) {
    EXPECT_EQ(cuGraphicsUnregisterResource(nullptr), CUDA_ERROR_NOT_SUPPORTED);
    EXPECT_EQ(cuMemPoolCreate(&pool, &properties), CUDA_ERROR_NOT_SUPPORTED);
  }
}

// Holds memory that came by the descriptor ROLE_FD, until the file ROLE_STOP is there.
void has_memory_of_another() {
  CUcontext context = nullptr;
  CUmemGenericAllocationHandle memory = 0;
  const std::intptr_t fd = std::atoi(::getenv("ROLE_FD"));
  ASSERT_OK(cuInit(0));
  ASSERT_OK(cuCtxCreate_v2(&context, 0, 0));
  ASSERT_OK(
      cuMemImportFromShareableHandle(&memory, reinterpret_cast<void*>(fd), CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR));
  ::close(static_cast<int>(fd));
  say_reached();
  while (!std::filesystem::exists(::getenv("ROLE_STOP"))) ::usleep(1000);
}

// Gives memory to a child of its own, keeps none of it, and stays.
void hands_memory_on() {
  CUcontext context = nullptr;
  CUmemGenericAllocationHandle memory = 0;
  CUmemAllocationProp properties{};
  properties.type = CU_MEM_ALLOCATION_TYPE_PINNED;
  properties.location = {CU_MEM_LOCATION_TYPE_DEVICE, 0};
  properties.requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
  int fd = -1;
  ASSERT_OK(cuInit(0));
  ASSERT_OK(cuCtxCreate_v2(&context, 0, 0));
  ASSERT_OK(cuMemCreate(&memory, kMuch, &properties, 0));
  ASSERT_OK(cuMemExportToShareableHandle(&fd, memory, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0));
  ASSERT_OK(cuMemRelease(memory));
  if (::fork() == 0) {
    ::setenv(kRole, "has_memory_of_another", 1);
    ::setenv("ROLE_FD", std::to_string(fd).c_str(), 1);
    ::execl("/proc/self/exe", "role", nullptr);
    ::_exit(127);
  }
  ::close(fd);
  for (;;) ::pause();
}

// Plays the role that this process was started for, instead of any test.
class RolePlayer : public ::testing::Environment {
 public:
  void SetUp() override {
    const char* role = ::getenv(kRole);
    if (role == nullptr) return;
    const std::map<std::string_view, void (*)()> roles{
        {"spins_for_ever", spins_for_ever},     {"leaves_a_kernel_spinning", leaves_a_kernel_spinning},
        {"works_and_goes", works_and_goes},     {"asks_for_what_is_missing", asks_for_what_is_missing},
        {"hands_memory_on", hands_memory_on},   {"has_memory_of_another", has_memory_of_another},
        {"works_in_steps", works_in_steps},     {"checkpoints_another", checkpoints_another},
        {"uses_an_instance", uses_an_instance}, {"needs_three_tenths_of_a_second", needs_three_tenths_of_a_second}};
    roles.at(role)();
    ::_exit(::testing::Test::HasFailure() ? 1 : 0);
  }
};
::testing::Environment* const role_player = ::testing::AddGlobalTestEnvironment(new RolePlayer);

}  // namespace

// --- what they show

TEST(Processes, with_an_endless_kernel_can_be_killed_and_the_card_goes_on) {
  const device::TestDirectory machine;
  // Given up only after longer than this test may take.
  constexpr const char* kCard = "h100;stall_ms=600000";
  const Variables where{{"TENSOR_FUSION_SIM_DIR", machine.path()}, {"TENSOR_FUSION_SIM", kCard}};
  auto shared = machine.attach(kCard);
  ASSERT_TRUE(shared);
  Role spinning("spins_for_ever", where);
  ASSERT_TRUE(spinning.reached());
  spinning.kill();
  EXPECT_EQ(spinning.join(), 128 + SIGKILL);
  EXPECT_EQ(Role("works_and_goes", where).join(), 0);
  EXPECT_EQ(Role("leaves_a_kernel_spinning", where).join(), 0);
}

TEST(Processes, that_ask_for_what_is_missing_find_it_in_the_log_once) {
  const device::TestDirectory machine;
  const std::string log = std::string(machine.path()) + "/log";
  const Variables where{
      {"TENSOR_FUSION_SIM_DIR", machine.path()}, {"TENSOR_FUSION_SIM", "h100"}, {"TENSOR_FUSION_SIM_LOG", log}};
  EXPECT_EQ(Role("asks_for_what_is_missing", where).join(), 0);
  std::map<std::string, int> said;
  std::ifstream in(log);
  for (std::string line; std::getline(in, line);) ++said[line.substr(line.find(' ') + 1)];
  EXPECT_EQ(said, (std::map<std::string, int>{
                      {"cuGraphicsUnregisterResource: not supported by this driver", 1},
                      {"cuMemPoolCreate for other processes, of host memory: not supported by this driver", 1}}));
}

TEST(Processes, beside_an_endless_kernel_have_their_time_slices) {
  const device::TestDirectory machine;
  const Variables where{{"TENSOR_FUSION_SIM_DIR", machine.path()}, {"TENSOR_FUSION_SIM", "h100;stall_ms=2000"}};
  Role spinning("spins_for_ever", where);
  ASSERT_TRUE(spinning.reached());
  EXPECT_EQ(Role("works_and_goes", where).join(), 0);
  EXPECT_EQ(Role("needs_three_tenths_of_a_second", where).join(), 0);
  EXPECT_EQ(Role("needs_three_tenths_of_a_second", where).join(), 0);
}

TEST(Processes, can_be_checkpointed_by_another_and_go_on_where_they_were) {
  const device::TestDirectory machine;
  const std::string stop = machine.path() + "/stop";
  const Variables where{{"TENSOR_FUSION_SIM_DIR", machine.path()}, {"TENSOR_FUSION_SIM", "tiny"}, {"ROLE_STOP", stop}};
  Role worker("works_in_steps", where);
  ASSERT_TRUE(worker.reached());
  auto with_pid = where;
  with_pid.emplace_back("ROLE_PID", std::to_string(worker.pid()));
  EXPECT_EQ(Role("checkpoints_another", with_pid).join(), 0);
  {
    const std::ofstream told(stop);
  }
  EXPECT_EQ(worker.join(), 0);
}

TEST(Processes, pay_for_memory_of_one_that_has_died) {
  const device::TestDirectory machine;
  const std::string stop = machine.path() + "/stop";
  const Variables where{{"TENSOR_FUSION_SIM_DIR", machine.path()}, {"TENSOR_FUSION_SIM", "tiny"}, {"ROLE_STOP", stop}};
  auto shared = machine.attach("tiny");
  ASSERT_TRUE(shared);
  const std::uint64_t overhead = (*shared)->device(0).profile.context_overhead_bytes;
  Role maker("hands_memory_on", where);
  ASSERT_TRUE(maker.reached());  // its child has it
  // What the maker pays for, and everybody else.
  const auto paid = [&] {
    std::pair<std::uint64_t, std::uint64_t> sums{};
    for (const auto& line : device::memory_by_process(**shared, 0))
      (line.pid == static_cast<std::uint32_t>(maker.pid()) ? sums.first : sums.second) += line.used_bytes;
    return sums;
  };
  const auto becomes = [&](std::uint64_t makers, std::uint64_t others) {
    const std::pair wanted{makers, others};
    for (const std::uint64_t until = device::now_ns() + 20'000'000'000; paid() != wanted && device::now_ns() < until;)
      ::usleep(1000);
    return paid() == wanted;
  };
  EXPECT_EQ(paid(), (std::pair{overhead + kMuch, overhead}));
  maker.kill();
  EXPECT_TRUE(becomes(0, overhead + kMuch));
  {
    const std::ofstream told(stop);
  }
  EXPECT_TRUE(becomes(0, 0));
}

TEST(Processes, on_two_instances_of_a_card_have_their_own_memory_multiprocessors_and_time) {
  const device::TestDirectory machine;
  auto shared = machine.attach("a100-40g");
  ASSERT_TRUE(shared) << shared.error().message;
  ASSERT_TRUE(device::set_mig(**shared, 0, true));
  struct Wanted {
    std::uint32_t profile, slices;
  };
  std::vector<std::unique_ptr<Role>> roles;
  for (const Wanted& wanted : {Wanted{9, 3}, Wanted{14, 2}}) {  // 3g.20gb and 2g.10gb
    const auto part = device::create_gpu_instance(**shared, 0, wanted.profile);
    ASSERT_TRUE(part) << part.error().message;
    const auto compute = device::create_compute_instance(**shared, 0, part->id, wanted.slices);
    ASSERT_TRUE(compute) << compute.error().message;
    const auto engine = (*shared)->engine(compute->engine);
    ASSERT_TRUE(engine);
    EXPECT_EQ(engine->sm_count, wanted.slices * 14);
    roles.push_back(std::make_unique<Role>("uses_an_instance",
                                           Variables{{"TENSOR_FUSION_SIM_DIR", machine.path()},
                                                     {"TENSOR_FUSION_SIM", "a100-40g"},
                                                     {"CUDA_VISIBLE_DEVICES", engine->uuid},
                                                     {"ROLE_SMS", std::to_string(engine->sm_count)},
                                                     {"ROLE_MIB", std::to_string(engine->memory_bytes >> 20)}}));
  }
  for (const auto& role : roles) EXPECT_TRUE(role->reached());  // both at once
  for (const auto& role : roles) EXPECT_EQ(role->join(), 0);
}

}  // namespace tensor_fusion::sim::cuda
