#include "contract/nvml.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

#include "sim/device/account.h"
#include "sim/device/context.h"
#include "sim/device/health.h"
#include "sim/device/memory.h"
#include "sim/device/test_machine.h"

namespace nv = tensor_fusion::contract::nvml;
namespace device = tensor_fusion::sim::device;

extern "C" {
nv::Return nvmlInit_v2();
nv::Return nvmlShutdown();
const char* nvmlErrorString(int);
nv::Return nvmlSystemGetDriverVersion(char*, unsigned);
nv::Return nvmlDeviceGetCount_v2(unsigned*);
nv::Return nvmlDeviceGetHandleByIndex_v2(unsigned, nv::Device*);
nv::Return nvmlDeviceGetHandleByUUID(const char*, nv::Device*);
nv::Return nvmlDeviceGetHandleByUUIDV(const nv::UuidQuery*, nv::Device*);
nv::Return nvmlDeviceGetHandleByPciBusId_v2(const char*, nv::Device*);
nv::Return nvmlDeviceGetUUID(nv::Device, char*, unsigned);
nv::Return nvmlDeviceGetName(nv::Device, char*, unsigned);
nv::Return nvmlDeviceGetIndex(nv::Device, unsigned*);
nv::Return nvmlDeviceGetMinorNumber(nv::Device, unsigned*);
nv::Return nvmlDeviceGetPciInfo_v3(nv::Device, nv::PciInfo*);
nv::Return nvmlDeviceGetMemoryInfo(nv::Device, nv::Memory*);
nv::Return nvmlDeviceGetMemoryInfo_v2(nv::Device, nv::MemoryV2*);
nv::Return nvmlDeviceGetComputeRunningProcesses_v3(nv::Device, unsigned*, nv::ProcessInfo*);
nv::Return nvmlDeviceGetComputeRunningProcesses(nv::Device, unsigned*, nv::ProcessInfoV1*);
nv::Return nvmlDeviceGetProcessUtilization(nv::Device, nv::ProcessUtilization*, unsigned*, unsigned long long);
nv::Return nvmlDeviceGetProcessesUtilizationInfo(nv::Device, nv::ProcessesUtilization*);
nv::Return nvmlDeviceGetUtilizationRates(nv::Device, nv::Utilization*);
nv::Return nvmlDeviceGetTopologyCommonAncestor(nv::Device, nv::Device, int*);
nv::Return nvmlDeviceGetP2PStatus(nv::Device, nv::Device, int, int*);
nv::Return nvmlDeviceGetNvLinkState(nv::Device, unsigned, int*);
nv::Return nvmlDeviceGetNvLinkRemoteDeviceType(nv::Device, unsigned, int*);
nv::Return nvmlDeviceGetGpuFabricInfoV(nv::Device, nv::FabricInfoV2*);
nv::Return nvmlDeviceGetMigMode(nv::Device, unsigned*, unsigned*);
nv::Return nvmlDeviceSetMigMode(nv::Device, unsigned, nv::Return*);
nv::Return nvmlDeviceCreateGpuInstanceWithPlacement(nv::Device, unsigned, const nv::Placement*, nv::GpuInstance*);
nv::Return nvmlGpuInstanceCreateComputeInstance(nv::GpuInstance, unsigned, nv::ComputeInstance*);
nv::Return nvmlGpuInstanceDestroy(nv::GpuInstance);
nv::Return nvmlComputeInstanceDestroy(nv::ComputeInstance);
nv::Return nvmlDeviceGetMigDeviceHandleByIndex(nv::Device, unsigned, nv::Device*);
nv::Return nvmlDeviceGetDeviceHandleFromMigDeviceHandle(nv::Device, nv::Device*);
nv::Return nvmlDeviceGetGpuInstanceProfileInfo(nv::Device, unsigned, nv::GpuInstanceProfile*);
nv::Return nvmlDeviceGetGpuInstancePossiblePlacements_v2(nv::Device, unsigned, nv::Placement*, unsigned*);
nv::Return nvmlEventSetCreate(nv::EventSet*);
nv::Return nvmlEventSetFree(nv::EventSet);
nv::Return nvmlDeviceRegisterEvents(nv::Device, unsigned long long, nv::EventSet);
nv::Return nvmlEventSetWait_v2(nv::EventSet, nv::EventData*, unsigned);
nv::Return nvmlDeviceSetPowerManagementLimit();
nv::Return nvmlInternalGetExportTable(const void**, const void*);
}

