// The built-in NVIDIA provider against whatever libnvidia-ml.so.1 the loader finds: the simulated one in the tests'
// environment, a real one on a machine that has it.
#include <dlfcn.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <memory>
#include <vector>

#include "contract/nvml.h"
#include "device/nvidia/model.h"
#include "device/provider.h"
#include "system/eventually.h"
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
  PartitionResult result;
  EXPECT_EQ(provider_.assign_partition("x", "y", nullptr), ACCEL_ERROR_INVALID_PARAM);
  EXPECT_EQ(provider_.assign_partition("19", "GPU-none", &result), ACCEL_ERROR_NOT_FOUND);
  EXPECT_EQ(provider_.remove_partition("19", "MIG-none"), ACCEL_ERROR_NOT_FOUND);
}

std::vector<ExtendedDeviceInfo> devices_of(const Provider& provider) {
  std::vector<ExtendedDeviceInfo> all(MAX_TOPOLOGY_DEVICES);
  std::size_t count = 0;
  EXPECT_EQ(provider.all_devices(all.data(), all.size(), &count), ACCEL_SUCCESS);
  all.resize(count);
  return all;
}

// The library keeps the machine that it saw first, so another one needs a process of its own.
void cut_and_mend_a_card(const std::string& folder) {
  ::setenv("TENSOR_FUSION_SIM", "a100-40g", 1);
  ::setenv("TENSOR_FUSION_SIM_DIR", folder.c_str(), 1);
  void* library = ::dlopen("libnvidia-ml.so.1", RTLD_NOW | RTLD_LOCAL);
  const Provider provider = nvidia_provider();
  ASSERT_EQ(provider.init(), ACCEL_SUCCESS) << provider.trouble();
  const auto devices = [&] { return devices_of(provider); };
  ASSERT_EQ(devices().size(), 1u);
  const std::string card = devices()[0].basic.uuid;
  const std::uint64_t memory = devices()[0].basic.totalMemoryBytes;
  constexpr const char* kThreeSlices = "9";  // 3g.20gb: two fit side by side
  PartitionResult first{}, second{}, none{};
  EXPECT_EQ(provider.assign_partition(kThreeSlices, card.c_str(), &none), ACCEL_ERROR_NOT_SUPPORTED)
      << "not in MIG mode";

  contract::nvml::Device handle = nullptr;
  const auto by_index =
      reinterpret_cast<int (*)(unsigned, contract::nvml::Device*)>(::dlsym(library, "nvmlDeviceGetHandleByIndex_v2"));
  const auto set_mode =
      reinterpret_cast<int (*)(contract::nvml::Device, unsigned, int*)>(::dlsym(library, "nvmlDeviceSetMigMode"));
  int activated = -1;
  ASSERT_EQ(by_index(0, &handle), 0);
  ASSERT_EQ(set_mode(handle, 1, &activated), 0);
  EXPECT_EQ(devices().size(), 0u) << "a card in MIG mode takes no work itself";

  EXPECT_EQ(provider.assign_partition("9x", card.c_str(), &none), ACCEL_ERROR_INVALID_PARAM);
  EXPECT_EQ(provider.assign_partition("77", card.c_str(), &none), ACCEL_ERROR_INVALID_PARAM);
  ASSERT_EQ(provider.assign_partition(kThreeSlices, card.c_str(), &first), ACCEL_SUCCESS);
  ASSERT_EQ(provider.assign_partition(kThreeSlices, card.c_str(), &second), ACCEL_SUCCESS);
  EXPECT_EQ(provider.assign_partition(kThreeSlices, card.c_str(), &none), ACCEL_ERROR_RESOURCE_EXHAUSTED);
  EXPECT_EQ(devices().size(), 2u) << "the refused one left nothing behind";
  EXPECT_STRNE(first.deviceUUID, second.deviceUUID);
  for (const PartitionResult* made : {&first, &second}) {
    EXPECT_TRUE(std::string(made->deviceUUID).starts_with("MIG-")) << made->deviceUUID;
    EXPECT_EQ(std::string(made->envVars[1]), std::string("CUDA_VISIBLE_DEVICES=") + made->deviceUUID);
    EXPECT_NE(std::string(made->deviceNodes[0]).find("-mig-"), std::string::npos) << made->deviceNodes[0];
    const auto all = devices();
    const auto shown = std::find_if(all.begin(), all.end(), [&](const ExtendedDeviceInfo& device) {
      return std::string(device.basic.uuid) == made->deviceUUID;
    });
    ASSERT_NE(shown, all.end());
    EXPECT_LT(shown->basic.totalMemoryBytes, memory * 6 / 10);
    EXPECT_GT(shown->basic.totalMemoryBytes, memory * 4 / 10);
  }
  EXPECT_EQ(provider.remove_partition(kThreeSlices, card.c_str()), ACCEL_ERROR_NOT_FOUND) << "no partition";
  EXPECT_EQ(provider.remove_partition(kThreeSlices, first.deviceUUID), ACCEL_SUCCESS);
  EXPECT_EQ(provider.remove_partition(kThreeSlices, first.deviceUUID), ACCEL_ERROR_NOT_FOUND);
  EXPECT_EQ(devices().size(), 1u);
  EXPECT_EQ(provider.assign_partition(kThreeSlices, card.c_str(), &first), ACCEL_SUCCESS) << "its place is free again";
  EXPECT_EQ(provider.remove_partition(kThreeSlices, first.deviceUUID), ACCEL_SUCCESS);
  EXPECT_EQ(provider.remove_partition(kThreeSlices, second.deviceUUID), ACCEL_SUCCESS);
  EXPECT_EQ(set_mode(handle, 0, &activated), 0);
  EXPECT_EQ(devices().size(), 1u);
}

