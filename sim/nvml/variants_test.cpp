// Entry points that came in several forms: the old ones say what the new ones say.
#include <gtest/gtest.h>

#include <string>

#include "contract/nvml.h"
#include "sim/device/test_machine.h"

namespace nv = tensor_fusion::contract::nvml;
namespace device = tensor_fusion::sim::device;

extern "C" {
nv::Return nvmlInit();
nv::Return nvmlInit_v2();
nv::Return nvmlInitWithFlags(unsigned);
nv::Return nvmlShutdown();
nv::Return nvmlSystemGetCudaDriverVersion(int*);
nv::Return nvmlSystemGetCudaDriverVersion_v2(int*);
nv::Return nvmlDeviceGetCount(unsigned*);
nv::Return nvmlDeviceGetCount_v2(unsigned*);
nv::Return nvmlDeviceGetHandleByIndex(unsigned, nv::Device*);
nv::Return nvmlDeviceGetHandleByIndex_v2(unsigned, nv::Device*);
nv::Return nvmlDeviceGetHandleBySerial(const char*, nv::Device*);
nv::Return nvmlDeviceGetHandleByPciBusId(const char*, nv::Device*);
nv::Return nvmlDeviceGetHandleByPciBusId_v2(const char*, nv::Device*);
nv::Return nvmlDeviceGetSerial(nv::Device, char*, unsigned);
nv::Return nvmlDeviceGetPciInfo_v2(nv::Device, nv::PciInfo*);
nv::Return nvmlDeviceGetPciInfo_v3(nv::Device, nv::PciInfo*);
nv::Return nvmlDeviceGetTemperature(nv::Device, int, unsigned*);
nv::Return nvmlDeviceGetTemperatureV(nv::Device, nv::Temperature*);
nv::Return nvmlDeviceGetFanSpeed(nv::Device, unsigned*);
nv::Return nvmlDeviceGetFanSpeed_v2(nv::Device, unsigned, unsigned*);
nv::Return nvmlDeviceGetComputeRunningProcesses(nv::Device, unsigned*, nv::ProcessInfoV1*);
nv::Return nvmlDeviceGetComputeRunningProcesses_v2(nv::Device, unsigned*, nv::ProcessInfo*);
nv::Return nvmlDeviceGetComputeRunningProcesses_v3(nv::Device, unsigned*, nv::ProcessInfo*);
nv::Return nvmlDeviceGetGraphicsRunningProcesses(nv::Device, unsigned*, nv::ProcessInfoV1*);
nv::Return nvmlDeviceGetGraphicsRunningProcesses_v2(nv::Device, unsigned*, nv::ProcessInfo*);
nv::Return nvmlDeviceGetGraphicsRunningProcesses_v3(nv::Device, unsigned*, nv::ProcessInfo*);
nv::Return nvmlDeviceGetMPSComputeRunningProcesses(nv::Device, unsigned*, nv::ProcessInfoV1*);
nv::Return nvmlDeviceGetMPSComputeRunningProcesses_v2(nv::Device, unsigned*, nv::ProcessInfo*);
nv::Return nvmlDeviceGetMPSComputeRunningProcesses_v3(nv::Device, unsigned*, nv::ProcessInfo*);
nv::Return nvmlDeviceSetMigMode(nv::Device, unsigned, nv::Return*);
nv::Return nvmlDeviceGetGpuInstanceProfileInfo(nv::Device, unsigned, nv::GpuInstanceProfile*);
nv::Return nvmlDeviceGetGpuInstanceProfileInfoV(nv::Device, unsigned, nv::GpuInstanceProfileV2*);
}

