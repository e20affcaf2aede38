#include "node/hypervisor/protocol.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>

#include "node/hypervisor/event_ring.h"
#include "node/hypervisor/tenant_record.h"
#include "system/scratch_directory.h"

namespace tensor_fusion::node::hypervisor {
namespace {

TEST(Protocol, carries_requests_without_loss) {
  RunRequest request;
  request.name = "a";
  request.command = "python \"x\"\n";
  request.vram = base::Bytes{1234567891};
  request.compute = base::Tflops{0.0001234567};
  request.compute_request = base::Percent{1234};
  request.gpus = 3;
  request.gpu = "0,2";
  request.qos = "high";
  request.wait_ms = 5;
  request.tells = true;
  const auto back = run_request_from(base::Json::parse(to_json(request).dump()).value());
  ASSERT_TRUE(back) << back.error().message;
  EXPECT_EQ(back->vram, request.vram);
  EXPECT_EQ(back->compute, request.compute);
  EXPECT_EQ(back->compute_request, request.compute_request);
  EXPECT_EQ(back->command, request.command);
  EXPECT_EQ(back->gpu, request.gpu);
  EXPECT_EQ(back->gpus, 3u);
}

TEST(Protocol, carries_replies_and_errors) {
  RunReply reply;
  reply.id = "x";
  reply.slice_directory = "/s";
  reply.devices.push_back({"GPU-1", 1, "m", 5, 6, 7, {"/dev/nvidia1"}});
  reply.envs = {{"A", "b"}};
  const auto back = run_reply_from(base::Json::parse(to_json(reply).dump()).value());
  ASSERT_TRUE(back);
  EXPECT_EQ(back->devices[0].device_files, reply.devices[0].device_files);
  EXPECT_EQ(back->envs, reply.envs);
  const auto error = run_reply_from(error_reply({base::ErrorCode::kNoCapacity, "none"}, {"GPU 0: full"}));
  ASSERT_FALSE(error);
  EXPECT_EQ(error.error().code, base::ErrorCode::kNoCapacity);
  EXPECT_EQ(error.error().message, "none\n  GPU 0: full");
}

TEST(TenantRecord, is_read_by_what_a_newer_version_has_in_common) {
  TenantRecord record;
  record.id = record.name = "a";
  record.devices.push_back({"GPU-1", 0, "m", 100, 50, 10, 20});
  base::Json json = to_json(record);
  json.set("format", 7).set("something_new", base::Json::array());
  EXPECT_TRUE(tenant_record_from(json));
  json.set("devices", base::Json::array());
  EXPECT_FALSE(tenant_record_from(json));
}

TEST(TenantRecord, of_a_version_that_did_not_say_what_was_allowed_has_nobody_ended) {
  TenantRecord record;
  record.id = record.name = "a";
  record.devices.push_back({"GPU-1", 0, "m", 100, 50, 10, 20});
  record.ends_unlimited = true;
  base::Json json = to_json(record);
  EXPECT_TRUE(tenant_record_from(json)->ends_unlimited);
  json.set("ends_unlimited", nullptr);
  ASSERT_TRUE(tenant_record_from(json));
  EXPECT_FALSE(tenant_record_from(json)->ends_unlimited);
}

TEST(EventRing, goes_on_after_what_another_hypervisor_has_kept) {
  const system::ScratchDirectory folder;
  {
    EventRing ring;
    ring.keep_in(folder.path("."));
    ring.add({.kind = "started", .tenant = "a", .device = "", .message = "placed"});
    for (int i = 0; i < 4; ++i) ring.add({.kind = "tampered", .tenant = "a", .device = "", .message = "again"});
  }
  EventRing next;
  next.keep_in(folder.path("."));
  next.add({.kind = "tampered", .tenant = "a", .device = "", .message = "again"});
  const auto kept = next.after(0);
  ASSERT_EQ(kept.size(), 2u);
  EXPECT_EQ(kept[0].message, "placed");
  EXPECT_EQ(kept[1].count, 5u);
  EXPECT_GE(kept[1].time_ms, kept[1].first_time_ms);
  EXPECT_GT(kept[1].sequence, kept[0].sequence);
}

TEST(EventRing, keeps_what_one_user_should_know_however_often_another_starts_something) {
  const system::ScratchDirectory scratch;
  EventRing ring;
  ring.tell_users_by([](const std::string& tenant) { return tenant == "long" ? 1 : 2; });
  ring.keep_in(scratch.path(""));
  ring.add({.kind = "started", .tenant = "long", .device = "", .message = "placed"});
  ring.add({.kind = "provider", .tenant = "", .device = "", .message = "of nobody"});
  for (int i = 0; i < 20'000; ++i)
    ring.add({.kind = "started", .tenant = "short-" + std::to_string(i), .device = "", .message = "placed"});
  const auto holds_both = [](const EventRing& one) {
    const auto events = one.after(0);
    EXPECT_LE(events.size(), EventRing::kKept);
    return std::ranges::count(events, "long", &Event::tenant) == 1 &&
           std::ranges::count(events, "of nobody", &Event::message) == 1 && events.back().tenant == "short-19999";
  };
  EXPECT_TRUE(holds_both(ring));
  EventRing next;
  next.keep_in(scratch.path(""));
  EXPECT_TRUE(holds_both(next)) << "and so do the files";
}

TEST(EventRing, counts_nobodys_events_for_the_same_as_those_of_another_users_slice_of_that_name) {
  EventRing ring;
  std::int64_t user = 1;
  ring.tell_users_by([&](const std::string&) { return user; });
  ring.add({.kind = "ended", .tenant = "a", .device = "", .message = "its last process has ended"});
  user = 2;
  for (int i = 0; i < 3; ++i)
    ring.add({.kind = "ended", .tenant = "a", .device = "", .message = "its last process has ended"});
  const auto events = ring.after(0);
  ASSERT_EQ(events.size(), 2u);
  EXPECT_EQ(events[0].user, 1);
  EXPECT_EQ(events[0].count, 1u);
  EXPECT_EQ(events[1].user, 2);
  EXPECT_EQ(events[1].count, 3u);
}

TEST(EventRing, keeps_its_files_small) {
  const system::ScratchDirectory folder;
  EventRing ring;
  ring.keep_in(folder.path("."));
  const std::string much(4096, 'x');
  for (int i = 0; i < 400; ++i) ring.add({.kind = "x", .tenant = std::to_string(i), .device = "", .message = much});
  std::uintmax_t bytes = 0;
  for (const auto& entry : std::filesystem::directory_iterator(folder.path("."))) bytes += entry.file_size();
  EXPECT_GT(bytes, EventRing::kLargestFile / 2);
  EXPECT_LE(bytes, 2 * EventRing::kLargestFile);
}

TEST(EventRing, counts_the_same_trouble_instead_of_losing_the_rest) {
  EventRing ring;
  ring.add({.kind = "device", .tenant = "", .device = "d", .message = "Xid 79"});
  for (int i = 0; i < 2000; ++i) ring.add({.kind = "tampered", .tenant = "t", .device = "", .message = "again"});
  const auto events = ring.after(0);
  ASSERT_EQ(events.size(), 2u);
  EXPECT_EQ(events[0].message, "Xid 79");
  EXPECT_EQ(events[1].count, 2000u);
  for (int i = 0; i < 2000; ++i) ring.add({.kind = "x", .tenant = std::to_string(i), .device = "", .message = ""});
  EXPECT_EQ(ring.after(0).size(), EventRing::kKept);
  EXPECT_EQ(ring.after(ring.after(0).back().sequence).size(), 0u);
}

}  // namespace
}  // namespace tensor_fusion::node::hypervisor
