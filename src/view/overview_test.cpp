#include "view/overview.h"

#include <gtest/gtest.h>

#include <cmath>

#include "base/text.h"
#include "view/event.h"
#include "view/finding.h"

namespace tensor_fusion::view {
namespace {

using base::Json;

Overview overview() {
  Overview made;
  made.time_ms = 5000;
  made.devices = devices_from(*Json::parse(R"({"devices":[
    {"uuid":"GPU-a","index":0,"model":"NVIDIA H100 80GB HBM3","node":"/dev/nvidia0","memory_bytes":85899345920,"memory_used_bytes":42949672960,
     "utilization_percent":75,"temperature_celsius":41,"power_watts":300,"healthy":true,"request_share_total":9000,"limit_share_total":13000,
     "memory_reserved_bytes":8589934592,"tenants":["a","b"]},
    {"uuid":"GPU-b","index":1,"model":"T4","memory_bytes":16106127360,"healthy":false,"health":"Xid 79"}]})"));
  made.slices = slice_list_from(*Json::parse(R"({"tenants":[
    {"name":"b","state":"running","created_ms":1000,"devices":[{"uuid":"GPU-a","index":0,"used_share":7000,"limit_share":7000,"request_share":7000}]},
    {"name":"a","state":"running","created_ms":2000,"devices":[{"uuid":"GPU-a","index":0,"used_share":500,"memory_used_bytes":1024}]}]})"));
  return made;
}

TEST(Overview, shows_devices_with_bars_above_the_slices) {
  EXPECT_EQ(
      to_text(overview(), {}),
      "GPU 0  NVIDIA H100 80GB HBM3  time [###############.....]  75%  memory [##########..........] 40Gi/80Gi\n"
      "GPU 1  T4                     time [....................]   0%  memory [....................] 0/15Gi  Xid 79\n"
      "\n"
      "NAME  STATE    GPU  COMPUTE  MEMORY  PROCS  AGE  ALARM  COMMAND\n"
      "b     running    0  70%/70%     0/-      0   4s  -\n"
      "a     running    0    5%/0%   1Ki/-      0   3s  -\n");
}

TEST(Overview, keeps_its_device_lines_within_the_terminal) {
  const Overview made = overview();
  for (const std::size_t width : {200u, 110u, 80u, 60u, 40u}) {
    const std::string lines = device_lines(made.devices, made.slices, width);
    const std::string first = lines.substr(0, lines.find('\n'));
    EXPECT_LE(first.size(), width) << lines;
    EXPECT_NE(first.find("75%"), std::string::npos) << lines;
    EXPECT_NE(first.find("40Gi/80Gi"), std::string::npos) << lines;
    EXPECT_EQ(first.find("H100") != std::string::npos, width >= 80) << lines;
    EXPECT_EQ(first.find('#') != std::string::npos, width >= 60) << lines;
  }
}

TEST(Overview, gives_programs_devices_and_slices_in_one_document) {
  const Json json = to_json(overview());
  EXPECT_EQ(json["devices"].size(), 2u);
  EXPECT_EQ(json["slices"].at(0)["name"].as_string(), "b");
  EXPECT_TRUE(json["unlimited_processes"].is_array());
}

TEST(Overview, sorts_slices_by_what_is_asked) {
  const auto first = [](Order order) {
    SliceList list = overview().slices;
    sort_slices(list, order);
    return list.slices.front().name;
  };
  EXPECT_EQ(first(Order::kName), "a");
  EXPECT_EQ(first(Order::kUsed), "b");
  EXPECT_EQ(first(Order::kMemory), "a");
  EXPECT_EQ(first(Order::kAge), "b");
}

TEST(Overview, holds_a_bar_to_its_width_whatever_the_part) {
  EXPECT_EQ(bar(0.5, 4), "##..");
  EXPECT_EQ(bar(7, 4), "####");
  EXPECT_EQ(bar(-1, 4), "....");
  EXPECT_EQ(bar(std::nan(""), 4), "....");
}

TEST(Devices, are_a_table_that_names_what_is_wrong) {
  EXPECT_EQ(
      to_table(overview().devices, {}),
      "GPU  MODEL                     MEMORY  RESERVED  REQUESTED  LIMITS  BUSY  TEMP  POWER  HEALTH  UUID   SLICES\n"
      "  0  NVIDIA H100 80GB HBM3  40Gi/80Gi       8Gi        90%    130%   75%   41C   300W  ok      GPU-a  a,b\n"
      "  1  T4                        0/15Gi         0         0%      0%     -     -      -  Xid 79  GPU-b  -\n");
}

