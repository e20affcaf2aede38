#pragma once
// For this room's tests: a private machine of two cards for the whole program, and a context with some kernels for each
// test. Results are compared by code, so that a failure names the one it got.
#include <gtest/gtest.h>
#include <stdlib.h>

#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <string>

#include "sim/cuda/test_api.h"

namespace tensor_fusion::sim::cuda {

using namespace ::tensor_fusion::cuda;

inline constexpr const char* kRole = "TENSOR_FUSION_TEST_ROLE";

// Makes the machine once; its directory goes with the program.
class TestMachine : public ::testing::Environment {
 public:
  void SetUp() override {
    if (::getenv(kRole) != nullptr) return;  // a process of another test's, on that test's machine
    char path[] = "/dev/shm/tensor-fusion-cuda-test-XXXXXX";
    ASSERT_NE(::mkdtemp(path), nullptr);
    path_ = path;
    ::setenv("TENSOR_FUSION_SIM_DIR", path, 1);
    ::setenv("TENSOR_FUSION_SIM", "2xh100", 1);
    ::unsetenv("CUDA_VISIBLE_DEVICES");
    ::unsetenv("TENSOR_FUSION_SIM_FAULT");
  }
  void TearDown() override {
    if (path_.empty()) return;
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }

 private:
  std::string path_;
};
inline ::testing::Environment* const test_machine = ::testing::AddGlobalTestEnvironment(new TestMachine);

inline constexpr const char* kTestKernels = R"(
.version 6.3
.target sm_70
.address_size 64
.visible .global .align 4 .u32 answer = 42;
.visible .entry nothing() { ret; }
.visible .entry tensor_fusion_busy(.param .u64 ns) { ret; }
.visible .entry add(.param .u64 word, .param .u32 value)
{
  .reg .b64 %rd<3>;
  .reg .b32 %r<3>;
  ld.param.u64 %rd1, [word];
  ld.param.u32 %r1, [value];
  cvta.to.global.u64 %rd2, %rd1;
  atom.global.add.u32 %r2, [%rd2], %r1;
  ret;
}
.visible .entry store(.param .u64 word, .param .u32 value)
{
  .reg .b64 %rd<3>;
  .reg .b32 %r<2>;
  ld.param.u64 %rd1, [word];
  ld.param.u32 %r1, [value];
  cvta.to.global.u64 %rd2, %rd1;
  st.global.u32 [%rd2], %r1;
  ret;
}
)";

#define EXPECT_OK(call) EXPECT_EQ(call, CUDA_SUCCESS)
#define ASSERT_OK(call) ASSERT_EQ(call, CUDA_SUCCESS)

// Holds a stream up until all that is to run on it is there: a busy host that comes late with a piece of it would be
// time in which the device has nothing to do.
class Held {
 public:
  explicit Held(CUstream stream) {
    EXPECT_OK(cuMemAlloc_v2(&flag_, 4));
    EXPECT_OK(cuMemsetD32_v2(flag_, 0, 1));
    EXPECT_OK(cuStreamCreate(&other_, CU_STREAM_NON_BLOCKING));
    EXPECT_OK(cuStreamWaitValue32_v2(stream, flag_, 1, CU_STREAM_WAIT_VALUE_EQ));
  }
  ~Held() {
    EXPECT_OK(cuStreamDestroy_v2(other_));
    EXPECT_OK(cuMemFree_v2(flag_));
  }
  Held(const Held&) = delete;
  Held& operator=(const Held&) = delete;
  void let_go() { EXPECT_OK(cuStreamWriteValue32_v2(other_, flag_, 1, 0)); }

 private:
  CUdeviceptr flag_ = 0;
  CUstream other_ = nullptr;
};

class Cuda : public ::testing::Test {
 protected:
  void SetUp() override {
    ASSERT_OK(cuInit(0));
    ASSERT_OK(cuCtxCreate_v2(&context, 0, 0));
    ASSERT_OK(cuModuleLoadData(&module, kTestKernels));
    ASSERT_OK(cuModuleGetFunction(&nothing, module, "nothing"));
    ASSERT_OK(cuModuleGetFunction(&busy, module, "tensor_fusion_busy"));
    ASSERT_OK(cuModuleGetFunction(&add, module, "add"));
    ASSERT_OK(cuModuleGetFunction(&store, module, "store"));
    ASSERT_OK(cuMemAlloc_v2(&word, 4));
    ASSERT_OK(cuMemsetD32_v2(word, 0, 1));
  }
  void TearDown() override { EXPECT_OK(cuCtxDestroy_v2(context)); }

  CUresult launch(CUfunction function, std::uint32_t value, CUstream stream = nullptr) {
    void* params[] = {&word, &value};
    return cuLaunchKernel(function, 1, 1, 1, 1, 1, 1, 0, stream, params, nullptr);
  }
  CUresult launch_busy(std::uint64_t us, CUstream stream = nullptr, unsigned blocks = 1024) {
    std::uint64_t ns = us * 1000;
    void* params[] = {&ns};
    return cuLaunchKernel(busy, blocks, 1, 1, 1, 1, 1, 0, stream, params, nullptr);
  }
  std::uint32_t read_word() {
    std::uint32_t value = 0;
    EXPECT_OK(cuMemcpyDtoH_v2(&value, word, 4));
    return value;
  }
  static std::size_t free_bytes() {
    std::size_t free = 0, total = 0;
    EXPECT_OK(cuMemGetInfo_v2(&free, &total));
    return free;
  }

  CUcontext context = nullptr;
  CUmodule module = nullptr;
  CUfunction nothing = nullptr, busy = nullptr, add = nullptr, store = nullptr;
  CUdeviceptr word = 0;
};

}  // namespace tensor_fusion::sim::cuda
