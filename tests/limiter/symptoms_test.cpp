// What users of other limiters reported, one test per symptom.
#include <gtest/gtest.h>

#include <chrono>
#include <cstring>
#include <thread>

#include "tests/limiter/machine.h"

namespace tensor_fusion::tests {
namespace {

using guest::limiter::testing::Job;
using guest::limiter::testing::run;

constexpr std::uint64_t kMiB = 1 << 20;
constexpr std::uint64_t kGiB = 1 << 30;

Job symptom(const LimitedMachine& machine, std::vector<std::string> arguments, bool limited = true) {
  Job job = machine.tenant(std::move(arguments), limited);
  job.command[0] = std::string(TF_BUILD_FOLDER) + "/programs/limiter_symptoms";
  return job;
}

TEST(Symptom, vllm_and_nccl_crash_when_physical_memory_is_asked_for_on_the_host) {
  LimitedMachine machine(8 * kGiB);
  const auto limited = run(symptom(machine, {"locations"}));
  const auto direct = run(symptom(machine, {"locations"}, false));
  EXPECT_EQ(limited.status, 0);
  EXPECT_EQ(limited.out, direct.out);  // the driver's own answers, host memory not charged
  EXPECT_EQ(machine.slice().claim().devices[0].peak_bytes.load(), machine.overhead() + 2 * kMiB);
}

TEST(Symptom, nccl_finds_null_for_some_versions_and_flags) {
  LimitedMachine machine(8 * kGiB);
  const auto limited = run(symptom(machine, {"symbols"}));
  const auto direct = run(symptom(machine, {"symbols"}, false));
  ASSERT_EQ(limited.status, 0);
  EXPECT_GT(limited.out.size(), 100'000u);
  EXPECT_TRUE(limited.out == direct.out) << "a name, version and flag is answered differently with the limiter";
}

TEST(Symptom, jax_refuses_a_device_whose_capabilities_were_changed) {
  LimitedMachine machine(8 * kGiB);
  EXPECT_EQ(run(symptom(machine, {"attributes"})).out, run(symptom(machine, {"attributes"}, false)).out);
}

TEST(Symptom, memory_shared_between_processes_is_counted_twice) {
  LimitedMachine machine(8 * kGiB);
  Talk owner(symptom(machine, {"share"}));
  owner.line();
  const std::string line = owner.line();
  ASSERT_NE(line.find("handle_code=0"), std::string::npos) << line;
  const std::string handle = line.substr(line.find("handle=") + 7);
  Talk user(symptom(machine, {"open", handle}));
  user.line();
  EXPECT_EQ(user.line(), "open=0");
  EXPECT_EQ(machine.ledger(), 2 * machine.overhead() + 64 * kMiB);
  user.go();
  EXPECT_EQ(user.line(), "close=0");
  EXPECT_EQ(machine.ledger(), 2 * machine.overhead() + 64 * kMiB);
  user.go();
  owner.go();
}

TEST(Symptom, the_limit_shows_not_the_card_and_context_memory_is_booked) {
  LimitedMachine machine(2 * kGiB);
  const auto outcome = run(symptom(machine, {"management"}));
  ASSERT_EQ(outcome.status, 0) << outcome.out;
  EXPECT_EQ(outcome.number("total"), 2 * kGiB);
  EXPECT_EQ(outcome.number("used"), machine.overhead() + 100 * kMiB);
  EXPECT_EQ(outcome.number("free"), 2 * kGiB - machine.overhead() - 100 * kMiB);
  EXPECT_EQ(outcome.number("v2"), 0u);
  EXPECT_EQ(outcome.number("v2_version_kept"), 1u);
  EXPECT_EQ(outcome.number("v2_total"), 2 * kGiB);
  EXPECT_EQ(outcome.value("pids"), outcome.value("own") + ",");
}

TEST(Symptom, tools_see_other_cards_and_other_tenants_processes) {
  LimitedMachine machine(2 * kGiB, "2xh100");
  Talk stranger(symptom(machine, {"take", "1000"}, false));
  stranger.line();
  EXPECT_EQ(stranger.line(), "take=0");
  const auto outcome = run(symptom(machine, {"management"}));
  EXPECT_EQ(outcome.number("count"), 1u);
  EXPECT_EQ(outcome.number("devices"), 1u);
  EXPECT_EQ(outcome.number("handle"), 0u);
  EXPECT_EQ(outcome.number("beyond"), 2u);  // NVML_ERROR_INVALID_ARGUMENT
  EXPECT_EQ(outcome.number("listed"), 1u);
  EXPECT_EQ(outcome.value("pids"), outcome.value("own") + ",");
  EXPECT_EQ(run(symptom(machine, {"management", machine.serial(0)})).number("by_serial"), 0u);
  EXPECT_EQ(run(symptom(machine, {"management", machine.serial(1)})).number("by_serial"), 6u);  // NVML_ERROR_NOT_FOUND
  stranger.go();
}

TEST(Symptom, pids_are_the_hosts_and_match_nothing_in_the_container) {
  LimitedMachine machine(2 * kGiB);
  // The hypervisor says how the host names them. Ours must be known first, so another tenant process stays up.
  Talk tenant(symptom(machine, {"take", "1000"}));
  tenant.line();
  EXPECT_EQ(tenant.line(), "take=0");
  machine.slice().stop_hypervisor();  // which lists every process under the host's own numbers
  contract::GrantPage& grant = machine.slice().grant();
  grant.processes[0].host_pid = static_cast<std::uint32_t>(tenant.pid());
  grant.processes[0].tenant_pid = 7;
  grant.process_count = 1;
  const auto outcome = run(symptom(machine, {"management"}));
  EXPECT_EQ(outcome.value("pids"), "7,");  // the one listed, under its own name; the other is not listed yet
  tenant.go();
}

TEST(Symptom, processes_with_different_visible_devices_are_all_booked_on_card_0) {
  LimitedMachine machine(2 * kGiB, "2xh100");
  // The slice holds the second card.
  const std::string first = machine.uuid(0);
  const std::string second = machine.uuid(1);
  std::strncpy(machine.slice().grant().devices[0].uuid, second.c_str(), contract::kUuidLength - 1);
  const std::vector<std::pair<std::string, std::string>> wanted = {
      {"", second},
      {"CUDA_VISIBLE_DEVICES=0", second},
      {"CUDA_VISIBLE_DEVICES=" + second, second},
      {"CUDA_VISIBLE_DEVICES=" + second.substr(0, 12), second}};
  for (const auto& [variable, uuid] : wanted) {
    Job job = symptom(machine, {"uuid"});
    if (!variable.empty()) job.environment.push_back(variable);
    const auto outcome = run(job);
    EXPECT_EQ(outcome.value("uuid"), uuid) << variable;
    EXPECT_EQ(outcome.value("devices"), "1") << variable;
  }
  // Neither by number nor by name is another tenant's card to be had.
  for (const std::string& variable : {std::string("CUDA_VISIBLE_DEVICES=1"), "CUDA_VISIBLE_DEVICES=" + first}) {
    Job job = symptom(machine, {"uuid"});
    job.environment.push_back(variable);
    const auto outcome = run(job);
    EXPECT_NE(outcome.value("retain"), "0") << variable;
  }
}

TEST(Symptom, an_edited_limit_has_no_effect_on_a_running_program) {
  LimitedMachine machine(2 * kGiB);
  Talk tenant(symptom(machine, {"take", std::to_string(kGiB)}));
  tenant.line();
  EXPECT_EQ(tenant.line(), "take=0");
  machine.slice().grant().devices[0].memory_limit_bytes = 5 * kGiB;
  tenant.go();
  EXPECT_EQ(tenant.line(), "more=0");
  machine.slice().grant().devices[0].memory_limit_bytes = kGiB;
  EXPECT_EQ(run(symptom(machine, {"take", "1000"})).value("retain"), "2");  // even its context has no room
}

TEST(Symptom, the_card_itself_is_full_below_the_limit) {
  LimitedMachine machine(200 * kGiB);  // more than the card has: over-subscription
  Talk tenant(symptom(machine, {"take", std::to_string(70 * kGiB)}));
  tenant.line();
  EXPECT_EQ(tenant.line(), "take=0");
  // The one who asks too much fails with the same code and at once; the other keeps what it has.
  const auto second = run(symptom(machine, {"take", std::to_string(70 * kGiB)}));
  EXPECT_EQ(second.value("take"), "2");
  const auto start = std::chrono::steady_clock::now();  // the second has ended: its slot is returned
  while (machine.ledger() != machine.tenants_real_bytes() &&
         std::chrono::steady_clock::now() - start < std::chrono::seconds(30))
    std::this_thread::yield();
  EXPECT_EQ(machine.ledger(), machine.tenants_real_bytes());
  tenant.go();
  EXPECT_EQ(tenant.line(), "more=2");
}

// Each call of the driver fails once in turn: whatever was reserved for it must come back.
TEST(Symptom, an_allocation_or_free_that_the_driver_fails_stays_booked) {
  for (const char* site : {"cuMemAlloc",
                           "cuMemAllocPitch",
                           "cuMemAllocManaged",
                           "cuMemFree",
                           "cuMemAllocAsync",
                           "cuMemAllocFromPoolAsync",
                           "cuMemFreeAsync",
                           "cuMemPoolCreate",
                           "cuMemPoolDestroy",
                           "cuMemCreate",
                           "cuMemMap",
                           "cuMemUnmap",
                           "cuMemRelease",
                           "cuArrayCreate",
                           "cuArray3DCreate",
                           "cuArrayDestroy",
                           "cuMipmappedArrayCreate",
                           "cuMipmappedArrayDestroy",
                           "cuGraphInstantiate",
                           "cuGraphLaunch",
                           "cuGraphExecDestroy",
                           "cuDeviceGraphMemTrim",
                           "alloc"}) {
    LimitedMachine machine(40 * kGiB);
    Job job = machine.tenant({"steps"});
    job.environment.push_back("TENSOR_FUSION_SIM_FAULT=error=999@" + std::string(site) + ":2");
    Talk tenant(job);
    int states = 0;
    for (std::string line; !(line = tenant.line()).empty(); ++states) {
      EXPECT_EQ(machine.ledger(), machine.tenants_real_bytes()) << site << ": " << line;
      tenant.go();
    }
    EXPECT_GT(states, 1) << site;
  }
}

TEST(Symptom, a_pool_destroyed_with_its_memory_still_out_frees_the_slice) {
  LimitedMachine machine(2 * kGiB);
  Talk tenant(symptom(machine, {"destroy_pool", std::to_string(kGiB + kGiB / 2)}));
  tenant.line();
  ASSERT_EQ(tenant.line(), "taken=0");
  tenant.go();
  ASSERT_EQ(tenant.line(), "destroyed=0");
  EXPECT_EQ(machine.ledger(), machine.tenants_real_bytes());
  tenant.go();
  EXPECT_EQ(tenant.line(), "more=2");
  tenant.go();
}

TEST(Symptom, a_context_that_another_user_still_holds_is_forgotten) {
  LimitedMachine machine(2 * kGiB);
  Talk tenant(symptom(machine, {"attach_context", std::to_string(kGiB + kGiB / 2)}));
  ASSERT_EQ(tenant.line(), "taken=0");
  tenant.go();
  ASSERT_EQ(tenant.line(), "detached=0");
  EXPECT_EQ(machine.ledger(), machine.tenants_real_bytes());
  tenant.go();
  EXPECT_EQ(tenant.line(), "more=2");
  tenant.go();
  ASSERT_EQ(tenant.line(), "ended=0");
  EXPECT_EQ(machine.ledger(), machine.tenants_real_bytes());
  tenant.go();
}

TEST(Symptom, a_thread_without_a_current_context_passes_every_limit) {
  LimitedMachine machine(2 * kGiB);
  machine.slice().grant().devices[0].flags.fetch_and(~static_cast<std::uint32_t>(contract::kComputeUnlimited));
  Talk tenant(symptom(machine, {"without_context", std::to_string(kGiB + kGiB / 2)}));
  tenant.line();
  const std::string taken = tenant.line();
  EXPECT_EQ(machine.ledger(), machine.tenants_real_bytes());
  tenant.go();
  if (taken == "taken=0") {
    EXPECT_EQ(tenant.line(), "more=2");
    tenant.go();
    EXPECT_EQ(tenant.line(), "launched=0");
    EXPECT_EQ(machine.slice().claim().processes[0].devices[0].launches.load(), 1u);
  } else {  // a driver that refuses such a thread altogether leaves nothing booked
    EXPECT_EQ(taken, "taken=201");
    EXPECT_EQ(machine.ledger(), machine.overhead());
    EXPECT_EQ(tenant.line(), "more=201");
    tenant.go();
    EXPECT_EQ(tenant.line(), "launched=201");
  }
  tenant.go();
}

TEST(Symptom, memory_that_a_graph_takes_on_another_card_is_not_booked_there) {
  for (const std::uint64_t asked : {kGiB, 3 * kGiB}) {
    LimitedMachine machine(2 * kGiB, "2xh100", 2);
    const auto& cards = machine.slice().claim().devices;
    Talk tenant(symptom(machine, {"graph_elsewhere", std::to_string(asked)}));
    tenant.line();
    ASSERT_EQ(tenant.line(), "made=0");
    tenant.go();
    EXPECT_EQ(tenant.line(), asked > 2 * kGiB ? "run=2" : "run=0");
    EXPECT_EQ(cards[0].used_bytes.load(), machine.overhead());
    EXPECT_EQ(cards[1].used_bytes.load(), asked > 2 * kGiB ? 0 : asked);
    tenant.go();
    EXPECT_EQ(tenant.line(), "trimmed=0");
    EXPECT_EQ(cards[0].used_bytes.load(), machine.overhead());
    EXPECT_EQ(cards[1].used_bytes.load(), 0u);
    tenant.go();
  }
}

TEST(Symptom, of_several_cards_only_the_first_is_limited) {
  LimitedMachine machine(0, "2xh100", 2);
  for (unsigned card = 0; card < 2; ++card) {
    contract::GrantDevice& device = machine.slice().grant().devices[card];
    device.flags = contract::kComputeUnlimited;
    device.memory_limit_bytes = machine.overhead() + (card + 1) * 100 * kMiB;
  }
  const auto outcome = run(symptom(machine, {"fill_cards", std::to_string(10 * kMiB)}));
  EXPECT_EQ(outcome.value("pieces0"), "10") << outcome.out;
  EXPECT_EQ(outcome.value("pieces1"), "20") << outcome.out;
}

TEST(Symptom, fields_that_tools_show_are_missing) {
  LimitedMachine machine(8 * kGiB);
  const auto ask = [&](bool limited) {
    Job job = machine.tenant({"fields"}, limited);
    job.command[0] = std::string(TF_BUILD_FOLDER) + "/programs/limiter_management";
    return run(job).out;
  };
  const std::string direct = ask(false);
  EXPECT_GT(direct.size(), 500u);
  EXPECT_EQ(ask(true), direct);
}

TEST(Symptom, log_lines_spoil_what_tools_print) {
  LimitedMachine machine(8 * kGiB);
  const auto both_streams = [&](bool limited) {
    Job job = symptom(machine, {"attributes"}, limited);
    job.command = {"/bin/sh", "-c", "exec " + job.command[0] + " attributes 2>&1"};
    return run(job).out;
  };
  EXPECT_EQ(both_streams(true), both_streams(false));
}

TEST(Symptom, functions_without_names_are_asked_for_and_nobody_sees_it) {
  LimitedMachine machine(8 * kGiB);
  Job job = symptom(machine, {"export_table"});
  job.command = {"/bin/sh", "-c", "exec " + job.command[0] + " export_table 2>&1"};
  job.environment.push_back("TENSOR_FUSION_LIMITER_LOG=1");
  const std::string said = run(job).out;
  const std::size_t first = said.find("have no names");
  EXPECT_NE(first, std::string::npos) << said;
  EXPECT_EQ(said.find("have no names", first + 1), std::string::npos) << "once: " << said;
  EXPECT_NE(said.find("table=500"), std::string::npos) << "and the answer is the driver's: " << said;
}

TEST(Symptom, a_program_that_executes_itself_keeps_its_old_memory_charged) {
  LimitedMachine machine(2 * kGiB);
  Talk tenant(symptom(machine, {"take_and_exec", std::to_string(kGiB)}));
  tenant.line();
  EXPECT_EQ(tenant.line(), "before=0");
  tenant.line();
  EXPECT_EQ(tenant.line(), "take=0");
  EXPECT_EQ(machine.slice().claim().process_high.load(), 1u) << "nor does it need another place";
}

TEST(Symptom, a_lookup_past_the_limiter_goes_unnoticed) {
  LimitedMachine machine(8 * kGiB);
  const auto outcome = run(symptom(machine, {"hold_namespace"}));
  EXPECT_EQ(outcome.number("namespace"), 1u);
  EXPECT_NE(machine.slice().claim().processes[0].flags.load() & contract::kFlagNamespace, 0u);
}

TEST(Symptom, a_removed_tenant_goes_on_starting_programs) {
  LimitedMachine machine(8 * kGiB);
  machine.slice().grant().closed = 1;
  EXPECT_EQ(run(symptom(machine, {"take", "1000"})).value("init"), "802");  // CUDA_ERROR_SYSTEM_NOT_READY
}

TEST(Symptom, limits_end_when_the_hypervisor_does) {
  LimitedMachine machine(2 * kGiB);
  machine.slice().stop_hypervisor();
  Talk tenant(symptom(machine, {"take", std::to_string(kGiB)}));
  tenant.line();
  EXPECT_EQ(tenant.line(), "take=0");
  tenant.go();
  EXPECT_EQ(tenant.line(), "more=2");
}

TEST(Symptom, a_tenant_that_scribbles_over_its_pages_crashes_or_gains) {
  LimitedMachine machine(2 * kGiB);
  Talk tenant(machine.tenant({"churn", "3000", "4", "5"}));
  EXPECT_EQ(tenant.line(), "ready");
  tenant.go();
  std::uint64_t seed = 1;
  auto* words = reinterpret_cast<std::uint32_t*>(&machine.slice().claim());
  for (int i = 0; i < 20'000; ++i) {
    seed = seed * 6364136223846793005 + 1442695040888963407;
    const std::size_t at = 4 + (seed >> 33) % ((4096 + 2 * sizeof(contract::ClaimProcess)) / 4 - 4);
    __atomic_store_n(&words[at], static_cast<std::uint32_t>(seed >> 20), __ATOMIC_RELAXED);
    if (i % 100 == 0)
      __atomic_store_n(reinterpret_cast<std::uint32_t*>(&machine.slice().claim().devices[0].lock), 0u,
                       __ATOMIC_RELAXED);
  }
  __atomic_store_n(reinterpret_cast<std::uint32_t*>(&machine.slice().claim().devices[0].lock), 0u, __ATOMIC_RELAXED);
  const std::string line = tenant.line();
  EXPECT_NE(line.find("taken="), std::string::npos) << "it crashed";
  tenant.go();
}

}  // namespace
}  // namespace tensor_fusion::tests
