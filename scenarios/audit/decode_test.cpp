#include "scenarios/audit/decode.h"

#include <gtest/gtest.h>

#include <string>
#include <variant>

#include "scenarios/audit/audit_test_rig.h"

namespace kvfence::audit {
namespace {

std::string stored_map() {
  return Pack()
      .map(7)
      .text("type")
      .text("BlockStored")
      .text("block_hashes")
      .list(2)
      .bytes("first")
      .bytes("second")
      .text("parent_block_hash")
      .nil()
      .text("token_ids")
      .tokens({1, 2, 300, 70000})
      .text("block_size")
      .number(2)
      .text("medium")
      .text("GPU")
      .text("extra_keys")
      .list(2)
      .nil()
      .list(3)
      .text("lora")
      .list(2)
      .text("image")
      .raw("\xfb")
      .bytes("digest")
      .done();
}

std::string removed_array() {
  return Pack().list(3).text("BlockRemoved").list(1).bytes("first").text("GPU").done();
}

TEST(Decode, ReadsMapsAndArrays) {
  DecodedBatch out;
  ASSERT_TRUE(decode(batch_of({stored_map(), removed_array()}, 3), out));
  EXPECT_TRUE(out.problems.empty());
  EXPECT_EQ(out.encoding, Encoding::kArrays);
  EXPECT_EQ(out.batch.time, 1.5);
  EXPECT_EQ(out.batch.data_parallel_rank, 3U);
  ASSERT_EQ(out.batch.events.size(), 2U);
  const auto& stored = std::get<StoredEvent>(out.batch.events[0]);
  EXPECT_EQ(stored.block_hashes, (std::vector<EventHash>{{"first", false}, {"second", false}}));
  EXPECT_EQ(stored.token_ids, (std::vector<TokenId>{1, 2, 300, 70000}));
  using Extra = EventExtraKey;
  EXPECT_EQ((*stored.extra_keys)[1], (std::vector<Extra>{{Extra::Kind::kText, "lora", {}},
                                                         {Extra::Kind::kItem, "image", -5},
                                                         {Extra::Kind::kBytes, "digest", {}}}));
  EXPECT_EQ(std::get<RemovedEvent>(out.batch.events[1]).medium, "GPU");
}

TEST(Decode, ReadsIntegersAsHashes) {
  const std::string event =
      Pack().list(2).text("BlockRemoved").list(2).raw("\xff").number(0x8000'0000'0000'0001).done();
  DecodedBatch out;
  ASSERT_TRUE(decode(batch_of({event}), out));
  const auto& hashes = std::get<RemovedEvent>(out.batch.events.at(0)).block_hashes;
  EXPECT_EQ(hashes[0], (EventHash{std::string(8, '\xff'), true}));
  EXPECT_EQ(hashes[1], (EventHash{std::string("\x80\0\0\0\0\0\0\x01", 8), true}));
}

TEST(Decode, ReadsTokensThatComeWithTheirNext) {
  const auto event = [](const std::string& last) {
    return Pack()
        .list(6)
        .text("BlockStored")
        .list(1)
        .number(7)
        .nil()
        .list(2)
        .raw("\x92\x05\x06" + last)
        .number(2)
        .nil()
        .done();
  };
  DecodedBatch out;
  ASSERT_TRUE(decode(batch_of({event(Pack().list(2).number(6).number(70'000).done())}), out));
  ASSERT_TRUE(out.problems.empty()) << out.problems[0].to_text();
  EXPECT_EQ(std::get<StoredEvent>(out.batch.events.at(0)).token_ids, (std::vector<TokenId>{5, 6}));
  for (const char* const last :
       {"\x93\x06\x07\x08", "\x92\x06\xc0", "\x92\x06\x91\x07", "\x91\x06"}) {
    ASSERT_TRUE(decode(batch_of({event(last)}), out));
    ASSERT_EQ(out.problems.size(), 1U);
    EXPECT_EQ(out.problems[0].expected, "token_ids: an integer of 32 bits");
  }
}

/// The one problem of a batch of this event between two good ones, which have to be there.
std::string problem_beside_good(const std::string& event) {
  DecodedBatch out;
  EXPECT_TRUE(decode(batch_of({removed_array(), event, removed_array()}, 5), out));
  EXPECT_EQ(out.batch.events.size(), 2U);
  EXPECT_EQ(out.batch.data_parallel_rank, 5U);
  EXPECT_EQ(out.problems.size(), 1U);
  return out.problems.empty() ? "" : out.problems[0].to_text();
}

TEST(Decode, SkipsABadEventAndNamesIt) {
  EXPECT_EQ(problem_beside_good(Pack().list(1).text("BlockMoved").done()),
            "byte 39: found an event 'BlockMoved', expected BlockStored, BlockRemoved or "
            "AllBlocksCleared");
  EXPECT_EQ(problem_beside_good(Pack().list(2).text("BlockRemoved").nil().done()),
            "byte 54: found nil, expected block_hashes: a list");
  EXPECT_EQ(problem_beside_good(Pack().number(7).done()),
            "byte 39: found 7, expected an event: a list or a map with its type");
  EXPECT_EQ(problem_beside_good(Pack().map(1).text("type").text("BlockRemoved").done()),
            "byte 39: found an event without block_hashes, expected it");
  EXPECT_EQ(problem_beside_good(Pack().map(1).text("kind").nil().done()),
            "byte 39: found a map without a type, expected an event");
}

TEST(Decode, CountsUnknownFields) {
  DecodedBatch out;
  ASSERT_TRUE(decode(batch_of({Pack()
                                   .map(3)
                                   .text("later")
                                   .list(1)
                                   .map(0)
                                   .text("type")
                                   .text("AllBlocksCleared")
                                   .text("even_later")
                                   .nil()
                                   .done(),
                               Pack().list(2).text("AllBlocksCleared").nil().done()}),
                     out));
  EXPECT_EQ(out.batch.events.size(), 2U);
  EXPECT_EQ(out.unknown_fields, 3U);
}

TEST(Decode, ReadsABatchWithOtherFieldsOfItsOwn) {
  const auto batch = [](std::size_t num_fields, std::string_view time, std::string_view rest) {
    return Pack().list(num_fields).raw(time).list(1).raw(removed_array()).raw(rest).done();
  };
  const std::string text = Pack().text("later").done();
  DecodedBatch out;
  ASSERT_TRUE(decode(batch(4, "\x07", "\x03" + text), out));
  EXPECT_TRUE(out.problems.empty());
  EXPECT_EQ(out.unknown_fields, 1U);
  EXPECT_EQ(out.batch.time, 7);
  EXPECT_EQ(out.batch.data_parallel_rank, 3U);
  // Without a rank the events are still decoded.
  ASSERT_TRUE(decode(batch(3, "\x07", text), out));
  ASSERT_EQ(out.problems.size(), 1U);
  EXPECT_EQ(out.problems[0].found, "a text of 5 bytes");
  EXPECT_EQ(out.problems[0].expected, "data_parallel_rank: an integer of 32 bits");
  EXPECT_EQ(out.batch.events.size(), 1U);
  EXPECT_FALSE(out.batch.data_parallel_rank);
  // More after the end, and no time.
  ASSERT_TRUE(decode(batch(3, "\x07", "\x03" + text), out));
  EXPECT_EQ(out.problems.at(0).found, "7 bytes more");
  ASSERT_FALSE(decode(batch(3, text, "\x03"), out));
  EXPECT_EQ(out.problems.at(0).expected, "the time of the batch");
}

TEST(Decode, KeepsTheEventsBeforeACut) {
  const std::string whole = batch_of({stored_map(), removed_array(), stored_map()});
  for (std::size_t size = 0; size < whole.size(); ++size) {
    DecodedBatch out;
    const bool is_batch = decode(whole.substr(0, size), out);
    ASSERT_FALSE(out.problems.empty()) << size;
    ASSERT_EQ(out.batch.events.size(), out.ranges.size()) << size;
    ASSERT_TRUE(is_batch || out.batch.events.empty()) << size;
  }
}

TEST(Decode, BelievesNoLength) {
  DecodedBatch out;
  for (const std::string_view head : {"\xdd\xff\xff\xff\xff", "\xdf\xff\xff\xff\xff",
                                      "\xdb\x7f\xff\xff\xff", "\xc6\x40\x00\x00\x00"}) {
    const std::string event = Pack().list(2).text("BlockRemoved").raw(head).done();
    EXPECT_TRUE(decode(batch_of({event}), out));
    EXPECT_EQ(out.problems.size(), 1U);
  }
  // A million lists within each other are skipped without a stack.
  const std::string deep(1'000'000, '\x91');
  EXPECT_TRUE(decode(
      batch_of({Pack().list(3).text("AllBlocksCleared").raw(deep).nil().nil().done()}), out));
  EXPECT_TRUE(out.problems.empty());
  EXPECT_FALSE(decode("", out));
  EXPECT_FALSE(decode("\xc1", out));
}

TEST(Decode, WritesAPayloadOfSomeEvents) {
  const std::string whole = batch_of({stored_map(), removed_array(), stored_map()}, 2);
  DecodedBatch all;
  ASSERT_TRUE(decode(whole, all));
  DecodedBatch some;
  ASSERT_TRUE(decode(payload_of(whole, all.batch, {all.ranges[1], all.ranges[2]}), some));
  EXPECT_TRUE(some.problems.empty());
  EXPECT_EQ(some.batch.data_parallel_rank, 2U);
  EXPECT_EQ(some.batch.time, all.batch.time);
  EXPECT_EQ(some.batch.events, (std::vector<Event>{all.batch.events[1], all.batch.events[2]}));
}

}  // namespace
}  // namespace kvfence::audit
