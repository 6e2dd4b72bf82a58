// Goal: a trace is read as written, and every error is reported with its position.
// Method: small traces in strings; each error with its line, column, what was found and expected.

#include "scenarios/replay/mooncake_trace.h"

#include <gtest/gtest.h>

#include <sstream>
#include <string>
#include <utility>
#include <vector>

namespace kvfence {
namespace {

Parsed<std::vector<MooncakeRequest>> read(const std::string& text) {
  std::istringstream stream(text);
  return read_mooncake_trace(stream, "t.jsonl");
}

std::string error_of(const std::string& text) {
  const Parsed<std::vector<MooncakeRequest>> requests = read(text);
  return requests ? "no error" : requests.error().to_text();
}

constexpr char kGoodLine[] =
    R"({"timestamp": 0, "input_length": 600, "output_length": 5, "hash_ids": [0, 1]})"
    "\n";

TEST(MooncakeTrace, ReadsARequestALine) {
  const auto requests =
      read(std::string(kGoodLine) +
           R"({"timestamp":12,"input_length":3,"output_length":0,"hash_ids":[7]})");
  ASSERT_TRUE(requests);

  EXPECT_EQ(*requests, (std::vector<MooncakeRequest>{{0, 600, 5, {0, 1}}, {12, 3, 0, {7}}}));
}

TEST(MooncakeTrace, PassesOverBlankLinesOtherKeysAndCarriageReturns) {
  const auto requests = read(
      "\n  \r\n"
      R"({"hash_ids":[],"session":"a","output_length":1,"input_length":2,"timestamp":3})"
      "\r\n\n");
  ASSERT_TRUE(requests);

  EXPECT_EQ(*requests, (std::vector<MooncakeRequest>{{3, 2, 1, {}}}));
}

TEST(MooncakeTrace, DoesNotHoldTheNumberOfIdsAgainstTheLength) {
  const auto requests =
      read(R"({"timestamp":0,"input_length":1,"output_length":1,"hash_ids":[1,2,3]})");
  ASSERT_TRUE(requests);

  EXPECT_EQ(requests->front().hash_ids.size(), 3U);
}

TEST(MooncakeTrace, HoldsTheNumberOfIdsAgainstTheLengthWhereAskedTo) {
  const std::string text =
      "\n"
      R"({"timestamp":0,"input_length":9,"output_length":1,"hash_ids":[1,2,3]})"
      "\n";
  const auto with_block_tokens = [&](std::uint32_t block_tokens) {
    std::istringstream stream(text);
    const auto requests = read_mooncake_trace(stream, "t.jsonl", block_tokens);
    return requests ? "no error" : requests.error().to_text();
  };

  EXPECT_EQ(with_block_tokens(3), "no error");
  EXPECT_EQ(with_block_tokens(4), "no error");
  EXPECT_EQ(with_block_tokens(5),
            "t.jsonl:2:51: found 3 hash_ids for 9 tokens, expected 2, one for each 5");
  EXPECT_EQ(with_block_tokens(2),
            "t.jsonl:2:51: found 3 hash_ids for 9 tokens, expected 5, one for each 2");
}

TEST(MooncakeTrace, TakesTheLargestIntegers) {
  const auto requests = read(
      R"({"timestamp":18446744073709551615,"input_length":4294967295,"output_length":4294967295,)"
      R"("hash_ids":[4294967295]})");
  ASSERT_TRUE(requests);

  EXPECT_EQ(*requests,
            (std::vector<MooncakeRequest>{{UINT64_MAX, UINT32_MAX, UINT32_MAX, {UINT32_MAX}}}));
}

/// A request whose members are these.
std::string line_of(const char* timestamp, const char* input, const char* output, const char* ids) {
  return std::string("{\"timestamp\": ") + timestamp + ", \"input_length\": " + input +
         ", \"output_length\": " + output + ", \"hash_ids\": " + ids + "}";
}

TEST(MooncakeTrace, NamesWhatIsWrongWithItsPlace) {
  const std::vector<std::pair<std::string, const char*>> cases = {
      {"", "1:1: found the end of the file, expected at least one request"},
      {"\n\n", "3:1: found the end of the file, expected at least one request"},
      {std::string(kGoodLine) + R"({"timestamp": 0,, })", "2:17: found ',', expected valid JSON"},
      {R"({"timestamp": 0)", "1:16: found the end of the line, expected valid JSON"},
      {"{\"timestamp\": \x01}", "1:15: found a byte that is not text, expected valid JSON"},
      {"requests go here", "1:1: found 'r', expected valid JSON"},
      {"{} {}", "1:4: found '{', expected valid JSON"},
      {"[1, 2]", "1:1: found array, expected an object with timestamp, input_length, ..."},
      {line_of("-1", "1", "1", "[]"),
       "1:2: found timestamp: -1, expected an integer from 0 to 18446744073709551615"},
      {line_of("1", "1.5", "1", "[]"),
       "1:18: found input_length: 1.5, expected an integer from 0 to 4294967295"},
      {line_of("1", "1", "\"1\"", "[]"),
       "1:37: found output_length: \"1\", expected an integer from 0 to 4294967295"},
      {line_of("1", "1", "1", "5"), "1:57: found hash_ids: 5, expected a list of integers"},
      {line_of("1", "1", "1", "[0, 4294967296]"),
       "1:57: found hash_ids[1]: 4294967296, expected an integer from 0 to 4294967295"},
  };
  for (const auto& [text, expected] : cases) {
    EXPECT_EQ(error_of(text), std::string("t.jsonl:") + expected);
  }
  for (const std::string key : {"timestamp", "input_length", "output_length", "hash_ids"}) {
    std::string line = kGoodLine;
    line.replace(line.find(key), key.size(), "x");
    EXPECT_EQ(error_of(line),
              "t.jsonl:1:1: found an object without " + key + ", expected the key " + key);
  }
}

TEST(MooncakeTrace, CutsLongValuesInMessages) {
  const std::string error =
      error_of(R"({"timestamp": 1, "input_length": 1, "output_length": 1, "hash_ids": ")" +
               std::string(1000, 'a') + "\"}");

  EXPECT_NE(error.find("aaa..., expected"), std::string::npos) << error;
  EXPECT_LT(error.size(), 200U);
}

TEST(MooncakeTrace, NamesAFileThatCannotBeOpened) {
  const auto requests = read_mooncake_trace_file("no/such/file.jsonl");
  ASSERT_FALSE(requests);

  EXPECT_EQ(requests.error().to_text(),
            "no/such/file.jsonl: found a file that cannot be opened, expected a request trace");
}

TEST(MooncakeTotals, CountsWhatAnUnboundedCacheWouldHit) {
  const std::vector<MooncakeRequest> requests = {{10, 3, 1, {1, 2}}, {5, 4, 2, {1, 2, 3}}};

  const MooncakeTotals totals = totals_of(requests);

  EXPECT_EQ(totals.num_blocks, 5U);
  EXPECT_EQ(totals.num_distinct_blocks, 3U);
  EXPECT_EQ(totals.span_ms, 5U);
  EXPECT_DOUBLE_EQ(totals.hit_rate_max(), 0.4);
}

TEST(MooncakeTotals, OfNothingAreZero) {
  EXPECT_EQ(totals_of({}).span_ms, 0U);
  EXPECT_EQ(totals_of({}).hit_rate_max(), 0);
}

}  // namespace
}  // namespace kvfence
