// Kernels as clang makes them, from testdata/kernels.c.
#include <gtest/gtest.h>

#include <cmath>
#include <numeric>

#include "sim/ptx/test_device.h"

namespace tensor_fusion::sim::ptx {
namespace {

std::vector<float> ramp(std::size_t n, float scale) {
  std::vector<float> out(n);
  for (std::size_t i = 0; i < n; ++i)
    out[i] = scale * static_cast<float>(static_cast<int>(i * 2654435761U % 2001) - 1000);
  return out;
}

class Kernels : public ::testing::TestWithParam<Isa> {
 protected:
  Kernels() : device(TestDevice::file("kernels.ptx"), GetParam()) {}
  void SetUp() override { ASSERT_NE(device.image.module, nullptr) << device.error.render(); }
  TestDevice device;
};

TEST_P(Kernels, add_two_vectors_whose_length_is_no_multiple_of_the_block) {
  constexpr int n = 1003;
  const auto a = ramp(n, 0.5F);
  const auto b = ramp(n, 0.25F);
  const auto out = device.allocate(n * 4);
  const auto outcome = device.launch("vector_add", {8, 1, 1}, {128, 1, 1}, out, device.upload(a), device.upload(b), n);
  ASSERT_EQ(outcome.status, Status::ok);
  const auto result = device.download<float>(out, n);
  for (int i = 0; i < n; ++i)
    ASSERT_EQ(result[static_cast<std::size_t>(i)], a[static_cast<std::size_t>(i)] + b[static_cast<std::size_t>(i)])
        << i;
  EXPECT_GT(outcome.thread_instructions, 1024U * 5);
  EXPECT_EQ(outcome.global_bytes, 3U * 4 * n);
}

TEST_P(Kernels, reduce_with_shuffles_and_an_atomic) {
  constexpr int n = 10000;
  std::vector<float> in(n);
  for (int i = 0; i < n; ++i) in[static_cast<std::size_t>(i)] = static_cast<float>(i % 7);
  const auto out = device.upload(std::vector<float>{0.0F});
  ASSERT_EQ(device.launch("reduce", {4, 1, 1}, {256, 1, 1}, out, device.upload(in), n).status, Status::ok);
  EXPECT_EQ(device.download<float>(out, 1)[0], std::accumulate(in.begin(), in.end(), 0.0F));
}

TEST_P(Kernels, multiply_matrices_through_shared_memory) {
  constexpr std::uint32_t n = 64;
  const auto a = ramp(n * n, 0.001F);
  const auto b = ramp(n * n, 0.002F);
  for (const char* name : {"matmul_tiled", "matmul_registers"}) {
    const auto out = device.allocate(n * n * 4);
    const std::uint32_t blocks = name[7] == 't' ? n / 16 : n / 64;
    ASSERT_EQ(device.launch(name, {blocks, blocks, 1}, {16, 16, 1}, out, device.upload(a), device.upload(b), n).status,
              Status::ok);
    const auto result = device.download<float>(out, n * n);
    for (std::size_t i = 0; i < n; ++i) {
      for (std::size_t j = 0; j < n; ++j) {
        double sum = 0;
        for (std::size_t k = 0; k < n; ++k)
          sum += static_cast<double>(a[i * n + k]) * static_cast<double>(b[k * n + j]);
        ASSERT_NEAR(result[i * n + j], sum, 1e-4) << name << ' ' << i << ' ' << j;
      }
    }
  }
}

TEST_P(Kernels, softmax_rows_sum_to_one) {
  constexpr std::size_t width = 300;
  const auto in = ramp(4 * width, 0.01F);
  const auto out = device.allocate(4 * width * 4);
  ASSERT_EQ(device.launch("softmax", {4, 1, 1}, {128, 1, 1}, out, device.upload(in), static_cast<int>(width)).status,
            Status::ok);
  const auto result = device.download<float>(out, 4 * width);
  for (std::size_t row = 0; row < 4; ++row) {
    double sum = 0;
    for (std::size_t i = 0; i < width; ++i) sum += static_cast<double>(result[row * width + i]);
    EXPECT_NEAR(sum, 1.0, 1e-5);
  }
}

TEST_P(Kernels, call_through_tables_and_recursively) {
  const auto out = device.allocate(64 * 4);
  const auto fib = device.allocate(64 * 4);
  ASSERT_EQ(device.launch("calls", {2, 1, 1}, {32, 1, 1}, out, fib).status, Status::ok);
  const auto x = device.download<float>(out, 64);
  const auto f = device.download<int>(fib, 64);
  constexpr int kFibonacci[] = {0, 1, 1, 2, 3, 5, 8, 13, 21, 34, 55, 89};
  for (std::size_t i = 0; i < 64; ++i) {
    EXPECT_EQ(x[i], i % 2 == 0 ? static_cast<float>(i) * 5 : static_cast<float>(i) + 5) << i;
    EXPECT_EQ(f[i], kFibonacci[i % 12]) << i;
  }
}

TEST_P(Kernels, local_arrays_belong_to_their_thread) {
  std::vector<int> order(16);
  for (int i = 0; i < 16; ++i) order[static_cast<std::size_t>(i)] = (i * 7 + 3) % 16;
  const auto out = device.allocate(100 * 4);
  ASSERT_EQ(device.launch("local_array", {4, 1, 1}, {25, 1, 1}, out, device.upload(order), 16).status, Status::ok);
  const auto result = device.download<int>(out, 100);
  for (int i = 0; i < 100; ++i) {
    int values[32];
    for (int k = 0; k < 16; ++k) values[k] = i * k;
    for (int k = 0; k < 16; ++k) {
      const int o = order[static_cast<std::size_t>(k)];
      values[o] += values[(o + 1) & 15];
    }
    EXPECT_EQ(result[static_cast<std::size_t>(i)], values[order[static_cast<std::size_t>(i % 16)]]) << i;
  }
}

TEST_P(Kernels, divergent_switch_gives_each_lane_its_own_case) {
  const auto out = device.upload(std::vector<int>(256, 0));
  ASSERT_EQ(device.launch("sw", {1, 1, 1}, {256, 1, 1}, out, 2).status, Status::ok);
  const auto o = device.download<int>(out, 256);
  for (int i = 0; i < 256; ++i) {
    int want = 0;
    switch ((i + 2) % 9) {
      case 0:
        want = 10;
        break;
      case 1:
        want = i * 3;
        break;
      case 2:
        want = i / 7;
        break;
      case 3:
        want = i % 5;
        break;
      case 4:
        want = -i;
        break;
      case 5:
        want = i << 3;
        break;
      case 6:
        want = i ^ 0x55;
        break;
      default:
        want = i * (i - 1) / 2;
    }
    ASSERT_EQ(o[static_cast<std::size_t>(i)], want) << i;
  }
}

TEST_P(Kernels, printf_formats_every_thread_in_order) {
  std::string text;
  device.options.print = [&](std::string_view part) { text += part; };
  ASSERT_EQ(device.launch("hello", {1, 1, 1}, {2, 1, 1}, 41).status, Status::ok);
  EXPECT_EQ(text, "thread 41:  0.00 text -1 %\nthread 42:  2.50 text -1 %\n");
}

TEST_P(Kernels, a_spin_lock_between_lanes_of_a_warp_makes_progress) {
  const auto lock = device.upload(std::vector<int>{0});
  const auto counter = device.upload(std::vector<int>{0});
  device.options.max_thread_instructions = 2'000'000'000;
  ASSERT_EQ(device.launch("locked", {2, 1, 1}, {48, 1, 1}, lock, counter).status, Status::ok);
  EXPECT_EQ(device.download<int>(counter, 1)[0], 96);
}

TEST_P(Kernels, blocks_of_a_cooperative_launch_wait_for_each_other) {
  constexpr std::uint32_t blocks = 40;
  for (const bool cooperative : {true, false}) {
    const auto arrived = device.upload(std::vector<int>{0});
    const auto data = device.allocate(blocks * 4);
    const auto out = device.allocate(blocks * 4);
    device.cooperative = cooperative;
    device.options.max_thread_instructions = 20'000'000'000;
    ASSERT_EQ(device.launch("grid_barrier", {blocks, 1, 1}, {64, 1, 1}, arrived, data, out).status, Status::ok);
    for (const int sum : device.download<int>(out, blocks)) EXPECT_EQ(sum, 40 * 41 / 2);
  }
}

TEST_P(Kernels, several_threads_give_the_same_result_as_one) {
  constexpr std::uint32_t n = 256;
  const auto a = ramp(n * n, 0.001F);
  const auto at = device.upload(a);
  std::vector<float> first;
  std::uint64_t instructions = 0;
  for (const int threads : {1, 4}) {
    device.options.threads = threads;
    const auto out = device.allocate(n * n * 4);
    const Outcome outcome = device.launch("matmul_tiled", {n / 16, n / 16, 1}, {16, 16, 1}, out, at, at, n);
    ASSERT_EQ(outcome.status, Status::ok);
    const auto result = device.download<float>(out, n * n);
    if (threads == 1) {
      first = result;
      instructions = outcome.thread_instructions;
    } else {
      EXPECT_EQ(result, first);
      EXPECT_EQ(outcome.thread_instructions, instructions);
    }
  }
}

TEST_P(Kernels, an_empty_kernel_is_known_to_have_no_effect) {
  EXPECT_TRUE(device.image.module->find_kernel("nothing")->effect_free);
  EXPECT_FALSE(device.image.module->find_kernel("trapping")->effect_free);
  EXPECT_FALSE(device.image.module->find_kernel("vector_add")->effect_free);
  EXPECT_EQ(device.launch("nothing", {3, 1, 1}, {32, 1, 1}).thread_instructions, 96U);
}

TEST_P(Kernels, a_trap_of_one_thread_ends_the_launch) {
  EXPECT_EQ(device.launch("trapping", {1, 1, 1}, {64, 1, 1}, 5).status, Status::trap);
  EXPECT_EQ(device.launch("trapping", {1, 1, 1}, {64, 1, 1}, 64).status, Status::ok);
}

TEST_P(Kernels, an_address_outside_every_range_is_named) {
  const auto a = device.allocate(512);
  const auto out = device.allocate(400);
  const Outcome outcome = device.launch("vector_add", {1, 1, 1}, {128, 1, 1}, out, a, a, 128);
  EXPECT_EQ(outcome.status, Status::illegal_address);
  EXPECT_EQ(outcome.fault_address, out + 400);
  EXPECT_GT(outcome.line, 0);
  EXPECT_EQ(device.launch("vector_add", {1, 1, 1}, {128, 1, 1}, std::uint64_t{0}, a, a, 128).status,
            Status::illegal_address);
  EXPECT_EQ(device.launch("vector_add", {1, 1, 1}, {128, 1, 1}, a + 2, a, a, 16).status, Status::misaligned_address);
  const auto constant = device.allocate(512);
  device.protect(constant);
  EXPECT_EQ(device.launch("vector_add", {1, 1, 1}, {128, 1, 1}, constant, a, a, 128).status, Status::illegal_address);
  EXPECT_EQ(device.launch("vector_add", {1, 1, 1}, {128, 1, 1}, a, constant, constant, 128).status, Status::ok);
}

TEST_P(Kernels, a_watchdog_and_a_cancel_end_an_endless_loop) {
  const auto lock = device.upload(std::vector<int>{1});
  const auto counter = device.upload(std::vector<int>{0});
  device.options.max_thread_instructions = 3'000'000;
  EXPECT_EQ(device.launch("locked", {1, 1, 1}, {64, 1, 1}, lock, counter).status, Status::timeout);
  const std::atomic<bool> cancel{true};
  device.options.cancel = &cancel;
  EXPECT_EQ(device.launch("locked", {1, 1, 1}, {64, 1, 1}, lock, counter).status, Status::cancelled);
}

TEST_P(Kernels, an_endless_loop_says_that_it_goes_on) {
  const auto lock = device.upload(std::vector<int>{1});
  const auto counter = device.upload(std::vector<int>{0});
  std::atomic<bool> enough{false};
  int calls = 0;
  device.options.cancel = &enough;
  device.options.progress = [&] { enough = ++calls == 3; };
  EXPECT_EQ(device.launch("locked", {1, 1, 1}, {64, 1, 1}, lock, counter).status, Status::cancelled);
  EXPECT_EQ(calls, 3);
}

INSTANTIATE_TEST_SUITE_P(
    on_every_instruction_set, Kernels, ::testing::Values(Isa::baseline, Isa::avx2, Isa::avx512), [](const auto& which) {
      return std::string(which.param == Isa::baseline ? "baseline" : which.param == Isa::avx2 ? "avx2" : "avx512");
    });

}  // namespace
}  // namespace tensor_fusion::sim::ptx