namespace {

class Nvml : public ::testing::Test {
 protected:
  void open(const char* description) {
    ::setenv("TENSOR_FUSION_SIM_DIR", directory_.path().c_str(), 1);
    ::setenv("TENSOR_FUSION_SIM", description, 1);
    ASSERT_EQ(nvmlInit_v2(), nv::kSuccess);
    opened_ = true;
    auto machine = directory_.attach("");
    ASSERT_TRUE(machine) << machine.error().message;
    machine_ = std::move(*machine);
  }
  void TearDown() override {
    if (opened_) nvmlShutdown();
  }
  nv::Device card(unsigned index) {
    nv::Device handle = nullptr;
    EXPECT_EQ(nvmlDeviceGetHandleByIndex_v2(index, &handle), nv::kSuccess);
    return handle;
  }
  device::TestDirectory directory_;
  std::unique_ptr<device::Machine> machine_;
  bool opened_ = false;
};

TEST_F(Nvml, answers_uninitialized_before_and_after) {
  unsigned count = 0;
  EXPECT_EQ(nvmlDeviceGetCount_v2(&count), nv::kUninitialized);
  EXPECT_EQ(nvmlShutdown(), nv::kUninitialized);
  EXPECT_EQ(nvmlDeviceSetPowerManagementLimit(), nv::kUninitialized);
  open("tiny");
  ASSERT_EQ(nvmlInit_v2(), nv::kSuccess);  // counted
  EXPECT_EQ(nvmlShutdown(), nv::kSuccess);
  EXPECT_EQ(nvmlDeviceGetCount_v2(&count), nv::kSuccess);
  EXPECT_EQ(nvmlDeviceSetPowerManagementLimit(), nv::kNotSupported);
  EXPECT_EQ(nvmlShutdown(), nv::kSuccess);
  opened_ = false;
  EXPECT_EQ(nvmlDeviceGetCount_v2(&count), nv::kUninitialized);
}

TEST_F(Nvml, has_no_driver_where_there_is_no_machine) {
  ::setenv("TENSOR_FUSION_SIM_DIR", directory_.path().c_str(), 1);
  ::setenv("TENSOR_FUSION_SIM", "", 1);
  EXPECT_EQ(nvmlInit_v2(), nv::kDriverNotLoaded);
}

TEST_F(Nvml, finds_a_card_by_index_identity_and_bus) {
  open("2xh100");
  unsigned count = 0;
  EXPECT_EQ(nvmlDeviceGetCount_v2(nullptr), nv::kInvalidArgument);
  ASSERT_EQ(nvmlDeviceGetCount_v2(&count), nv::kSuccess);
  EXPECT_EQ(count, 2u);
  nv::Device handle = nullptr, same = nullptr;
  EXPECT_EQ(nvmlDeviceGetHandleByIndex_v2(2, &handle), nv::kInvalidArgument);
  handle = card(1);
  char uuid[96], name[96];
  EXPECT_EQ(nvmlDeviceGetUUID(handle, uuid, 10), nv::kInsufficientSize);
  ASSERT_EQ(nvmlDeviceGetUUID(handle, uuid, sizeof(uuid)), nv::kSuccess);
  EXPECT_EQ(std::string(uuid), machine_->device(1).uuid);
  ASSERT_EQ(nvmlDeviceGetHandleByUUID(uuid, &same), nv::kSuccess);
  EXPECT_EQ(same, handle);
  EXPECT_EQ(nvmlDeviceGetHandleByUUID("GPU-0", &same), nv::kNotFound);
  nv::UuidQuery query{};
  query.version = nv::version_word<nv::UuidQuery>(1);
  query.type = nv::kUuidText;
  std::copy_n(uuid, sizeof(query.value.text), query.value.text);
  ASSERT_EQ(nvmlDeviceGetHandleByUUIDV(&query, &same), nv::kSuccess);
  EXPECT_EQ(same, handle);
  query.type = nv::kUuidBytes;
  for (std::size_t digit = 0, at = 4; digit < 16; ++digit, at += 2) {
    at += uuid[at] == '-' ? 1 : 0;
    query.value.bytes[digit] = static_cast<unsigned char>(std::stoul(std::string(uuid + at, 2), nullptr, 16));
  }
  ASSERT_EQ(nvmlDeviceGetHandleByUUIDV(&query, &same), nv::kSuccess);
  EXPECT_EQ(same, handle);
  query.version = 0;
  EXPECT_EQ(nvmlDeviceGetHandleByUUIDV(&query, &same), nv::kArgumentVersionMismatch);
  nv::PciInfo pci;
  ASSERT_EQ(nvmlDeviceGetPciInfo_v3(handle, &pci), nv::kSuccess);
  EXPECT_STREQ(pci.bus_id, "00000000:1F:00.0");
  ASSERT_EQ(nvmlDeviceGetHandleByPciBusId_v2(pci.bus_id, &same), nv::kSuccess);
  EXPECT_EQ(same, handle);
  ASSERT_EQ(nvmlDeviceGetName(handle, name, sizeof(name)), nv::kSuccess);
  EXPECT_STREQ(name, "NVIDIA H100 80GB HBM3");
  nv::Device forged = reinterpret_cast<nv::Device>(0x1000);
  EXPECT_EQ(nvmlDeviceGetName(forged, name, sizeof(name)), nv::kInvalidArgument);
  EXPECT_EQ(nvmlDeviceGetName(nullptr, name, sizeof(name)), nv::kInvalidArgument);
}

TEST_F(Nvml, lists_only_cards_whose_file_can_be_opened) {
  {
    ASSERT_TRUE(directory_.attach("3xtiny"));
  }
  ASSERT_EQ(::unlink((directory_.path() + "/nvidia1").c_str()), 0);
  open("3xtiny");
  unsigned count = 0, minor = 0, index = 0;
  ASSERT_EQ(nvmlDeviceGetCount_v2(&count), nv::kSuccess);
  EXPECT_EQ(count, 2u);
  ASSERT_EQ(nvmlDeviceGetMinorNumber(card(1), &minor), nv::kSuccess);
  ASSERT_EQ(nvmlDeviceGetIndex(card(1), &index), nv::kSuccess);
  EXPECT_EQ(minor, 2u);
  EXPECT_EQ(index, 1u);
}

TEST_F(Nvml, shows_memory_and_processes_of_all) {
  open("tiny");
  nv::MemoryV2 before{}, after{};
  EXPECT_EQ(nvmlDeviceGetMemoryInfo_v2(card(0), &before), nv::kArgumentVersionMismatch);
  before.version = after.version = 0x02000028;
  ASSERT_EQ(nvmlDeviceGetMemoryInfo_v2(card(0), &before), nv::kSuccess);
  unsigned count = 0;
  EXPECT_EQ(nvmlDeviceGetComputeRunningProcesses_v3(card(0), &count, nullptr), nv::kSuccess);
  EXPECT_EQ(count, 0u);

  device::StayingChild child([&](const device::StayingChild::Stay& stay) {
    auto machine = directory_.attach("");
    auto context = device::Context::create(**machine, 0);
    return context && device::reserve_memory(**machine, 0, 1 << 20) ? stay() : 1;
  });
  ASSERT_TRUE(child.stays());
  const std::uint64_t overhead = machine_->device(0).profile.context_overhead_bytes;
  ASSERT_EQ(nvmlDeviceGetMemoryInfo_v2(card(0), &after), nv::kSuccess);
  EXPECT_EQ(after.used - before.used, overhead + (1 << 20));
  EXPECT_EQ(after.free + after.used + after.reserved, after.total);
  nv::Memory v1;
  ASSERT_EQ(nvmlDeviceGetMemoryInfo(card(0), &v1), nv::kSuccess);
  EXPECT_EQ(v1.used, after.used + after.reserved);
  count = 0;
  EXPECT_EQ(nvmlDeviceGetComputeRunningProcesses_v3(card(0), &count, nullptr), nv::kInsufficientSize);
  ASSERT_EQ(count, 1u);
  nv::ProcessInfo process;
  ASSERT_EQ(nvmlDeviceGetComputeRunningProcesses_v3(card(0), &count, &process), nv::kSuccess);
  EXPECT_EQ(process.pid, static_cast<unsigned>(child.pid()));
  EXPECT_EQ(process.used_bytes, overhead + (1 << 20));
  EXPECT_EQ(process.gpu_instance, nv::kNoInstance);
  nv::ProcessInfoV1 old;
  ASSERT_EQ(nvmlDeviceGetComputeRunningProcesses(card(0), &count, &old), nv::kSuccess);
  EXPECT_EQ(old.pid, static_cast<unsigned>(child.pid()));
  child.end();
  // The dead are looked for at most every 200 us: the machine does it now.
  machine_->reap();
  count = 1;
  ASSERT_EQ(nvmlDeviceGetComputeRunningProcesses_v3(card(0), &count, &process), nv::kSuccess);
  EXPECT_EQ(count, 0u);
  ASSERT_EQ(nvmlDeviceGetMemoryInfo_v2(card(0), &after), nv::kSuccess);
  EXPECT_EQ(after.used, before.used);
}

TEST_F(Nvml, says_not_found_when_no_process_has_a_new_sample) {
  open("tiny");
  unsigned count = 8;
  nv::ProcessUtilization samples[8];
  EXPECT_EQ(nvmlDeviceGetProcessUtilization(card(0), samples, &count, 0), nv::kNotFound);
  auto context = device::Context::create(*machine_, 0);
  ASSERT_TRUE(context);
  // Who looks late sees the window in which the work ended, which may hold less than a percent of it.
  for (int more = 0; more < 20 && (more == 0 || samples[0].sm == 0); ++more) {
    ASSERT_TRUE(context->wait(
        context->submit(0, {.kind = device::WorkKind::compute, .duration_ns = 2 * device::kSampleWindowNs})));
    count = 0;
    EXPECT_EQ(nvmlDeviceGetProcessUtilization(card(0), nullptr, &count, 0), nv::kInsufficientSize);
    ASSERT_EQ(count, 1u);
    ASSERT_EQ(nvmlDeviceGetProcessUtilization(card(0), samples, &count, 0), nv::kSuccess);
    EXPECT_EQ(samples[0].pid, static_cast<unsigned>(::getpid()));
  }
  EXPECT_GT(samples[0].sm, 0u);
  nv::ProcessUtilizationInfo infos[8];
  nv::ProcessesUtilization info{0, 8, 0, infos};
  EXPECT_EQ(nvmlDeviceGetProcessesUtilizationInfo(card(0), &info), nv::kArgumentVersionMismatch);
  info.version = 0x01000018;
  ASSERT_EQ(nvmlDeviceGetProcessesUtilizationInfo(card(0), &info), nv::kSuccess);
  EXPECT_EQ(info.count, 1u);
  // Await the window in which the rest of the work ended, then the ones with none.
  const std::uint64_t deadline = device::now_ns() + 30'000'000'000;
  nv::Return last = nv::kSuccess;
  while (last == nv::kSuccess && device::now_ns() < deadline) {
    count = 8;
    last = nvmlDeviceGetProcessUtilization(card(0), samples, &count, samples[0].timestamp_us);
    const std::uint64_t later = device::now_ns() + 20'000'000;
    ASSERT_TRUE(context->wait(context->submit(0, {.kind = device::WorkKind::marker, .arrival_ns = later})));
  }
  EXPECT_EQ(last, nv::kNotFound);
  nv::Utilization rates;
  EXPECT_EQ(nvmlDeviceGetUtilizationRates(card(0), &rates), nv::kSuccess);
}

TEST_F(Nvml, cuts_and_mends_a_card) {
  open("a100-40g,t4");
  unsigned current = 9, pending = 9;
  EXPECT_EQ(nvmlDeviceGetMigMode(card(1), &current, &pending), nv::kNotSupported);
  nv::Return activation = nv::kUnknown;
  nv::GpuInstance gi = nullptr;
  nv::Placement place{4, 4};
  EXPECT_EQ(nvmlDeviceCreateGpuInstanceWithPlacement(card(0), 9, &place, &gi), nv::kNotSupported);
  ASSERT_EQ(nvmlDeviceSetMigMode(card(0), 1, &activation), nv::kSuccess);
  nv::GpuInstanceProfile profile;
  EXPECT_EQ(nvmlDeviceGetGpuInstanceProfileInfo(card(0), 0x12, &profile), nv::kInvalidArgument);
  EXPECT_EQ(nvmlDeviceGetGpuInstanceProfileInfo(card(0), 0xA, &profile), nv::kNotSupported);
  ASSERT_EQ(nvmlDeviceGetGpuInstanceProfileInfo(card(0), 2, &profile), nv::kSuccess);
  EXPECT_EQ(profile.id, 9u);
  unsigned count = 0;
  ASSERT_EQ(nvmlDeviceGetGpuInstancePossiblePlacements_v2(card(0), 9, nullptr, &count), nv::kSuccess);
  EXPECT_EQ(count, 2u);
  ASSERT_EQ(nvmlDeviceCreateGpuInstanceWithPlacement(card(0), 9, &place, &gi), nv::kSuccess);
  EXPECT_EQ(nvmlDeviceCreateGpuInstanceWithPlacement(card(0), 9, &place, &gi), nv::kInsufficientResources);
  nv::ComputeInstance ci = nullptr;
  EXPECT_EQ(nvmlGpuInstanceCreateComputeInstance(gi, 4, &ci), nv::kInvalidArgument);
  ASSERT_EQ(nvmlGpuInstanceCreateComputeInstance(gi, 2, &ci), nv::kSuccess);
  nv::Device mig = nullptr, parent = nullptr;
  ASSERT_EQ(nvmlDeviceGetMigDeviceHandleByIndex(card(0), 0, &mig), nv::kSuccess);
  EXPECT_EQ(nvmlDeviceGetMigDeviceHandleByIndex(card(0), 1, &parent), nv::kNotFound);
  ASSERT_EQ(nvmlDeviceGetDeviceHandleFromMigDeviceHandle(mig, &parent), nv::kSuccess);
  EXPECT_EQ(parent, card(0));
  char uuid[96];
  ASSERT_EQ(nvmlDeviceGetUUID(mig, uuid, sizeof(uuid)), nv::kSuccess);
  nv::Device again = nullptr;
  ASSERT_EQ(nvmlDeviceGetHandleByUUID(uuid, &again), nv::kSuccess);
  EXPECT_EQ(again, mig);
  nv::Utilization rates;
  EXPECT_EQ(nvmlDeviceGetUtilizationRates(mig, &rates), nv::kNotSupported);
  EXPECT_EQ(nvmlDeviceSetMigMode(card(0), 0, &activation), nv::kInUse);
  EXPECT_EQ(nvmlGpuInstanceDestroy(gi), nv::kInUse);
  ASSERT_EQ(nvmlComputeInstanceDestroy(ci), nv::kSuccess);
  EXPECT_EQ(nvmlComputeInstanceDestroy(ci), nv::kNotFound);
  ASSERT_EQ(nvmlGpuInstanceDestroy(gi), nv::kSuccess);
  EXPECT_EQ(nvmlDeviceGetUUID(mig, uuid, sizeof(uuid)), nv::kNotFound);
  EXPECT_EQ(nvmlDeviceSetMigMode(card(0), 0, &activation), nv::kSuccess);
}

TEST_F(Nvml, delivers_an_xid_to_who_registered) {
  open("2xtiny");
  nv::EventSet set = nullptr;
  ASSERT_EQ(nvmlEventSetCreate(&set), nv::kSuccess);
  device::report_xid(*machine_, 0, 13, 1);  // before registering: not ours
  EXPECT_EQ(nvmlDeviceRegisterEvents(card(0), 1ull << 40, set), nv::kNotSupported);
  ASSERT_EQ(nvmlDeviceRegisterEvents(card(0), nv::kEventXidCritical, set), nv::kSuccess);
  nv::EventData event{};
  EXPECT_EQ(nvmlEventSetWait_v2(set, &event, 1), nv::kTimeout);
  device::report_xid(*machine_, 1, 31, 1);  // another card
  device::report_xid(*machine_, 0, 79, 1);
  ASSERT_EQ(nvmlEventSetWait_v2(set, &event, 10'000), nv::kSuccess);
  EXPECT_EQ(event.data, 79u);
  EXPECT_EQ(event.device, card(0));
  EXPECT_EQ(event.gpu_instance, nv::kNoInstance);
  machine_->set_lost(0, true);
  EXPECT_EQ(nvmlEventSetWait_v2(set, &event, 10'000), nv::kGpuIsLost);
  nv::Device handle = nullptr;
  EXPECT_EQ(nvmlDeviceGetHandleByIndex_v2(0, &handle), nv::kGpuIsLost);
  EXPECT_EQ(nvmlEventSetFree(set), nv::kSuccess);
  EXPECT_EQ(nvmlEventSetFree(set), nv::kInvalidArgument);
}

TEST_F(Nvml, tells_the_topology) {
  open("4xh100");
  int level = -1, status = -1, type = -1, active = -1;
  ASSERT_EQ(nvmlDeviceGetTopologyCommonAncestor(card(0), card(1), &level), nv::kSuccess);
  EXPECT_EQ(level, nv::kTopologySingle);
  ASSERT_EQ(nvmlDeviceGetTopologyCommonAncestor(card(0), card(2), &level), nv::kSuccess);
  EXPECT_EQ(level, nv::kTopologySystem);
  ASSERT_EQ(nvmlDeviceGetP2PStatus(card(0), card(3), nv::kP2pNvlink, &status), nv::kSuccess);
  EXPECT_EQ(status, nv::kP2pOk);
  ASSERT_EQ(nvmlDeviceGetNvLinkState(card(0), 17, &active), nv::kSuccess);
  EXPECT_EQ(active, 1);
  EXPECT_EQ(nvmlDeviceGetNvLinkState(card(0), 18, &active), nv::kInvalidArgument);
  ASSERT_EQ(nvmlDeviceGetNvLinkRemoteDeviceType(card(0), 0, &type), nv::kSuccess);
  EXPECT_EQ(type, nv::kRemoteSwitch);
  nv::FabricInfoV3 fabric{};
  fabric.version = nv::version_word<nv::FabricInfoV3>(3);
  ASSERT_EQ(nvmlDeviceGetGpuFabricInfoV(card(0), reinterpret_cast<nv::FabricInfoV2*>(&fabric)), nv::kSuccess);
  EXPECT_EQ(fabric.state, 3);
}

TEST_F(Nvml, has_a_text_for_every_result_and_no_private_table) {
  for (int code = 0; code <= 30; ++code) EXPECT_STRNE(nvmlErrorString(code), "Unknown Error") << code;
  EXPECT_STREQ(nvmlErrorString(999), "Unknown Error");
  const void* table = &table;
  EXPECT_EQ(nvmlInternalGetExportTable(&table, "0123456789abcdef"), nv::kFunctionNotFound);
  EXPECT_EQ(table, nullptr);
}

}  // namespace
