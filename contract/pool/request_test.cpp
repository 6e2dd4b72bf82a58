// Goal: a request's extra keys, and when its blocks are hashed (values: block_hash_test.cpp).
// Method: the cases of upstream's tests/v1/core/test_kv_cache_utils.py; laws that hold for any
// digest.

#include "contract/pool/request.h"

#include <gtest/gtest.h>

#include <numeric>
#include <string>
#include <vector>

namespace kvfence {
namespace {

std::vector<TokenId> iota_tokens(std::size_t num_tokens) {
  std::vector<TokenId> tokens(num_tokens);
  std::iota(tokens.begin(), tokens.end(), TokenId{0});
  return tokens;
}

/// 20 tokens with two images, at [0, 5) and [10, 15).
RequestSpec two_images() {
  RequestSpec spec;
  spec.tokens = iota_tokens(20);
  spec.mm_features = {{"hash1", 0, 5}, {"hash2", 10, 5}};
  return spec;
}

ExtraKeys keys_of(const RequestSpec& spec, std::size_t start, std::size_t end,
                  std::int64_t mm_cursor = 0) {
  return generate_block_hash_extra_keys(spec, start, end, mm_cursor).keys;
}

TEST(GenerateBlockHashExtraKeys, OffsetsAreRelativeToTheBlock) {
  const RequestSpec spec = two_images();
  EXPECT_EQ(keys_of(spec, 0, 5), (ExtraKeys{MmExtraKey{"hash1", 0}}));
  EXPECT_EQ(keys_of(spec, 3, 8), (ExtraKeys{MmExtraKey{"hash1", -3}}));
  EXPECT_EQ(keys_of(spec, 0, 15), (ExtraKeys{MmExtraKey{"hash1", 0}, MmExtraKey{"hash2", 10}}));
}

TEST(GenerateBlockHashExtraKeys, CursorPassesFinishedItemsOnly) {
  const RequestSpec spec = two_images();
  EXPECT_EQ(generate_block_hash_extra_keys(spec, 0, 4, 0).mm_cursor, 0);
  EXPECT_EQ(generate_block_hash_extra_keys(spec, 0, 5, 0).mm_cursor, 1);
  const ExtraKeysAndCursor between = generate_block_hash_extra_keys(spec, 6, 10, 0);
  EXPECT_TRUE(between.keys.empty());
  EXPECT_EQ(between.mm_cursor, 1);
  EXPECT_EQ(generate_block_hash_extra_keys(spec, 0, 15, 0).mm_cursor, 2);
}

TEST(GenerateBlockHashExtraKeys, CursorMinusOneIsTheLastItem) {
  RequestSpec spec = two_images();
  const ExtraKeysAndCursor last = generate_block_hash_extra_keys(spec, 12, 14, -1);
  EXPECT_EQ(last.keys, (ExtraKeys{MmExtraKey{"hash2", -2}}));
  EXPECT_EQ(last.mm_cursor, 1);
  // The first item overlaps this block too, and is passed over.
  EXPECT_EQ(keys_of(spec, 4, 12, -1), (ExtraKeys{MmExtraKey{"hash2", 6}}));
  // Past the last item the cursor is handed back as it came.
  EXPECT_EQ(generate_block_hash_extra_keys(spec, 15, 20, -1).mm_cursor, -1);
}

TEST(GenerateBlockHashExtraKeys, NoMultimodalItemsNoKeys) {
  RequestSpec spec;
  spec.tokens = iota_tokens(6);
  const ExtraKeysAndCursor none = generate_block_hash_extra_keys(spec, 0, 5, 0);
  EXPECT_TRUE(none.keys.empty());
  EXPECT_EQ(none.mm_cursor, 0);
}

TEST(GenerateBlockHashExtraKeys, SaltOnlyInTheBlockAtTokenZero) {
  RequestSpec spec;
  spec.tokens = iota_tokens(12);
  spec.cache_salt = "salt";
  EXPECT_EQ(keys_of(spec, 0, 5), (ExtraKeys{std::string("salt")}));
  EXPECT_TRUE(keys_of(spec, 1, 5).empty());
  EXPECT_TRUE(keys_of(spec, 6, 10).empty());
  spec.cache_salt = "";
  EXPECT_TRUE(keys_of(spec, 0, 5).empty());
}

TEST(GenerateBlockHashExtraKeys, LoraNameInEveryBlock) {
  RequestSpec spec;
  spec.tokens = iota_tokens(12);
  spec.lora = LoraRequest{"adapter", 1};
  EXPECT_EQ(keys_of(spec, 0, 5), (ExtraKeys{std::string("adapter")}));
  EXPECT_EQ(keys_of(spec, 6, 10), (ExtraKeys{std::string("adapter")}));
}

TEST(GenerateBlockHashExtraKeys, OrderIsLoraItemsSalt) {
  RequestSpec spec = two_images();
  spec.lora = LoraRequest{"adapter", 1};
  spec.cache_salt = "salt";
  EXPECT_EQ(keys_of(spec, 0, 15), (ExtraKeys{std::string("adapter"), MmExtraKey{"hash1", 0},
                                             MmExtraKey{"hash2", 10}, std::string("salt")}));
}

TEST(HashBlockTokens, DependsOnEveryPart) {
  const std::vector<TokenId> tokens = iota_tokens(4);
  const auto hash = [&](std::string_view parent, const std::vector<TokenId>& block_tokens,
                        const ExtraKeys& keys) {
    return hash_block_tokens(HashAlgorithm::kSha256Cbor, parent, block_tokens, keys);
  };
  const BlockHash base = hash("parent", tokens, {});
  EXPECT_EQ(base, hash("parent", tokens, {}));
  EXPECT_NE(base, hash("Parent", tokens, {}));
  EXPECT_NE(base, hash("parent", {0, 1, 2, 4}, {}));
  EXPECT_NE(base, hash("parent", tokens, {std::string()}));
  EXPECT_NE(hash("parent", tokens, {std::string("a")}),
            hash("parent", tokens, {MmExtraKey{"a", 0}}));
  EXPECT_NE(hash("parent", tokens, {MmExtraKey{"a", -1}}),
            hash("parent", tokens, {MmExtraKey{"a", 1}}));
}

TEST(Request, HashesFullBlocksOnly) {
  for (std::size_t num_tokens = 0; num_tokens <= 13; ++num_tokens) {
    RequestSpec spec;
    spec.tokens = iota_tokens(num_tokens);
    const Request request(spec, {HashAlgorithm::kXxhashCbor, "0", 4});
    EXPECT_EQ(request.num_hashes(), num_tokens / 4) << num_tokens;
    EXPECT_EQ(request.hash_bytes().size(), num_tokens / 4 * 16) << num_tokens;
    EXPECT_EQ(request.all_token_ids(), spec.tokens);
  }
}

TEST(Request, FirstParentIsNoneHashAndLaterOnesAreTheHashBefore) {
  const HashConfig config{HashAlgorithm::kSha256Cbor, "42", 4};
  RequestSpec spec;
  spec.tokens = iota_tokens(12);
  const Request request(spec, config);
  BlockHash parent = none_hash(config.algorithm, config.seed);
  const BlockHashListView hashes = request.block_hashes(4);
  ASSERT_EQ(hashes.size(), 3U);
  for (std::size_t index = 0; index < hashes.size(); ++index) {
    const auto tokens = std::span<const TokenId>(spec.tokens).subspan(4 * index, 4);
    parent = hash_block_tokens(config.algorithm, parent, tokens, {});
    EXPECT_EQ(hashes[index], parent) << index;
  }
}

TEST(Request, AppendingIsTheSameAsStartingWithTheTokens) {
  // Without multimodal items nothing depends on when a block became full.
  const HashConfig config{HashAlgorithm::kXxhashCbor, "0", 4};
  RequestSpec whole;
  whole.tokens = iota_tokens(23);
  whole.lora = LoraRequest{"adapter", 1};
  whole.cache_salt = "salt";
  const Request expected(whole, config);
  for (std::size_t num_at_first = 0; num_at_first <= whole.tokens.size(); ++num_at_first) {
    for (std::size_t step : {std::size_t{1}, std::size_t{3}, std::size_t{4}, std::size_t{23}}) {
      RequestSpec spec = whole;
      spec.tokens.resize(num_at_first);
      Request actual(spec, config);
      const std::span<const TokenId> tokens = whole.tokens;
      for (std::size_t at = num_at_first; at < tokens.size(); at += step) {
        actual.append_output_token_ids(tokens.subspan(at, std::min(step, tokens.size() - at)));
      }
      EXPECT_EQ(actual.hash_bytes(), expected.hash_bytes()) << num_at_first << ' ' << step;
      EXPECT_EQ(actual.spec(), expected.spec());
    }
  }
}

TEST(Request, AssigningIsTheSameAsConstructing) {
  const HashConfig config{HashAlgorithm::kSha256Cbor, "7", 3};
  Request request(two_images(), {HashAlgorithm::kXxhashCbor, "0", 4});
  for (std::size_t num_tokens : {2U, 30U, 5U}) {
    RequestSpec spec;
    spec.tokens = iota_tokens(num_tokens);
    spec.cache_salt = "salt";
    request.assign(spec, config);
    Request expected(spec, config);
    EXPECT_EQ(request.spec(), spec);
    EXPECT_EQ(request.hash_bytes(), expected.hash_bytes());
    request.append_output_token_ids(spec.tokens);
    expected.append_output_token_ids(spec.tokens);
    EXPECT_EQ(request.hash_bytes(), expected.hash_bytes());
  }
}

TEST(Request, AppendingNothingChangesNothing) {
  RequestSpec spec;
  spec.tokens = iota_tokens(8);
  Request request(spec, HashConfig{});
  const std::string before(request.hash_bytes());
  request.append_output_token_ids({});
  EXPECT_EQ(request.hash_bytes(), before);
}

TEST(Request, BlocksCompletedLaterLookAtTheLastItemOnly) {
  const HashConfig config{HashAlgorithm::kSha256Cbor, "0", 4};
  RequestSpec spec;
  spec.tokens = iota_tokens(6);
  spec.mm_features = {{"first", 4, 2}, {"last", 6, 2}};
  Request request(spec, config);
  const std::vector<TokenId> generated = {6, 7};
  request.append_output_token_ids(generated);

  const std::vector<TokenId> second_block = {4, 5, 6, 7};
  const BlockHashListView hashes = request.block_hashes(4);
  ASSERT_EQ(hashes.size(), 2U);
  EXPECT_EQ(hashes[1],
            hash_block_tokens(config.algorithm, hashes[0], second_block, {MmExtraKey{"last", 2}}));

  RequestSpec whole = spec;
  whole.tokens = iota_tokens(8);
  const Request at_once(whole, config);
  EXPECT_NE(at_once.block_hashes(4)[1], hashes[1]);
}

TEST(Request, GroupsOfLargerBlocksSeeTheHashesConcatenated) {
  RequestSpec spec;
  spec.tokens = iota_tokens(22);
  const Request request(spec, {HashAlgorithm::kXxhashCbor, "0", 4});
  const BlockHashListView fine = request.block_hashes(4);
  const BlockHashListView coarse = request.block_hashes(8);
  ASSERT_EQ(fine.size(), 5U);
  ASSERT_EQ(coarse.size(), 2U);
  for (std::size_t index = 0; index < coarse.size(); ++index) {
    EXPECT_EQ(coarse[index], std::string(fine[2 * index]).append(fine[2 * index + 1])) << index;
  }
}

TEST(Request, CopiesAreIndependent) {
  RequestSpec spec;
  spec.tokens = iota_tokens(3);
  const Request original(spec, HashConfig{});
  Request copy = original;
  const std::vector<TokenId> generated = {9};
  copy.append_output_token_ids(generated);
  EXPECT_EQ(copy.num_hashes(), 1U);
  EXPECT_EQ(original.num_hashes(), 0U);
}

}  // namespace
}  // namespace kvfence