TEST(Devices, that_are_lost_say_so_in_a_word_and_below_in_a_sentence) {
  Device lost;
  lost.index = 3;
  lost.temperature_celsius = 0;
  lost.healthy = false;
  lost.health = "lost: the device has fallen off the bus and answers no more";
  const std::string table = to_table({lost}, Style{});
  EXPECT_NE(table.find("  -  lost    "), std::string::npos) << table;
  EXPECT_NE(table.find("\nGPU 3 is lost: the device has fallen off the bus and answers no more; nothing new is placed"),
            std::string::npos)
      << table;
  EXPECT_EQ(table.find("0C"), std::string::npos) << table;
}

TEST(Devices, give_programs_null_for_what_is_not_known) {
  const Json json = to_json(overview().devices);
  EXPECT_TRUE(json["devices"].at(1)["power_watts"].is_null());
  EXPECT_DOUBLE_EQ(json["devices"].at(0)["compute_limits_percent"].as_double(), 130);
}

TEST(Events, are_dated_in_universal_time) {
  EXPECT_EQ(time_text(0), "1970-01-01 00:00:00");
  EXPECT_EQ(time_text(1709209807123), "2024-02-29 12:30:07");
  const auto events = events_from(*Json::parse(
      R"({"events":[{"seq":1,"time_ms":1000,"kind":"tampered","tenant":"a","message":"claim page cut"}]})"));
  EXPECT_EQ(to_table(events, {}),
            "TIME (UTC)           KIND      SLICE  MESSAGE\n1970-01-01 00:00:01  tampered  a      claim page cut\n");
}

TEST(Events, say_how_often_and_since_when) {
  const auto events = events_from(*Json::parse(
      R"({"events":[{"seq":4,"time_ms":9000,"first_time_ms":1000,"count":3,"kind":"unlimited","message":"process 7"}]})"));
  EXPECT_NE(
      to_table(events, {}).find("1970-01-01 00:00:09  unlimited  -      process 7 (3 times since 1970-01-01 00:00:01)"),
      std::string::npos)
      << to_table(events, {});
  EXPECT_EQ(to_json(events)["events"].at(0)["count"].as_uint(), 3u);
}

TEST(Findings, are_not_moved_aside_by_a_long_path) {
  const std::string path = "/opt/somewhere/with/a/long/path/to/program";
  const std::string text = to_text({{"driver", Verdict::kGood, "loads", ""}, {path, Verdict::kGood, "can be", ""}}, {});
  EXPECT_EQ(text, "ok    driver  loads\nok    " + path + "  can be\nnothing here would stop a slice\n");
}

TEST(Findings, put_advice_below_what_needs_it_and_count_what_stops) {
  const std::vector<Finding> findings{{"driver", Verdict::kBad, "missing", "install it"},
                                      {"MPS", Verdict::kGood, "no server", ""}};
  EXPECT_EQ(to_text(findings, {}),
            "STOP  driver  missing\n"
            "              -> install it\n"
            "ok    MPS     no server\n"
            "1 thing would stop a slice here\n");
  EXPECT_TRUE(any_bad(findings));
  EXPECT_FALSE(to_json(findings)["ok"].as_bool(true));
}

TEST(Overview, shows_all_of_what_is_wrong_with_a_card_however_narrow_it_is_shown) {
  Device device;
  device.model = "H100";
  device.memory_bytes = 80ull << 30;
  device.healthy = false;
  device.health = "GPU has fallen off the bus";
  device.also_shared_by = "process 12 of user 1000";
  for (const std::size_t width : {0u, 40u, 80u, 200u}) {
    const std::string shown = device_lines({device}, {}, width);
    std::string in_one_line;
    for (const std::string_view line : base::split(shown, '\n')) {
      EXPECT_TRUE(width == 0 || columns_of(line) <= width) << width << ": " << line;
      in_one_line += std::string(base::trim(line)) + " ";
    }
    EXPECT_NE(in_one_line.find("GPU has fallen off the bus, also given out by process 12 of user 1000"),
              std::string::npos)
        << shown;
  }
}

}  // namespace
}  // namespace tensor_fusion::view
