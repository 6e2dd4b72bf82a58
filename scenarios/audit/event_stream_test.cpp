#include "scenarios/audit/event_stream.h"

#include <gtest/gtest.h>

#include <chrono>

namespace kvfence::audit {
namespace {

TEST(TruthDiff, IsWhatBlocksCameToCarryAndCeasedTo) {
  const auto key = [](const char* hash, GroupId group) {
    return make_block_hash_with_group_id(hash, group);
  };
  TruthDiff truth;
  EXPECT_EQ(truth.take(0, {"", key("ab", 0), key("ab", 0), key("cd", 1)}, false),
            "{\"sequence\":0,\"group\":0,\"medium\":\"GPU\",\"added\":[\"6162\",\"6162\"],"
            "\"removed\":[]}\n"
            "{\"sequence\":0,\"group\":1,\"medium\":\"GPU\",\"added\":[\"6364\"],"
            "\"removed\":[]}\n");
  // A hash that moves to another block is held all the time.
  EXPECT_EQ(
      truth.take(1, {"", key("ab", 0), "", key("ab", 0)}, false),
      "{\"sequence\":1,\"group\":1,\"medium\":\"GPU\",\"added\":[],\"removed\":[\"6364\"]}\n");
  EXPECT_EQ(truth.take(2, {"", key("ab", 0), "", key("ab", 0)}, false), "");
}

#ifdef KVFENCE_HAS_ZMQ
TEST(EventStream, KeepsThePaceOfTheTrace) {
  using Clock = std::chrono::steady_clock;
  EventStreamOptions options;
  options.publisher.endpoint = "tcp://127.0.0.1:*";
  options.publisher.subscribers = 0;
  options.speed = 10;
  const auto stream = EventStream::open(options, HashAlgorithm::kXxhashCbor);
  ASSERT_TRUE(stream);
  ASSERT_FALSE((*stream)->start());
  const Clock::time_point start = Clock::now();
  ASSERT_TRUE((*stream)->take(/*time_us=*/2'000'000, {AllBlocksCleared{}}, {}));
  EXPECT_GE(Clock::now() - start, std::chrono::milliseconds(199));
  EXPECT_TRUE((*stream)->take(/*time_us=*/900'000'000, {}, {}));  // nothing to be sent
  EXPECT_EQ((*stream)->num_messages(), 1U);
}
#endif

}  // namespace
}  // namespace kvfence::audit
