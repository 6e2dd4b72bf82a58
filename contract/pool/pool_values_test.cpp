/// Goal: what is read as KV events, and what is not. Method: texts that differ in one field.

#include "contract/pool/pool_values.h"

#include <string>
#include <string_view>
#include <vector>

#include <gtest/gtest.h>

#include "contract/core/line.h"

namespace kvfence {
namespace {

bool is_read(std::string_view text) {
  const Parsed<Value> value = parse_value(text);
  EXPECT_TRUE(value) << text;
  std::vector<KVCacheEvent> events;
  std::string expected;
  return from_value(*value, events, expected);
}

TEST(KVCacheEvents, WhatIsNoneIsRefused) {
  const std::string stored =
      "(stored block_hashes=[0x01] parent_block_hash=none token_ids=[1] block_size=1";
  EXPECT_TRUE(is_read("[(cleared) " + stored + ")]"));
  EXPECT_FALSE(is_read("[" + stored + " extra_keys=[])]"));
  EXPECT_FALSE(is_read("[" + stored + " extra_keys=5)]"));
  EXPECT_FALSE(is_read("[(nope)]"));
  EXPECT_FALSE(is_read("[(cleared x=1)]"));
}

}  // namespace
}  // namespace kvfence
