#include "base/quantity.h"

#include <gtest/gtest.h>

namespace tensor_fusion::base {
namespace {

struct Case {
  const char* text;
  std::uint64_t bytes;
};

TEST(Quantity, reads_sizes_as_people_write_them) {
  const Case cases[] = {{"8Gi", 8ull << 30},    {"8GiB", 8ull << 30},    {"8G", 8'000'000'000},
                        {"8GB", 8'000'000'000}, {"512Mi", 512ull << 20}, {"512mi", 512ull << 20},
                        {" 2 Gi ", 2ull << 30}, {"1.5Gi", 3ull << 29},   {"1024", 1024},
                        {"100k", 100'000},      {"1Ti", 1ull << 40},     {"0.5Ki", 512}};
  for (const Case& c : cases) {
    const auto bytes = parse_bytes(c.text);
    ASSERT_TRUE(bytes) << c.text << ": " << bytes.error().message;
    EXPECT_EQ(bytes->value, c.bytes) << c.text;
  }
}

TEST(Quantity, refuses_what_is_no_size) {
  for (const char* text : {"", " ", "0", "-1Gi", "nan", "NaN", "inf", "1e9", "8Gx", "Gi", "8..5Gi", ".",
                           "99999999999Pi", "0x10", "8Gi8Gi", "0.0001"})
    EXPECT_FALSE(parse_bytes(text)) << text;
}

TEST(Quantity, says_how_to_write_what_other_notations_mean) {
  EXPECT_NE(parse_memory("8,5Gi").error().message.find("like 8.5Gi"), std::string::npos)
      << parse_memory("8,5Gi").error().message;
  EXPECT_NE(parse_compute("12,5%").error().message.find("like 12.5%"), std::string::npos);
  for (const char* text : {"1e9", "1E9", "2.5e+9", "1e-3"})
    EXPECT_NE(parse_memory(text).error().message.find("power of ten"), std::string::npos) << text;
  EXPECT_NE(parse_compute("1e1tflops").error().message.find("power of ten"), std::string::npos);
}

TEST(Quantity, names_the_nearest_unit) {
  const auto bytes = parse_bytes("8GiBB");
  ASSERT_FALSE(bytes);
  EXPECT_NE(bytes.error().message.find("did you mean 'GiB'?"), std::string::npos) << bytes.error().message;
  const auto compute = parse_compute("20tflosp");
  ASSERT_FALSE(compute);
  EXPECT_NE(compute.error().message.find("'tflops'"), std::string::npos) << compute.error().message;
}

TEST(Quantity, says_what_to_write_instead) {
  EXPECT_EQ(parse_compute("0").error().message, "'0' is no compute at all; ask for more than 0, like 40% or 20tflops");
  EXPECT_EQ(parse_compute("0.3").error().message,
            "'0.3' needs a unit; did you mean 30%? (else write 0.3% or 0.3tflops)");
  EXPECT_EQ(parse_compute_request("0").error().message, "'0' needs a unit: write 0%");
  EXPECT_EQ(parse_bytes("2Q").error().message, "'2Q' has an unknown unit 'Q'; write it like 8Gi, 512Mi or 8G");
  EXPECT_EQ(parse_compute("3xyz").error().message, "'3xyz' has an unknown unit 'xyz'; write it like 40% or 20tflops");
}

TEST(Quantity, reads_compute_in_percent_or_tflops) {
  EXPECT_EQ(parse_compute("40%"), Compute(Percent{4000}));
  EXPECT_EQ(parse_compute("12.5%"), Compute(Percent{1250}));
  EXPECT_EQ(parse_compute("20tflops"), Compute(Tflops{20}));
  EXPECT_EQ(parse_compute("1.5TFLOPS"), Compute(Tflops{1.5}));
  EXPECT_EQ(parse_compute("500 gflops"), Compute(Tflops{0.5}));
  for (const char* text : {"40", "0%", "101%", "-5%", "nan%", "0tflops", "%", "tflops", "1e3%", "40%%"})
    EXPECT_FALSE(parse_compute(text)) << text;
  EXPECT_NE(parse_compute("40").error().message.find("40%"), std::string::npos);
}

TEST(Quantity, reads_memory_as_a_part_of_a_card) {
  EXPECT_EQ(parse_memory("50%"), Memory(Percent{5000}));
  EXPECT_EQ(parse_memory("8Gi"), Memory(Bytes{8ull << 30}));
}

TEST(Quantity, writes_what_it_reads) {
  EXPECT_EQ(to_text(Bytes{8ull << 30}), "8Gi");
  EXPECT_EQ(to_text(Bytes{0}), "0");
  EXPECT_EQ(to_text(Bytes{1536ull << 20}), "1.5Gi");
  EXPECT_EQ(to_text(Percent{1250}), "12.5%");
  EXPECT_EQ(to_text(Percent{10000}), "100%");
  EXPECT_EQ(to_text(Tflops{19.5}), "19.5TFLOPS");
}

TEST(Quantity, offers_no_other_amount_for_a_comma_that_may_stand_for_thousands) {
  EXPECT_NE(parse_bytes("1,5Gi").error().message.find("like 1.5Gi"), std::string::npos);
  EXPECT_NE(parse_bytes("1,0625Gi").error().message.find("like 1.0625Gi"), std::string::npos);
  for (const char* text : {"8,589,934,592", "8,000Gi", "1.5,2Gi", "1,5.2Gi", "1,2,3"}) {
    const auto parsed = parse_bytes(text);
    ASSERT_FALSE(parsed) << text;
    EXPECT_NE(parsed.error().message.find("comma"), std::string::npos) << parsed.error().message;
    EXPECT_EQ(parsed.error().message.find("like"), std::string::npos) << parsed.error().message;
  }
}

}  // namespace
}  // namespace tensor_fusion::base
