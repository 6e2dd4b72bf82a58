// What both sides of the synchronous connectors share: names, sizes, symbols, configurations.
#include "contract/connectors/synchronous/synchronous_connector.h"

#include <gtest/gtest.h>

#include <array>
#include <string>
#include <vector>

#include "contract/connectors/synchronous/synchronous_connector_target.h"

namespace kvfence {
namespace {

using Tokens = std::vector<TokenId>;

// Golden: hashlib.md5(torch.tensor(tokens).numpy().tobytes() + b"-".join(...)).hexdigest()
TEST(FolderName, IsUpstreamsDigest) {
  EXPECT_EQ(folder_name(Tokens{}), "d41d8cd98f00b204e9800998ecf8427e");
  EXPECT_EQ(folder_name(Tokens{1, 2, 3, 4}), "9f66c130786a1a05e4731f71a3c5f172");
  EXPECT_EQ(folder_name(Tokens{70000, 1}), "89831667570a4a1c3b601461510397b4");
  const std::vector<MmFeature> images = {{"cat", 0, 1}, {"dog", 1, 1}};
  EXPECT_EQ(folder_name(Tokens{1, 2, 3, 4}, images), "1fef626aa00684939cdb47f999b29903");
}

TEST(AlignToBlockSize, LeavesTheLastTokenOut) {
  const std::array<std::uint32_t, 6> expected = {0, 0, 0, 0, 0, 4};
  for (std::uint32_t n = 0; n < expected.size(); ++n) {
    EXPECT_EQ(align_to_block_size(n, 4), expected[n]) << n;
  }
  EXPECT_EQ(align_to_block_size(9, 4), 8u);
}

TEST(ScriptedKVCache, ComputesWhatFollowsFromTheTokens) {
  ScriptedKVCache cache(/*first_layer=*/2, /*num_layers=*/2, /*num_blocks=*/4, /*block_size=*/2);
  const std::vector<BlockId> table = {3, 1};
  const Tokens tokens = {5, 6, 7};
  EXPECT_EQ(cache.block(3, 1)[0], kNothingComputed);

  cache.compute(3, table, /*first_token=*/0, Tokens{5, 6});
  cache.compute(3, table, /*first_token=*/2, Tokens{7});
  cache.compute(3, table, /*first_token=*/1, Tokens{6});

  EXPECT_EQ(cache.block(3, 3)[0], symbol_of(3, std::span(tokens).first(1)));
  EXPECT_EQ(cache.block(3, 3)[1], symbol_of(3, std::span(tokens).first(2)));
  EXPECT_EQ(cache.block(3, 1)[0], symbol_of(3, tokens)) << "the same again changes nothing";
  EXPECT_NE(symbol_of(2, tokens), symbol_of(3, tokens));
  EXPECT_EQ(cache.block(2, 1)[0], kNothingComputed);
}

TEST(ScriptedKVCache, ComputesOnWhatIsThere) {
  ScriptedKVCache cache(0, 1, 4, 2);
  cache.block(0, 3)[1] = kFilledWithDummies;

  cache.compute(0, std::vector<BlockId>{3, 1}, 2, Tokens{7});

  EXPECT_EQ(cache.block(0, 1)[0], symbol_behind(kFilledWithDummies, 7));
}

TEST(ScriptedKVCache, LeavesTheNullBlockAlone) {
  ScriptedKVCache cache(0, 1, 4, 2);

  cache.compute(0, std::vector<BlockId>{kNullBlockId, 1}, 0, Tokens{5, 6});

  EXPECT_EQ(cache.block(0, kNullBlockId)[1], kNothingComputed);
}

synchronous_connector::Config config_of(std::string kv_connector, std::string profile) {
  synchronous_connector::Config config;
  config.kv_connector = std::move(kv_connector);
  config.profile = std::move(profile);
  return config;
}

std::string error_of(const synchronous_connector::Config& config) {
  const auto setup = SynchronousConnectorTarget::prepare(config, "file", {});
  return setup ? "" : setup.error().expected;
}

TEST(SynchronousConnectorSetup, TakesWhatUpstreamCan) {
  for (const char* const profile : {"v0.19", "v0.23"}) {
    for (const char* const kind : {"example", "decode_bench"}) {
      EXPECT_EQ(error_of(config_of(kind, profile)), "") << kind << " " << profile;
    }
  }
  EXPECT_EQ(error_of(config_of("nixl", "v0.19")), "example or decode_bench");
}

TEST(SynchronousConnectorSetup, SeveralGroupsAreForLaterDecodeBenches) {
  const auto with_groups = [](synchronous_connector::Config config) {
    config.groups = {
        KVCacheSpec{.block_size = 4},
        KVCacheSpec{.kind = KVCacheSpecKind::kSlidingWindow, .block_size = 4, .sliding_window = 8}};
    return config;
  };
  EXPECT_EQ(error_of(with_groups(config_of("decode_bench", "v0.23"))), "");
  EXPECT_NE(error_of(with_groups(config_of("decode_bench", "v0.19"))), "");
  EXPECT_NE(error_of(with_groups(config_of("example", "v0.23"))), "");
  synchronous_connector::Config overridden = with_groups(config_of("decode_bench", "v0.19"));
  overridden.decode_bench_hma = true;
  EXPECT_EQ(error_of(overridden), "");
}

TEST(SynchronousConnectorSetup, NeedsRanksAndLayers) {
  synchronous_connector::Config config = config_of("example", "v0.19");
  config.world_size = 0;
  EXPECT_EQ(error_of(config), "a positive world_size");
  config.world_size = 1;
  config.num_layers = 0;
  EXPECT_EQ(error_of(config), "a positive num_layers");
}

TEST(SynchronousConnectorTarget, OperationsHaveWords) {
  using synchronous_connector::StorageOperation;
  for (const FileOperation operation : kStorageOperations) {
    StorageOperation parsed = FileOperation::kList;
    std::string expected;
    ASSERT_TRUE(from_value(to_value(StorageOperation(operation)), parsed, expected));
    EXPECT_EQ(parsed.operation, operation);
  }
  StorageOperation untouched = FileOperation::kRead;
  std::string expected;
  EXPECT_FALSE(from_value(to_value(StorageOperation(FileOperation::kRename)), untouched, expected));
  EXPECT_EQ(untouched.operation, FileOperation::kRead);
}

}  // namespace
}  // namespace kvfence
