// The built-in NVIDIA provider against whatever libnvidia-ml.so.1 the loader finds: the simulated one in the tests'
// environment, a real one on a machine that has it.
#include <dlfcn.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <memory>
#include <vector>

#include "device/nvidia/model.h"
#include "device/provider.h"
#include "system/scratch_directory.h"

namespace tensor_fusion::device {
namespace {

class NvidiaProvider : public ::testing::Test {
 protected:
  void SetUp() override {
    // For the simulated library; a real one takes no notice.
    ::setenv("TENSOR_FUSION_SIM", "2xh100", 0);
    ::setenv("TENSOR_FUSION_SIM_DIR", machine_.path("machine").c_str(), 0);
    if (!::dlopen("libnvidia-ml.so.1", RTLD_NOW | RTLD_LOCAL))
      GTEST_SKIP() << "no libnvidia-ml.so.1 on the library path: " << ::dlerror();
    ASSERT_EQ(provider_.init(), ACCEL_SUCCESS) << provider_.trouble();
  }
  static inline system::ScratchDirectory machine_;  // one for all tests: the library keeps the first it saw
  Provider provider_ = nvidia_provider();
};

TEST_F(NvidiaProvider, lists_devices_with_what_placement_needs) {
  std::vector<ExtendedDeviceInfo> devices(MAX_TOPOLOGY_DEVICES);
  std::size_t count = 0;
  ASSERT_EQ(provider_.all_devices(devices.data(), devices.size(), &count), ACCEL_SUCCESS);
  ASSERT_GT(count, 0u);
  for (std::size_t i = 0; i < count; ++i) {
    const DeviceBasicInfo& basic = devices[i].basic;
    EXPECT_TRUE(std::string(basic.uuid).starts_with("GPU-") || std::string(basic.uuid).starts_with("MIG-"))
        << basic.uuid;
    EXPECT_STREQ(basic.vendor, "NVIDIA");
    EXPECT_GT(basic.totalMemoryBytes, 0u);
    EXPECT_GT(basic.maxTflops, 0);
    EXPECT_GT(basic.totalComputeUnits, 0u);
    EXPECT_EQ(basic.index, static_cast<int>(i));
    MountPath files[16];
    std::size_t file_count = 0;
    ASSERT_EQ(provider_.extension->getDeviceFiles(basic.uuid, files, 16, &file_count), ACCEL_SUCCESS);
    EXPECT_GE(file_count, 1u) << "its own file at least";
    const char* uuid = basic.uuid;
    DeviceMetrics metrics{};
    ASSERT_EQ(provider_.device_metrics(&uuid, 1, &metrics), ACCEL_SUCCESS);
    EXPECT_LE(metrics.utilizationPercent, 100u);
    EXPECT_LE(metrics.memoryUsedBytes, basic.totalMemoryBytes);
  }
  std::size_t again = 0;
  EXPECT_EQ(provider_.device_count(&again), ACCEL_SUCCESS);
  EXPECT_EQ(again, count);
}

TEST_F(NvidiaProvider, relates_every_pair_of_devices) {
  const auto topology = std::make_unique<ExtendedDeviceTopology>();
  ASSERT_EQ(provider_.topology(topology.get()), ACCEL_SUCCESS);
  for (std::size_t i = 0; i < topology->deviceCount; ++i) {
    EXPECT_EQ(topology->devices[i].peerCount, topology->deviceCount);
    EXPECT_EQ(topology->devices[i].peers[i].topoLevel, TOPO_LEVEL_SELF);
  }
}

TEST_F(NvidiaProvider, answers_questions_about_unknown_devices) {
  MountPath file;
  std::size_t count = 7;
  EXPECT_EQ(provider_.extension->getDeviceFiles("GPU-none", &file, 1, &count), ACCEL_ERROR_NOT_FOUND);
  EXPECT_EQ(count, 0u);
  std::vector<ProcessInformation> processes(MAX_PROCESSES);
  EXPECT_EQ(provider_.process_information(processes.data(), processes.size(), &count), ACCEL_SUCCESS);
  AccelEvent event;
  EXPECT_EQ(provider_.extension->pollEvents(&event, 1, &count), ACCEL_SUCCESS);
  EXPECT_EQ(provider_.assign_partition("x", "y", nullptr), ACCEL_ERROR_NOT_SUPPORTED);
}

TEST(NvidiaModel, knows_the_throughput_of_common_cards) {
  EXPECT_EQ(nvidia::tflops_of("NVIDIA H100 80GB HBM3"), 989);
  EXPECT_EQ(nvidia::tflops_of("NVIDIA H100 PCIe"), 756);
  EXPECT_EQ(nvidia::tflops_of("NVIDIA A100-SXM4-40GB"), 312);
  EXPECT_EQ(nvidia::tflops_of("NVIDIA L40S"), 362);
  EXPECT_EQ(nvidia::tflops_of("NVIDIA L4"), 121);
  EXPECT_EQ(nvidia::tflops_of("Tesla T4"), 65);
  EXPECT_EQ(nvidia::tflops_of("something else"), 0);
}

}  // namespace
}  // namespace tensor_fusion::device