TEST(NvidiaPartition, cuts_a_card_into_partitions_and_mends_it) {
  if (void* library = ::dlopen("libnvidia-ml.so.1", RTLD_NOW | RTLD_LOCAL);
      !library || !::dlsym(library, "nvmlTensorFusionDeviceDirectory"))
    GTEST_SKIP() << "no simulated libnvidia-ml.so.1 on the library path: a real card is not cut up";
  const system::ScratchDirectory folder;
  const pid_t child = ::fork();
  if (child == 0) {
    cut_and_mend_a_card(folder.path("machine"));
    ::_exit(::testing::Test::HasFailure() ? 1 : 0);
  }
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0) << "status " << status;
}

// Before and after the only list that has seen it whole: in both its place is not another's.
void lose_a_card(const std::string& folder, bool seen_before) {
  ::setenv("TENSOR_FUSION_SIM", "3xh100", 1);
  ::setenv("TENSOR_FUSION_SIM_DIR", folder.c_str(), 1);
  const auto lose = [&] { std::ofstream(folder + "/faults") << "lost=1\n"; };
  std::filesystem::create_directories(folder);
  if (!seen_before) lose();
  const Provider provider = nvidia_provider();
  ASSERT_EQ(provider.init(), ACCEL_SUCCESS) << provider.trouble();
  const auto devices = [&] { return devices_of(provider); };
  const auto before = devices();
  if (seen_before) {
    lose();
    EXPECT_TRUE(system::eventually([&] { return std::string(devices()[1].props.properties[0].key) == "lost"; }));
  }
  const auto all = devices();
  ASSERT_EQ(all.size(), 3u);
  for (int i = 0; i < 3; ++i) {
    const auto& info = all[static_cast<std::size_t>(i)];
    EXPECT_EQ(info.basic.index, i);
    EXPECT_EQ(std::string(info.props.properties[0].key) == "lost", i == 1) << i;
    if (i == 1 && !seen_before) continue;
    EXPECT_STREQ(info.basic.uuid, before[static_cast<std::size_t>(i)].basic.uuid);
    EXPECT_GT(info.basic.totalMemoryBytes, 0u);
  }
  EXPECT_STREQ(all[1].props.properties[0].value, seen_before ? "true" : "unnamed");
  EXPECT_STREQ(all[1].basic.uuid, seen_before ? before[1].basic.uuid : "GPU-lost-1");
  std::vector<ProcessInformation> processes(MAX_PROCESSES);
  std::vector<AccelEvent> told(8);
  std::size_t count = 0;
  EXPECT_EQ(provider.process_information(processes.data(), processes.size(), &count), ACCEL_SUCCESS);
  const auto topology = std::make_unique<ExtendedDeviceTopology>();
  EXPECT_EQ(provider.topology(topology.get()), ACCEL_SUCCESS);
  ASSERT_EQ(provider.extension->pollEvents(told.data(), told.size(), &count), ACCEL_SUCCESS);
  ASSERT_GE(count, 1u);
  EXPECT_EQ(told[0].kind, static_cast<std::uint32_t>(ACCEL_EVENT_DEVICE_LOST));
  EXPECT_STREQ(told[0].deviceUUID, all[1].basic.uuid);
}

class NvidiaLoss : public ::testing::TestWithParam<bool> {};

TEST_P(NvidiaLoss, leaves_every_card_its_index) {
  if (void* library = ::dlopen("libnvidia-ml.so.1", RTLD_NOW | RTLD_LOCAL);
      !library || !::dlsym(library, "nvmlTensorFusionDeviceDirectory"))
    GTEST_SKIP() << "no simulated libnvidia-ml.so.1 on the library path: a real card is not lost on purpose";
  const system::ScratchDirectory folder;
  const pid_t child = ::fork();
  if (child == 0) {
    lose_a_card(folder.path("machine"), GetParam());
    ::_exit(::testing::Test::HasFailure() ? 1 : 0);
  }
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0) << "status " << status;
}

INSTANTIATE_TEST_SUITE_P(Whether, NvidiaLoss, ::testing::Bool(),
                         [](const auto& row) { return row.param ? "seen_before" : "never_seen"; });

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
