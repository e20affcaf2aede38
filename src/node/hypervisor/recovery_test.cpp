// A daemon that dies, and the next one.
#include <gtest/gtest.h>
#include <sched.h>

#include "base/id.h"
#include "node/hypervisor/log_shelf.h"
#include "node/hypervisor/state_directory.h"
#include "node/hypervisor/tenant_record.h"
#include "node/hypervisor/test_slice.h"

namespace tensor_fusion::node::hypervisor {
namespace {

using base::Bytes;

TEST(Hypervisor, goes_on_with_its_tenants_after_kill_9) {
  TestDaemon daemon;
  ASSERT_TRUE(daemon.start());
  Slice slice(daemon, request("a", 2 * kTestGi, 3000));
  Child child;
  ASSERT_TRUE(slice.start(child.pid));
  TestProcess process(slice.reply.slice_directory, 12345);
  ASSERT_TRUE(eventually([&] { return daemon.tenant("a")["processes"].size() == 1; }));
  LimitRequest change;
  change.tenant = "a";
  change.vram = Bytes{3 * kTestGi};
  ASSERT_TRUE(slice.client.limit(change));
  const auto identity = system::identity_of(slice.reply.slice_directory + "/grant");
  daemon.kill();
  const std::uint64_t heartbeat = slice.granted().heartbeat_ns.load();
  ASSERT_TRUE(daemon.start());
  EXPECT_EQ(system::identity_of(slice.reply.slice_directory + "/grant"), identity)
      << "the same file, so the same mapping";
  EXPECT_TRUE(eventually([&] { return slice.granted().heartbeat_ns.load() > heartbeat; }))
      << "mapped by tenants from before";
  EXPECT_EQ(slice.granted().devices[0].memory_limit_bytes.load(), 3 * kTestGi);
  EXPECT_EQ(slice.claimed().devices[0].used_bytes.load(), 12345u);
  const auto tenant = daemon.tenant("a");
  EXPECT_EQ(tenant["state"].as_string(), "running");
  EXPECT_TRUE(eventually([&] { return daemon.tenant("a")["processes"].size() == 1; }));
  EXPECT_EQ(daemon.client().run(request("big", kTestGi, 9999)).value().devices[0].uuid, "GPU-0001")
      << "its share is still taken";
  process.kill();
  EXPECT_TRUE(eventually([&] { return slice.claimed().devices[0].used_bytes.load() == 0; }));
  child.end();
  EXPECT_TRUE(eventually([&] { return daemon.tenant("a").is_null(); }));
}

TEST(Hypervisor, gives_another_slice_to_a_run_that_heard_nothing_of_its_first) {
  TestDaemon daemon;
  ASSERT_TRUE(daemon.start());
  RunRequest asked = request("a", 60 * kTestGi);
  asked.gpu = "0";
  asked.token = "1-2";
  Client first = daemon.client();  // what it is answered comes too late
  const auto unheard = first.run(asked);
  ASSERT_TRUE(unheard);
  daemon.kill();
  ASSERT_TRUE(daemon.start());
  Client next = daemon.client();
  RunRequest other = asked;
  other.token = "3-4";
  EXPECT_EQ(next.run(other).error().code, base::ErrorCode::kAlreadyExists) << "another run of the same name";
  const auto heard = next.run(asked);
  ASSERT_TRUE(heard) << heard.error().message;
  EXPECT_NE(heard->id, unheard->id);
  EXPECT_EQ(next.list().value()["tenants"].size(), 1u);
}

TEST(Hypervisor, keeps_the_newest_logs_and_what_it_has_learned) {
  TestDaemon daemon;
  ASSERT_TRUE(daemon.start());
  Slice slice(daemon, request("a"));
  TestProcess process(slice.reply.slice_directory, 100 << 20);
  ASSERT_TRUE(slice.start(process.pid()));
  daemon.world("process " + std::to_string(process.pid()) + " GPU-0000 " + std::to_string(400ull << 20) + " 30\n");
  ASSERT_TRUE(eventually([&] { return slice.granted().devices[0].context_overhead_bytes.load() == 300u << 20; }));
  daemon.kill();
  for (std::size_t i = 0; i < ShelfBounds{}.user_files + 5; ++i)
    ASSERT_TRUE(system::replace_file(daemon.state() + "/logs/" + base::short_id(1000 + i) + ".log", "x"));
  slice.claimed().processes[process.slot()].devices[0].ledger_bytes.store(
      400 << 20);  // as a limiter that counts its context
  slice.claimed().devices[0].used_bytes.store(400 << 20);
  ASSERT_TRUE(daemon.start());
  EXPECT_TRUE(
      eventually([&] { return system::list_directory(daemon.state() + "/logs").size() == ShelfBounds{}.user_files; }));
  EXPECT_TRUE(eventually([&] {
    return daemon.client().devices().value()["devices"].at(0)["context_overhead_bytes"].as_uint() == 300u << 20;
  }));
}

TEST(Hypervisor, reclaims_who_died_while_it_was_away) {
  TestDaemon daemon;
  ASSERT_TRUE(daemon.start());
  Slice gone(daemon, request("gone")), kept(daemon, request("kept"));
  Child first, second;
  ASSERT_TRUE(gone.start(first.pid));
  ASSERT_TRUE(kept.start(second.pid));
  TestProcess process(kept.reply.slice_directory, 777);
  daemon.kill();
  process.kill();
  first.end();
  ASSERT_TRUE(daemon.start());
  EXPECT_TRUE(eventually([&] { return daemon.tenant("gone").is_null(); }));
  EXPECT_TRUE(eventually([&] { return kept.claimed().devices[0].used_bytes.load() == 0; }));
  EXPECT_FALSE(daemon.tenant("kept").is_null());
}

// While none runs nobody keeps the namespace of a slice, and the kernel gives its number to the next.
TEST(Hypervisor, takes_no_stranger_for_a_slices_process_by_the_number_of_a_namespace) {
  TestDaemon daemon;
  ASSERT_TRUE(daemon.start());
  Slice slice(daemon, request("a"));
  Child child;
  ASSERT_TRUE(slice.start(child.pid));
  daemon.kill();
  const Program stranger("stranger", [] {
    if (::unshare(CLONE_NEWNS) != 0) std::_Exit(77);
  });
  const std::uint64_t number = system::namespace_inode(stranger.pid, "mnt");
  if (number == 0 || number == system::namespace_inode(::getpid(), "mnt"))
    GTEST_SKIP() << "no mount namespace can be made here";
  const std::string file = daemon.state() + "/records/" + slice.reply.id + ".json";
  auto record = load_record(file);
  ASSERT_TRUE(record);
  record->mount_namespace = number;
  ASSERT_TRUE(save_record(file, *record));
  child.end();
  ASSERT_TRUE(daemon.start());
  EXPECT_TRUE(eventually([&] { return daemon.tenant("a").is_null(); }));
  EXPECT_EQ(::kill(stranger.pid, 0), 0);
}

TEST(Hypervisor, never_ends_tenants_with_itself) {
  TestDaemon daemon;
  ASSERT_TRUE(daemon.start());
  Slice slice(daemon, request("a"));
  Child child;
  ASSERT_TRUE(slice.start(child.pid));
  daemon.kill(SIGTERM);
  EXPECT_EQ(::kill(child.pid, 0), 0);
  EXPECT_EQ(slice.granted().closed.load(), 0u);
  ASSERT_TRUE(daemon.start());
  EXPECT_EQ(daemon.tenant("a")["state"].as_string(), "running");
}

TEST(Hypervisor, takes_limits_from_the_grant_page_when_a_record_is_torn) {
  TestDaemon daemon;
  ASSERT_TRUE(daemon.start());
  Slice slice(daemon, request("a", 2 * kTestGi, 3000));
  Child child;
  ASSERT_TRUE(slice.start(child.pid));
  TestProcess process(slice.reply.slice_directory, 1);
  daemon.kill();
  const std::string record = daemon.state() + "/records/" + slice.reply.id + ".json";
  const std::string whole = system::read_file(record).value();
  for (const std::string& torn : {whole.substr(0, whole.size() / 2), std::string(), std::string("\0\0\0", 3),
                                  std::string("{\"format\":1}"), std::string("[]")}) {
    ASSERT_TRUE(system::replace_file(record, torn));
    ASSERT_TRUE(daemon.start());
    const auto tenant = daemon.tenant("a");
    EXPECT_EQ(tenant["devices"].at(0)["memory_limit_bytes"].as_uint(), 2 * kTestGi) << torn;
    EXPECT_EQ(tenant["devices"].at(0)["limit_share"].as_uint(), 3000u);
    EXPECT_TRUE(daemon.has_event("recovered", "grant page"));
    daemon.kill();
  }
}

// A program of a slice without a view of its own, as `run` starts one there. It has not been on the GPU.
struct Program {
  explicit Program(const std::string& slice, uid_t user = ::geteuid()) : pid(::fork()) {
    if (pid != 0) {
      const std::string file = "/proc/" + std::to_string(pid) + "/environ";
      EXPECT_TRUE(eventually([&] { return system::read_file(file).value_or("").find(slice) != std::string::npos; }))
          << "it executes the program";
      return;
    }
    if (user != ::geteuid() && ::setuid(user) != 0) std::_Exit(1);
    const std::string variable = std::string(contract::kSliceVariable) + "=" + slice;
    const char* const environment[] = {variable.c_str(), nullptr};
    ::execle("/bin/sleep", "sleep", "1000", nullptr, environment);
    std::_Exit(1);
  }
  ~Program() {
    ::kill(pid, SIGKILL);
    ::waitpid(pid, nullptr, 0);
  }
  bool is_alive() const { return ::waitpid(pid, nullptr, WNOHANG) == 0; }
  pid_t pid;
};

class Lost : public ::testing::TestWithParam<const char*> {};
INSTANTIATE_TEST_SUITE_P(Records, Lost, ::testing::Values("each", "folder", "mixed"),
                         [](const auto& one) { return std::string(one.param); });

// Limits, placement and whose it is stand in the pages and in what lives; only the command may be another's word.
TEST_P(Lost, records_of_slices_that_live_are_made_again) {
  TestDaemon daemon;
  ASSERT_TRUE(daemon.start());
  Slice works(daemon, request("works", 2 * kTestGi, 3000)), waits(daemon, request("waits", 3 * kTestGi, 2000));
  Slice gone(daemon, request("gone")), unnamed(daemon, request("unnamed"));
  Child child, short_lived;
  Program program(waits.reply.slice_directory), other(unnamed.reply.slice_directory);
  ASSERT_TRUE(works.start(child.pid));
  ASSERT_TRUE(waits.start(program.pid));
  ASSERT_TRUE(gone.start(short_lived.pid));
  ASSERT_TRUE(unnamed.start(other.pid));
  TestProcess process(works.reply.slice_directory, 12345);
  daemon.kill();
  short_lived.end();
  system::MappedPage::attach(unnamed.reply.slice_directory + "/grant", sizeof(contract::GrantPage), true)
      ->as<contract::GrantPage>()
      ->tenant[0] = '\0';
  const std::string records = daemon.state() + "/records", how = GetParam();
  if (how == "mixed") {  // each in the place of another
    const std::string kept = *system::read_file(records + "/" + works.reply.id + ".json");
    for (const Slice* slice : {&waits, &gone, &unnamed})
      ASSERT_TRUE(system::replace_file(records + "/" + slice->reply.id + ".json", kept));
  } else if (how == "folder") {
    ASSERT_TRUE(system::remove_tree(records));
  } else {
    for (const std::string& name : system::list_directory(records))
      ASSERT_EQ(::unlink((records + "/" + name).c_str()), 0);
  }
  for (int start = 0; start < 2; ++start) {  // and once they are made, they are there
    ASSERT_TRUE(daemon.start());
    EXPECT_EQ(daemon.tenant("works")["devices"].at(0)["memory_limit_bytes"].as_uint(), 2 * kTestGi);
    EXPECT_EQ(daemon.tenant("works")["devices"].at(0)["limit_share"].as_uint(), 3000u);
    EXPECT_TRUE(eventually([&] { return daemon.tenant("works")["processes"].size() == 1; }));
    EXPECT_EQ(daemon.tenant("waits")["devices"].at(0)["memory_limit_bytes"].as_uint(), 3 * kTestGi);
    EXPECT_EQ(daemon.tenant("waits")["state"].as_string(), "running");
    EXPECT_EQ(daemon.tenant("waits")["pid"].as_int(), program.pid);
    EXPECT_FALSE(daemon.tenant(unnamed.reply.id).is_null()) << "what can't be known is named by its id";
    EXPECT_TRUE(eventually([&] { return daemon.tenant("gone").is_null(); })) << "nothing of it lives";
    EXPECT_TRUE(daemon.has_event("recovered", "grant page"));
    EXPECT_FALSE(load_record(records + "/" + waits.reply.id + ".json")->ends_unlimited)
        << "what its run allowed is not known any more";
    if (start == 0) daemon.kill();
  }
  EXPECT_EQ(works.granted().closed.load(), 0u);
  EXPECT_FALSE(system::exists(gone.reply.slice_directory));
  LimitRequest change;
  change.tenant = "waits";
  change.vram = Bytes{4 * kTestGi};
  ASSERT_TRUE(daemon.client().limit(change));
  EXPECT_EQ(waits.granted().devices[0].limit_share.load(), 2000u) << "and keeps what was not changed";
  ASSERT_TRUE(daemon.client().kill("waits", SIGKILL));
  EXPECT_TRUE(eventually([&] { return !program.is_alive(); }));
  EXPECT_TRUE(eventually([&] { return daemon.tenant("waits").is_null(); }));
}

// A process that is older than the slice's first, in a namespace of its own, whose /run/tensor-fusion/slice is made to
// show the slice's directory.
struct Pretender {
  Pretender(const std::string& make, uid_t user) {
    int ready[2];
    if (::pipe(ready) != 0) std::abort();
    pid = ::fork();
    if (pid == 0) {
      const std::string run =
          "mount --make-rprivate / && mount -t tmpfs none /run && mkdir /run/tensor-fusion && cd /run/tensor-fusion "
          "&& ";
      if (::unshare(CLONE_NEWNS) != 0 || std::system((run + make).c_str()) != 0) std::_Exit(77);
      if (::setgid(user) != 0 || ::setuid(user) != 0 || ::write(ready[1], "x", 1) != 1) std::_Exit(77);
      for (;;) ::pause();
    }
    ::close(ready[1]);
    char word = 0;
    can_be = ::read(ready[0], &word, 1) == 1;
    ::close(ready[0]);
  }
  ~Pretender() {
    ::kill(pid, SIGKILL);
    ::waitpid(pid, nullptr, 0);
  }
  pid_t pid = -1;
  bool can_be = false;
};

TEST(LostRecord, is_made_again_for_nobody_who_shows_anothers_slice_in_a_view_of_its_own) {
  if (::geteuid() != 0) GTEST_SKIP() << "only root can make such views here";
  TestDaemon daemon;
  ASSERT_TRUE(daemon.start());
  Slice slice(daemon, request("a"));
  const std::string& folder = slice.reply.slice_directory;
  const Pretender linked("ln -s " + folder + " slice", ::geteuid());
  const Pretender of_others("mkdir slice && mount --bind " + folder + " slice", 54321);
  if (!linked.can_be || !of_others.can_be) GTEST_SKIP() << "no view can be made here";
  Program program(folder);
  ASSERT_TRUE(slice.start(program.pid));
  daemon.kill();
  ASSERT_EQ(::unlink((daemon.state() + "/records/" + slice.reply.id + ".json").c_str()), 0);
  ASSERT_TRUE(daemon.start());
  EXPECT_EQ(daemon.tenant("a")["pid"].as_int(), program.pid);
}

TEST(LostRecord, is_made_again_for_the_user_who_is_let_into_the_slices_folder) {
  if (::geteuid() != 0) GTEST_SKIP() << "only root has slices of others";
  constexpr uid_t kUser = 54321;
  TestDaemon daemon;
  ASSERT_TRUE(daemon.start());
  Slice slice(daemon, request("a"));
  if (!system::let_user_in(slice.reply.slice_directory, kUser).value_or(false))
    GTEST_SKIP() << "this file system keeps no lists of users";
  Program of_another(slice.reply.slice_directory), program(slice.reply.slice_directory, kUser);
  ASSERT_TRUE(slice.start(program.pid));
  daemon.kill();
  ASSERT_EQ(::unlink((daemon.state() + "/records/" + slice.reply.id + ".json").c_str()), 0);
  ASSERT_TRUE(daemon.start());
  EXPECT_EQ(daemon.tenant("a")["pid"].as_int(), program.pid);
}

TEST(Hypervisor, ignores_what_is_not_its_own_in_the_state_directory) {
  TestDaemon daemon;
  ASSERT_TRUE(daemon.start());
  daemon.kill();
  ASSERT_TRUE(system::replace_file(daemon.state() + "/records/xxxxxx.json",
                                   "{\"format\":1,\"id\":\"xxxxxx\",\"name\":\"x\",\"devices\":[{}]}"));
  ASSERT_TRUE(system::replace_file(daemon.state() + "/records/haaaaf.json.new.1.2", "{"));
  ASSERT_TRUE(system::make_directories(daemon.state() + "/tenants/strays"));
  ASSERT_TRUE(daemon.start());
  EXPECT_EQ(daemon.client().list().value()["tenants"].size(), 0u);
  EXPECT_FALSE(system::exists(daemon.state() + "/tenants/strays"));
  EXPECT_EQ(system::list_directory(daemon.state() + "/records").size(), 0u);
}

// Somebody's folder that an earlier version took for its own, or files that were put there since.
TEST(Hypervisor, removes_nothing_that_it_has_not_made) {
  TestDaemon daemon;
  ASSERT_TRUE(daemon.start());
  daemon.kill();
  const std::string state = daemon.state();
  const std::vector<std::string> theirs = {
      "/records/customers.csv",   "/records/customers.json", "/records/backup.csv", "/tenants/acme/db/deep/data.sql",
      "/tenants/backup/data.sql", "/pages/book.grant",       "/logs/httpd.log"};
  for (const std::string& file : theirs) {
    ASSERT_TRUE(system::make_directories(std::filesystem::path(state + file).parent_path()));
    ASSERT_TRUE(system::replace_file(state + file, "theirs"));
  }
  for (int more = 0; more < 70; ++more)  // more than are kept of logs of ours
    ASSERT_TRUE(system::replace_file(state + "/logs/web-" + std::to_string(more) + ".log", "theirs"));
  ASSERT_TRUE(daemon.start());
  EXPECT_EQ(daemon.client().list().value()["tenants"].size(), 0u);
  for (const std::string& file : theirs) EXPECT_EQ(system::read_file(state + file).value_or("gone"), "theirs") << file;
  EXPECT_EQ(system::list_directory(state + "/logs").size(), 71u);
}

// Else it would be taken for started for ever, and be nobody's to end.
TEST(Hypervisor, has_not_started_a_slice_whose_record_could_not_be_saved) {
  TestDaemon daemon;
  ASSERT_TRUE(daemon.start());
  Slice slice(daemon, request("a"));
  const std::string record = daemon.state() + "/records/" + slice.reply.id + ".json";
  Child child;
  std::filesystem::remove(record);
  ASSERT_TRUE(std::filesystem::create_directory(record));
  EXPECT_FALSE(slice.client.started(slice.reply.id, child.pid));
  ASSERT_TRUE(std::filesystem::remove(record));
  EXPECT_TRUE(slice.client.started(slice.reply.id, child.pid));
  child.end();
  EXPECT_TRUE(eventually([&] { return daemon.tenant("a")["name"].as_string().empty(); }));
}

}  // namespace
}  // namespace tensor_fusion::node::hypervisor
