#include "view/slice.h"

#include <gtest/gtest.h>

namespace tensor_fusion::view {
namespace {

using base::Json;

Json reply() {
  return *Json::parse(R"({"tenants":[
    {"id":"k3f9qd","name":"night","command":"python train.py","state":"running","pid":4711,"user":"root","qos":"medium",
     "created_ms":1000000,"tampered":false,
     "devices":[{"uuid":"GPU-a","index":0,"memory_limit_bytes":2147483648,"memory_used_bytes":1073741824,"memory_peak_bytes":1073741824,
                 "request_share":3000,"limit_share":3000,"used_share":2987,"held_launches":12,"refused":1},
                {"uuid":"GPU-b","index":1,"memory_limit_bytes":2147483648,"memory_used_bytes":0,"request_share":1000,"limit_share":10000}],
     "processes":[{"pid":4711,"tenant_pid":4711,"command":"python","limiter":"live","memory_bytes":1073741824}]},
    {"id":"zzzzzz","name":"odd","command":"./x","state":"running","pid":9,"created_ms":990000,"tampered":true,
     "devices":[{"uuid":"GPU-a","index":0,"memory_limit_bytes":0,"memory_used_bytes":0,"limit_share":10000}],
     "processes":[{"pid":9,"command":"./x","limiter":"missing"}]}],
    "unlimited":[{"pid":77,"uuid":"GPU-a","command":"miner","memory_bytes":4096}]})");
}

TEST(SliceList, is_a_table_with_a_row_for_each_device_and_the_strangers_below) {
  EXPECT_EQ(to_table(slice_list_from(reply()), 1042000, {}),
            "NAME   STATE    GPU      COMPUTE   MEMORY  PROCS  AGE  ALARM                        COMMAND\n"
            "night  running    0    29.9%/30%  1Gi/2Gi      1  42s  -                            python train.py\n"
            "                  1  0%/10%-100%    0/2Gi\n"
            "odd    running    0   0%/0%-100%      0/-      1  52s  tampered, unlimited process  ./x\n"
            "\n"
            "These processes use a GPU without a slice, so nothing limits them:\n"
            "PID  MEMORY  UUID   COMMAND\n"
            " 77     4Ki  GPU-a  miner\n");
}

TEST(SliceList, shows_what_matters_where_there_is_little_room) {
  SliceList calm = slice_list_from(reply());
  calm.strangers.clear();
  calm.slices.pop_back();
  EXPECT_EQ(to_table(calm, 1042000, {.colours = false, .width = 45}),
            "NAME   GPU      COMPUTE   MEMORY  COMMAND\n"
            "night    0    29.9%/30%  1Gi/2Gi  python trai\n"
            "         1  0%/10%-100%    0/2Gi\n");
}

TEST(SliceList, says_how_to_make_a_slice_when_there_is_none) {
  EXPECT_EQ(to_table({}, 0, {}), "no slices; `tensor-fusion run -- PROGRAM` makes one\n");
}

TEST(SliceList, gives_programs_percent_and_bytes) {
  const Json json = to_json(slice_list_from(reply()));
  const Json& night = json["slices"].at(0);
  EXPECT_EQ(night["name"].as_string(), "night");
  EXPECT_DOUBLE_EQ(night["devices"].at(0)["compute_limit_percent"].as_double(), 30);
  EXPECT_DOUBLE_EQ(night["devices"].at(0)["compute_used_percent"].as_double(), 29.87);
  EXPECT_EQ(night["devices"].at(0)["memory_limit_bytes"].as_uint(), 2147483648u);
  EXPECT_EQ(night["devices"].at(0)["refused_allocations"].as_uint(), 1u);
  EXPECT_TRUE(night["processes"].at(0)["limited"].as_bool());
  EXPECT_EQ(json["slices"].at(1)["alarms"].size(), 2u);
  EXPECT_EQ(json["unlimited_processes"].at(0)["pid"].as_int(), 77);
}

TEST(SliceList, reads_a_reply_of_any_shape_without_failing) {
  for (const char* text : {"{}", "[]", "null", R"({"tenants":3})", R"({"tenants":[null,{}, 7]})",
                           R"({"tenants":[{"devices":[{"index":"x"}]}]})"}) {
    const SliceList list = slice_list_from(*Json::parse(text));
    EXPECT_FALSE(to_table(list, 0, {}).empty()) << text;
    EXPECT_FALSE(to_json(list).dump().empty()) << text;
  }
}

TEST(SliceList, shows_age_in_the_unit_that_people_would_use) {
  EXPECT_EQ(age_text(0), "0s");
  EXPECT_EQ(age_text(119'999), "119s");
  EXPECT_EQ(age_text(120'000), "2m");
  EXPECT_EQ(age_text(7'200'000), "2h");
  EXPECT_EQ(age_text(std::uint64_t{3} * 24 * 3600 * 1000), "3d");
}

TEST(SliceList, raises_an_alarm_for_a_slice_whose_account_the_driver_contradicts) {
  const Json reply = Json::object(
      {{"tenants", Json::array().push(Json::object(
                       {{"id", "a"}, {"devices", Json::array().push(Json::object({{"bypass_suspected", true}}))}}))}});
  EXPECT_EQ(slice_list_from(reply).slices.at(0).alarms, std::vector<std::string>{"bypass suspected"});
}

TEST(SliceList, raises_an_alarm_for_a_slice_far_above_its_memory_limit) {
  const auto alarms_at = [](std::uint64_t used) {
    const Json reply = Json::object(
        {{"tenants", Json::array().push(Json::object(
                         {{"id", "a"},
                          {"devices", Json::array().push(Json::object({{"memory_limit_bytes", std::uint64_t{2} << 30},
                                                                       {"memory_used_bytes", used}}))}}))}});
    return slice_list_from(reply).slices.at(0).alarms;
  };
  EXPECT_TRUE(alarms_at(std::uint64_t{2} << 30).empty());
  EXPECT_TRUE(alarms_at((std::uint64_t{2} << 30) + (64u << 20)).empty()) << "code that the driver loads by itself";
  EXPECT_EQ(alarms_at(std::uint64_t{3} << 30), std::vector<std::string>{"over limit"});
}

TEST(SliceList, lists_a_process_that_left_the_limiter_out_with_its_slice) {
  const auto process = [](int pid) { return Json::object({{"pid", pid}, {"uuid", "GPU-a"}, {"command", "prog"}}); };
  const auto slice = Json::object({{"id", "a"}, {"name", "night"}, {"processes", Json::array().push(process(7))}});
  const auto list = slice_list_from(Json::object(
      {{"tenants", Json::array().push(slice)},
       {"unlimited", Json::array().push(process(7)).push(process(8)).push(process(9).set("tenant", "a"))}}));
  ASSERT_EQ(list.strangers.size(), 3u);
  EXPECT_EQ(list.strangers[0].slice, "night");
  EXPECT_EQ(list.strangers[1].slice, "");
  EXPECT_EQ(list.strangers[2].slice, "night");
  const std::string text = to_table(list, 0, {});
  const auto beside = text.find("without a slice"), within = text.find("without a limiter");
  ASSERT_TRUE(beside != text.npos && within != text.npos) << text;
  const std::string_view first = std::string_view(text).substr(beside, within - beside);
  EXPECT_TRUE(first.contains("8  ") && !first.contains("7  ") && !first.contains("9  ")) << text;
}

}  // namespace
}  // namespace tensor_fusion::view
