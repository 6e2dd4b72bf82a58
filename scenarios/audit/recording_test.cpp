#include "scenarios/audit/recording.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace kvfence::audit {
namespace {

const std::vector<Arrival>& arrivals() {
  static const std::vector<Arrival> kAll = {
      {"tcp://a:1", {"kv", 7, std::string("\0\xff", 2)}, 1.25, false, false, false},
      {"b", {"", std::uint64_t{1} << 63, ""}, 0, true, true, true}};
  return kAll;
}

std::string recorded() {
  std::string text(kRecordingHead);
  for (const Arrival& arrival : arrivals()) append_record(text, arrival);
  return text;
}

TEST(Recording, ReadsWhatWasWritten) {
  const std::string text = recorded();
  RecordingReader reader;
  std::string error;
  ASSERT_TRUE(reader.open(text, error));
  Arrival arrival;
  for (const Arrival& expected : arrivals()) {
    ASSERT_TRUE(reader.read(arrival));
    EXPECT_EQ(arrival, expected);
  }
  EXPECT_FALSE(reader.read(arrival));
  EXPECT_FALSE(reader.cut());
}

TEST(Recording, CutAtAnyByteKeepsTheWholeRecords) {
  const std::string text = recorded();
  std::string first(kRecordingHead);
  append_record(first, arrivals()[0]);
  for (std::size_t size = 0; size < text.size(); ++size) {
    const std::string part = text.substr(0, size);
    RecordingReader reader;
    std::string error;
    ASSERT_EQ(reader.open(part, error), size >= kRecordingHead.size());
    if (!error.empty()) continue;
    std::size_t num_whole = 0;
    for (Arrival arrival; reader.read(arrival);) ++num_whole;
    EXPECT_EQ(num_whole, size >= first.size() ? 1U : 0U);
    EXPECT_EQ(reader.cut().has_value(), size != kRecordingHead.size() && size != first.size());
    EXPECT_FALSE(reader.cut() && reader.cut()->is_damage);
  }
}

TEST(Recording, NamesADamagedRecord) {
  std::string text = recorded();
  text.back() = 'x';
  RecordingReader reader;
  std::string error;
  ASSERT_TRUE(reader.open(text, error));
  Arrival arrival;
  EXPECT_TRUE(reader.read(arrival));
  EXPECT_FALSE(reader.read(arrival));
  EXPECT_NE(reader.cut()->why.find("a damaged record"), std::string::npos);
  EXPECT_TRUE(reader.cut()->is_damage);
}

}  // namespace
}  // namespace kvfence::audit