namespace {

class NvmlVariants : public ::testing::Test {
 protected:
  void SetUp() override {
    ::setenv("TENSOR_FUSION_SIM_DIR", directory_.path().c_str(), 1);
    ::setenv("TENSOR_FUSION_SIM", "a100-40g,t4", 1);
    ASSERT_EQ(nvmlInit(), nv::kSuccess);
    ASSERT_EQ(nvmlDeviceGetHandleByIndex_v2(0, &card_), nv::kSuccess);
  }
  void TearDown() override { EXPECT_EQ(nvmlShutdown(), nv::kSuccess); }
  device::TestDirectory directory_;
  nv::Device card_ = nullptr;
};

TEST_F(NvmlVariants, of_initialisation_all_count) {
  EXPECT_EQ(nvmlInit_v2(), nv::kSuccess);
  EXPECT_EQ(nvmlInitWithFlags(0), nv::kSuccess);
  EXPECT_EQ(nvmlShutdown(), nv::kSuccess);
  EXPECT_EQ(nvmlShutdown(), nv::kSuccess);
  unsigned count = 0;
  EXPECT_EQ(nvmlDeviceGetCount_v2(&count), nv::kSuccess);  // the fixture's still counts
}

TEST_F(NvmlVariants, of_finding_a_card_give_the_same_handle) {
  unsigned old_count = 0, new_count = 0;
  ASSERT_EQ(nvmlDeviceGetCount(&old_count), nv::kSuccess);
  ASSERT_EQ(nvmlDeviceGetCount_v2(&new_count), nv::kSuccess);
  EXPECT_EQ(old_count, new_count);
  nv::Device same = nullptr;
  ASSERT_EQ(nvmlDeviceGetHandleByIndex(0, &same), nv::kSuccess);
  EXPECT_EQ(same, card_);
  char serial[64];
  ASSERT_EQ(nvmlDeviceGetSerial(card_, serial, sizeof serial), nv::kSuccess);
  ASSERT_EQ(nvmlDeviceGetHandleBySerial(serial, &same), nv::kSuccess);
  EXPECT_EQ(same, card_);
  nv::PciInfo second{}, third{};
  ASSERT_EQ(nvmlDeviceGetPciInfo_v2(card_, &second), nv::kSuccess);
  ASSERT_EQ(nvmlDeviceGetPciInfo_v3(card_, &third), nv::kSuccess);
  EXPECT_STREQ(second.bus_id, third.bus_id);
  for (const char* name : {third.bus_id, third.bus_id_legacy}) {
    ASSERT_EQ(nvmlDeviceGetHandleByPciBusId(name, &same), nv::kSuccess);
    EXPECT_EQ(same, card_);
    ASSERT_EQ(nvmlDeviceGetHandleByPciBusId_v2(name, &same), nv::kSuccess);
    EXPECT_EQ(same, card_);
  }
  int old_version = 0, new_version = 0;
  ASSERT_EQ(nvmlSystemGetCudaDriverVersion(&old_version), nv::kSuccess);
  ASSERT_EQ(nvmlSystemGetCudaDriverVersion_v2(&new_version), nv::kSuccess);
  EXPECT_EQ(old_version, new_version);
}

TEST_F(NvmlVariants, of_process_lists_name_the_same_process) {
  auto machine = directory_.attach("");
  ASSERT_TRUE(machine);
  auto context = device::Context::create(**machine, 0);
  ASSERT_TRUE(context);
  nv::ProcessInfoV1 first{};
  nv::ProcessInfo second{}, third{};
  unsigned count = 1;
  ASSERT_EQ(nvmlDeviceGetComputeRunningProcesses(card_, &count, &first), nv::kSuccess);
  ASSERT_EQ(nvmlDeviceGetComputeRunningProcesses_v2(card_, &count, &second), nv::kSuccess);
  ASSERT_EQ(nvmlDeviceGetComputeRunningProcesses_v3(card_, &count, &third), nv::kSuccess);
  EXPECT_EQ(count, 1U);
  EXPECT_EQ(first.pid, third.pid);
  EXPECT_EQ(first.used_bytes, third.used_bytes);
  EXPECT_EQ(second.pid, third.pid);
  EXPECT_EQ(second.used_bytes, third.used_bytes);
  EXPECT_EQ(second.gpu_instance, third.gpu_instance);
  for (const auto call : {nvmlDeviceGetGraphicsRunningProcesses_v2, nvmlDeviceGetGraphicsRunningProcesses_v3,
                          nvmlDeviceGetMPSComputeRunningProcesses_v2, nvmlDeviceGetMPSComputeRunningProcesses_v3}) {
    count = 1;
    EXPECT_EQ(call(card_, &count, &third), nv::kSuccess);
    EXPECT_EQ(count, 0U);
  }
  for (const auto call : {nvmlDeviceGetGraphicsRunningProcesses, nvmlDeviceGetMPSComputeRunningProcesses}) {
    count = 1;
    EXPECT_EQ(call(card_, &count, &first), nv::kSuccess);
    EXPECT_EQ(count, 0U);
  }
}

TEST_F(NvmlVariants, with_a_version_word_answer_only_their_own) {
  unsigned celsius = 0;
  ASSERT_EQ(nvmlDeviceGetTemperature(card_, 0, &celsius), nv::kSuccess);
  nv::Temperature reading{};
  EXPECT_EQ(nvmlDeviceGetTemperatureV(card_, &reading), nv::kArgumentVersionMismatch);
  reading.version = nv::version_word<nv::Temperature>(1);
  ASSERT_EQ(nvmlDeviceGetTemperatureV(card_, &reading), nv::kSuccess);
  EXPECT_NEAR(reading.celsius, static_cast<int>(celsius), 2);
  unsigned speed = 0;
  EXPECT_EQ(nvmlDeviceGetFanSpeed(card_, &speed), nv::kNotSupported);
  EXPECT_EQ(nvmlDeviceGetFanSpeed_v2(card_, 0, &speed), nv::kNotSupported);
  nv::Return activation = nv::kUnknown;
  ASSERT_EQ(nvmlDeviceSetMigMode(card_, 1, &activation), nv::kSuccess);
  nv::GpuInstanceProfile plain{};
  nv::GpuInstanceProfileV2 named{};
  EXPECT_EQ(nvmlDeviceGetGpuInstanceProfileInfoV(card_, 2, &named), nv::kArgumentVersionMismatch);
  named.version = nv::version_word<nv::GpuInstanceProfileV2>(2);
  ASSERT_EQ(nvmlDeviceGetGpuInstanceProfileInfoV(card_, 2, &named), nv::kSuccess);
  ASSERT_EQ(nvmlDeviceGetGpuInstanceProfileInfo(card_, 2, &plain), nv::kSuccess);
  EXPECT_EQ(named.id, plain.id);
  EXPECT_EQ(named.multiprocessors, plain.multiprocessors);
  EXPECT_EQ(named.memory_mib, plain.memory_mib);
  EXPECT_NE(std::string(named.name).find("3g"), std::string::npos) << named.name;
}

}  // namespace
