#include "scenarios/audit/event_stream.h"

#include <gtest/gtest.h>

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

}  // namespace
}  // namespace kvfence::audit
