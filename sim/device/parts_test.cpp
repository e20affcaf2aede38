// Arena, faults, health, MIG and descriptions.
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include <cstring>
#include <fstream>

#include "sim/device/arena.h"
#include "sim/device/description.h"
#include "sim/device/faults.h"
#include "sim/device/health.h"
#include "sim/device/memory.h"
#include "sim/device/mig.h"
#include "sim/device/test_machine.h"

namespace tensor_fusion::sim::device {
namespace {

TEST(Arena, gives_back_zeroed_memory_after_a_decommit) {
  auto arena = Arena::reserve(std::size_t{64} << 30);
  ASSERT_TRUE(arena) << arena.error().message;
  ASSERT_TRUE(arena->commit(1 << 20, 1 << 20));
  arena->base()[1 << 20] = std::byte{7};
  struct stat info{};
  ASSERT_EQ(::fstat(arena->fd(), &info), 0);
  EXPECT_GT(info.st_blocks, 0);
  ASSERT_TRUE(arena->decommit(1 << 20, 1 << 20));
  ASSERT_EQ(::fstat(arena->fd(), &info), 0);
  EXPECT_EQ(info.st_blocks, 0);
  ASSERT_TRUE(arena->commit(1 << 20, 1 << 20));
  EXPECT_EQ(arena->base()[1 << 20], std::byte{0});
  EXPECT_FALSE(arena->commit(arena->size(), kArenaPage));
  EXPECT_FALSE(arena->commit(1, kArenaPage));
}

TEST(Arena, can_be_mapped_by_another_process) {
  auto arena = Arena::reserve(std::size_t{1} << 30);
  ASSERT_TRUE(arena);
  ASSERT_TRUE(arena->commit(0, 1 << 16));
  std::memcpy(arena->base(), "from the parent", 16);
  const auto parent = static_cast<std::uint32_t>(::getpid());
  const int code = join_child(start_child([&] {
    auto fd = open_foreign(parent, arena->fd());
    if (!fd) return 1;
    auto at = reserve_addresses(1 << 16, 1 << 16);
    if (!at || !map_at(*at, 1 << 16, *fd, 0) || !protect(*at, 1 << 16, Access::read_write)) return 2;
    if (std::memcmp(*at, "from the parent", 16) != 0) return 3;
    std::memcpy(*at, "from the child ", 16);
    return 0;
  }));
  EXPECT_EQ(code, 0);
  EXPECT_STREQ(reinterpret_cast<const char*>(arena->base()), "from the child ");
}

TEST(Arena, maps_physical_memory_twice_as_the_same_bytes) {
  auto physical = Physical::create(2 << 20);
  ASSERT_TRUE(physical);
  auto a = reserve_addresses(4 << 20, 2 << 20);
  ASSERT_TRUE(a);
  ASSERT_TRUE(map_at(*a, 2 << 20, physical->fd(), 0));
  ASSERT_TRUE(map_at(*a + (2 << 20), 2 << 20, physical->fd(), 0));
  ASSERT_TRUE(protect(*a, 4 << 20, Access::read_write));
  (*a)[5] = std::byte{9};
  EXPECT_EQ((*a)[(2 << 20) + 5], std::byte{9});
  ASSERT_TRUE(unmap_at(*a, 4 << 20));
  free_addresses(*a, 4 << 20);
}

TEST(Faults, hit_the_call_that_the_rule_names) {
  const TestDirectory directory;
  ASSERT_EQ(configure_faults("oom@alloc:2, error=700@cuLaunchKernel:3+", directory.path()), "");
  EXPECT_FALSE(fault_at("cuMemAlloc", "alloc"));
  EXPECT_EQ(fault_at("cuMemAllocPitch", "alloc").kind, FaultKind::oom);
  EXPECT_FALSE(fault_at("cuMemAlloc", "alloc"));
  EXPECT_FALSE(fault_at("cuLaunchKernel", "launch"));
  EXPECT_FALSE(fault_at("cuLaunchKernel", "launch"));
  EXPECT_EQ(fault_at("cuLaunchKernel", "launch").code, 700u);
  EXPECT_EQ(fault_at("cuLaunchKernel", "launch").code, 700u);
  EXPECT_EQ(configure_faults("", directory.path()), "");
  EXPECT_FALSE(fault_at("cuLaunchKernel", "launch"));
}

TEST(Faults, say_what_is_wrong_with_a_rule) {
  const TestDirectory directory;
  for (const char* text : {"oom", "oom@", "oom@alloc:0", "oom@alloc:x", "boom@alloc", "xid@launch", "lost=x",
                           "slow_copy=0", "oom@a;uid=3"}) {
    EXPECT_NE(configure_faults(text, directory.path()), "") << text;
  }
  EXPECT_EQ(configure_faults("", directory.path()), "");
}

TEST(Faults, refuse_a_call_that_no_driver_has_and_name_the_nearest) {
  const TestDirectory directory;
  EXPECT_EQ(configure_faults("oom@cuMemAlocc:3", directory.path()),
            "TENSOR_FUSION_SIM_FAULT: fault rule 'oom@cuMemAlocc:3': the driver has no call 'cuMemAlocc'; did you mean "
            "cuMemAlloc?");
  EXPECT_NE(configure_faults("hang@cuMemAlloc_v2", directory.path()).find("without its version; write cuMemAlloc"),
            std::string::npos);
  EXPECT_NE(configure_faults("error=700@launhc", directory.path()).find("did you mean launch?"), std::string::npos);
  EXPECT_NE(configure_faults("xid=79@x", directory.path()).find("alloc, launch, copy, sync or any"), std::string::npos);
  {
    std::ofstream(directory.path() + "/faults") << "slow_copy=10\noom@cuMemAlocc\n";
  }
  auto machine = directory.attach("tiny");
  ASSERT_FALSE(machine);
  EXPECT_NE(machine.error().message.find("/faults: fault rule 'oom@cuMemAlocc'"), std::string::npos);
  EXPECT_EQ(slow_copy_factor(), 1);
  ASSERT_EQ(::unlink((directory.path() + "/faults").c_str()), 0);
  EXPECT_EQ(configure_faults("", directory.path()), "");
}

TEST(Faults, refuse_a_card_that_the_machine_does_not_have) {
  const TestDirectory directory;
  EXPECT_EQ(configure_faults("lost=9", directory.path()), "");
  EXPECT_EQ(check_fault_cards(1),
            "TENSOR_FUSION_SIM_FAULT: fault rule 'lost=9': there is no such card; this machine has one, 0");
  EXPECT_EQ(check_fault_cards(10), "");
  EXPECT_EQ(configure_faults("", directory.path()), "");
  {
    std::ofstream(directory.path() + "/faults") << "lost=2\n";
  }
  auto machine = directory.attach("2xtiny");
  ASSERT_FALSE(machine);
  EXPECT_NE(
      machine.error().message.find("/faults: fault rule 'lost=2': there is no such card; this machine has 2, 0 to 1"),
      std::string::npos)
      << machine.error().message;
  ASSERT_EQ(::unlink((directory.path() + "/faults").c_str()), 0);
  EXPECT_TRUE(directory.attach("2xtiny")) << "what was refused holds nothing of the machine";
}

TEST(Faults, of_the_file_come_and_go_with_it) {
  const TestDirectory directory;
  {
    std::ofstream(directory.path() + "/faults") << "# a comment\nlost=1\nslow_copy=10\noom@alloc;pid=1\n";
  }
  ASSERT_EQ(configure_faults("", directory.path()), "");
  EXPECT_TRUE(fault_lost(1));
  EXPECT_FALSE(fault_lost(0));
  EXPECT_EQ(slow_copy_factor(), 10);
  EXPECT_FALSE(fault_at("cuMemAlloc", "alloc"));  // meant for another process
  ASSERT_EQ(::unlink((directory.path() + "/faults").c_str()), 0);
  ASSERT_EQ(configure_faults("", directory.path()), "");
  EXPECT_FALSE(fault_lost(1));
}

TEST(Health, tells_every_process_of_an_xid) {
  const TestDirectory directory;
  auto machine = directory.attach("2xtiny");
  ASSERT_TRUE(machine);
  const pid_t child = start_child([&] {
    auto mine = directory.attach("");
    if (!mine || !wait_health_event(**mine, {0, 0}, 20'000)) return 1;
    const auto events = health_events(**mine, 1, 0);
    return events.size() == 1 && events[0].xid == 79 && events[0].pid == 42 ? 0 : 2;
  });
  report_xid(**machine, 1, 79, 42);
  EXPECT_EQ(join_child(child), 0);
  EXPECT_FALSE(wait_health_event(**machine, {0, 1}, 5));
  for (int i = 0; i < 100; ++i) report_xid(**machine, 0, 31, 0);
  EXPECT_EQ(health_events(**machine, 0, 0).size(), 64u);
}

TEST(Mig, cuts_a_card_and_puts_it_together_again) {
  const TestDirectory directory;
  auto made = directory.attach("a100-40g,tiny");
  ASSERT_TRUE(made);
  Machine& machine = **made;
  EXPECT_EQ(set_mig(machine, 1, true).error().code, Errc::not_supported);
  EXPECT_EQ(create_gpu_instance(machine, 0, 19).error().code, Errc::not_supported);
  ASSERT_TRUE(set_mig(machine, 0, true));
  EXPECT_TRUE(machine.engines_of(0).empty());
  EXPECT_EQ(free_placements(machine, 0, 19).size(), 7u);
  auto four = create_gpu_instance(machine, 0, 5);
  ASSERT_TRUE(four) << four.error().message;
  EXPECT_EQ(four->start, 0u);
  auto one = create_gpu_instance(machine, 0, 19, 5);
  ASSERT_TRUE(one);
  EXPECT_EQ(one->start, 5u);
  EXPECT_EQ(create_gpu_instance(machine, 0, 19, 5).error().code, Errc::exhausted);
  EXPECT_EQ(create_gpu_instance(machine, 0, 9, 1).error().code, Errc::invalid);
  EXPECT_EQ(create_gpu_instance(machine, 0, 9, 4).error().code, Errc::exhausted);
  EXPECT_EQ(create_gpu_instance(machine, 0, 77).error().code, Errc::invalid);
  auto compute = create_compute_instance(machine, 0, one->id, 1);
  ASSERT_TRUE(compute) << compute.error().message;
  EXPECT_EQ(create_compute_instance(machine, 0, one->id, 1).error().code, Errc::exhausted);
  auto half = create_compute_instance(machine, 0, four->id, 2);
  ASSERT_TRUE(half);
  const auto engines = machine.visible_engines();
  ASSERT_EQ(engines.size(), 3u);
  EXPECT_STREQ(engines[0].name, "NVIDIA A100-SXM4-40GB MIG 1g.5gb");
  EXPECT_STREQ(engines[1].name, "NVIDIA A100-SXM4-40GB MIG 2c.4g.20gb");
  EXPECT_EQ(engines[1].sm_count, 28u);
  EXPECT_EQ(std::string(engines[0].uuid).substr(0, 4), "MIG-");
  EXPECT_STRNE(engines[0].uuid, engines[1].uuid);
  ASSERT_EQ(::unlink((directory.path() + "/" + engines[0].file).c_str()), 0);
  EXPECT_EQ(machine.visible_engines().size(), 2u);

  EXPECT_EQ(destroy_gpu_instance(machine, 0, four->id).error().code, Errc::in_use);
  {
    auto context = Context::create(machine, half->engine);
    ASSERT_TRUE(context) << context.error().message;
    EXPECT_EQ(destroy_compute_instance(machine, 0, four->id, half->id).error().code, Errc::in_use);
    EXPECT_EQ(memory_info(machine, four->memory_domain).capacity_bytes,
              machine.device(0).profile.mig_profiles[5].memory_bytes);
    const Ticket t = context->submit(0, {.kind = WorkKind::compute, .duration_ns = 50'000});
    EXPECT_TRUE(context->wait(t));
  }
  EXPECT_EQ(set_mig(machine, 0, false).error().code, Errc::in_use);
  ASSERT_TRUE(destroy_compute_instance(machine, 0, four->id, half->id));
  ASSERT_TRUE(destroy_compute_instance(machine, 0, one->id, compute->id));
  ASSERT_TRUE(destroy_gpu_instance(machine, 0, four->id));
  ASSERT_TRUE(destroy_gpu_instance(machine, 0, one->id));
  EXPECT_EQ(destroy_gpu_instance(machine, 0, one->id).error().code, Errc::not_found);
  ASSERT_TRUE(set_mig(machine, 0, false));
  EXPECT_EQ(machine.engines_of(0).size(), 1u);
}

TEST(Mig, stays_when_the_process_that_cut_it_is_gone) {
  const TestDirectory directory;
  ASSERT_EQ(join_child(start_child([&] {
              auto m = directory.attach("a100-40g");
              if (!m || !set_mig(**m, 0, true)) return 1;
              auto gi = create_gpu_instance(**m, 0, 0);
              return gi && create_compute_instance(**m, 0, gi->id, 7) ? 0 : 2;
            })),
            0);
  auto machine = directory.attach("a100-40g");
  ASSERT_TRUE(machine);
  EXPECT_EQ((*machine)->visible_engines().size(), 1u);
}

TEST(Description, reads_lists_and_overrides) {
  auto d = parse_list_description("h100,2xt4;switch_us=100;speed=2");
  ASSERT_TRUE(d) << d.error().message;
  ASSERT_EQ(d->devices.size(), 3u);
  EXPECT_STREQ(d->devices[2].profile.key, "t4");
  EXPECT_EQ(d->devices[2].profile.switch_us, 100);
  EXPECT_EQ(d->devices[0].profile.speed, 2);
  EXPECT_STRNE(d->devices[1].uuid, d->devices[2].uuid);
  EXPECT_EQ(std::string(d->devices[0].uuid).size(), 40u);
}

TEST(Description, refuses_what_it_does_not_know_with_a_hint) {
  for (const auto& [text, hint] :
       std::initializer_list<std::pair<const char*, const char*>>{{"h1000", "the cards are h100"},
                                                                  {"0xh100", "1 to 16"},
                                                                  {"17xh100", "1 to 16"},
                                                                  {"", "path of a YAML file"},
                                                                  {"h100;sped=2", "did you mean 'speed'"},
                                                                  {"h100;speed=fast", "not a number"},
                                                                  {"h100;memory=0", "16 MiB or more"},
                                                                  {"h100;slice_us=0", "outside"}}) {
    auto d = parse_list_description(text);
    ASSERT_FALSE(d) << text;
    EXPECT_NE(d.error().message.find(hint), std::string::npos) << d.error().message;
  }
}

TEST(Description, tells_a_folder_from_a_machine_file) {
  const auto d = read_description("/tmp/");
  ASSERT_FALSE(d);
  EXPECT_NE(d.error().message.find("'/tmp/' is a folder"), std::string::npos) << d.error().message;
}

TEST(Description, reads_yaml_with_profiles_of_its_own) {
  auto d = parse_yaml_description(R"(
driver: "575.57.08"
cuda: 12.9
defaults: {slice_us: 1000}
profiles:
  big: {base: h200, memory: 200Gi, name: "Big One"}
devices:
  - {profile: big, count: 2, numa: 1}
  - {profile: tiny, switch_us: 7}
)");
  ASSERT_TRUE(d) << d.error().message;
  ASSERT_EQ(d->devices.size(), 3u);
  EXPECT_EQ(d->cuda_version, 12090u);
  EXPECT_EQ(d->devices[1].profile.memory_bytes, std::uint64_t{200} << 30);
  EXPECT_EQ(d->devices[1].numa_node, 1);
  EXPECT_EQ(d->devices[2].profile.slice_us, 1000);
  EXPECT_EQ(d->devices[2].profile.switch_us, 7);
  for (const char* bad : {"[]", "devices: []", "devices: [{count: 2}]", "devices: [{profile: x}]",
                          "devices: [{profile: t4, memry: 1}]", "extra: 1\ndevices: [{profile: t4}]",
                          "devices: [{profile: t4, memory: [1]}]", "a: [", "devices: [{profile: t4, count: 1.5}]"}) {
    EXPECT_FALSE(parse_yaml_description(bad)) << bad;
  }
}

}  // namespace
}  // namespace tensor_fusion::sim::device
