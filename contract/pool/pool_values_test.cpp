/// Goal: what is read as KV events, and what is not. Method: texts that differ in one field.

#include "contract/pool/pool_values.h"

#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include <gtest/gtest.h>

#include "contract/core/line.h"

namespace kvfence {
namespace {

template <class Member>
bool is_read(std::string_view text, Member& member) {
  const Parsed<Value> value = parse_value(text);
  EXPECT_TRUE(value) << text;
  std::string expected;
  return from_value(*value, member, expected);
}

bool is_read(std::string_view text) {
  std::vector<KVCacheEvent> events;
  return is_read(text, events);
}

TEST(KVCacheEvents, WhatIsNoneIsRefused) {
  const std::string stored =
      "(stored block_hashes=[0x01] parent_block_hash=none token_ids=[1] block_size=1";
  EXPECT_TRUE(is_read("[(cleared) " + stored + ")]"));
  EXPECT_FALSE(is_read("[" + stored + " extra_keys=[])]"));
  EXPECT_FALSE(is_read("[" + stored + " extra_keys=5)]"));
  EXPECT_FALSE(is_read("[" + stored + " extra_keys=[5])]"));
  EXPECT_FALSE(is_read("[" + stored + " extra_keys=[[(item id=a offset=0 length=1)]])]"));
  EXPECT_FALSE(is_read("[" + stored + " group_idx=x)]"));
  EXPECT_FALSE(is_read("[" + stored + " medium=5)]"));
  EXPECT_FALSE(
      is_read("[(stored block_hashes=5 parent_block_hash=none token_ids=[] block_size=1)]"));
  EXPECT_FALSE(is_read("[(nope)]"));
  EXPECT_FALSE(is_read("[(cleared x=1)]"));
  EXPECT_FALSE(is_read("5"));
}

TEST(KVCacheEvents, AConnectorsHasNoExtraKeysAtAll) {
  const std::string stored =
      "[(stored block_hashes=[0x01] parent_block_hash=none token_ids=[1] block_size=1";
  std::vector<KVCacheEvent> events;
  ASSERT_TRUE(is_read(stored + " medium=CPU)]", events));
  EXPECT_TRUE(std::get<BlockStored>(events.front()).extra_keys.empty());
  EXPECT_EQ(std::get<BlockStored>(events.front()).medium, "CPU");
  EXPECT_FALSE(std::get<BlockStored>(events.front()).lora_name);
  ASSERT_TRUE(is_read(stored + ")]", events));
  EXPECT_EQ(std::get<BlockStored>(events.front()).extra_keys.size(), 1U);
  ASSERT_TRUE(is_read(stored + " lora_name=a lora_id=1)]", events));
  EXPECT_EQ(std::get<BlockStored>(events.front()).lora_name, "a");
  EXPECT_FALSE(is_read(stored + " lora_name=a)]", events));
  EXPECT_FALSE(is_read(stored + " lora_id=1)]", events));
}

TEST(MmFeatures, TheLastReadAreThere) {
  std::vector<MmFeature> items;
  ASSERT_TRUE(is_read("[(item id=cat offset=4 length=4)]", items));
  ASSERT_TRUE(is_read("[(item id=dog offset=0 length=4)]", items));
  ASSERT_EQ(items.size(), 1U);
  EXPECT_EQ(items.front().identifier, "dog");
  EXPECT_TRUE(is_read("[(item id=a offset=4 length=4) (item id=b offset=4 length=1)]", items));
  EXPECT_FALSE(is_read("[(item id=a offset=4 length=4) (item id=b offset=3 length=1)]", items));
  EXPECT_FALSE(is_read("5", items));
  EXPECT_FALSE(is_read("[5]", items));
  EXPECT_FALSE(is_read("[(cat id=cat offset=0 length=4)]", items));
}

TEST(BlockHashes, AreReadAsTheyArePrinted) {
  BlockHash hash;
  ASSERT_TRUE(is_read("0x0102", hash));
  EXPECT_EQ(print(to_value(hash)), "0x0102");
  EXPECT_FALSE(is_read("none", hash));
}

TEST(Names, AreAList) {
  std::vector<std::string> names;
  EXPECT_TRUE(is_read("[A B]", names));
  EXPECT_FALSE(is_read("A", names));
}

}  // namespace
}  // namespace kvfence
