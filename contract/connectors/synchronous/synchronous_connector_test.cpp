// What both sides of the synchronous connectors share: names, sizes, symbols, configurations.
#include "contract/connectors/synchronous/synchronous_connector.h"

#include <gtest/gtest.h>

#include <array>
#include <string>
#include <utility>
#include <vector>

#include "contract/engine/engine_setup.h"
#include "contract/engine/engine_target.h"

namespace kvfence {
namespace {

using engine::files::DecodeBenchRecord;
using engine::files::ExampleRecord;
using engine::files::StorageOperation;
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

  EXPECT_EQ(cache.block(0, 1)[0], symbol_after(kFilledWithDummies, 7));
}

TEST(ScriptedKVCache, LeavesTheNullBlockAlone) {
  ScriptedKVCache cache(0, 1, 4, 2);

  cache.compute(0, std::vector<BlockId>{kNullBlockId, 1}, 0, Tokens{5, 6});

  EXPECT_EQ(cache.block(0, kNullBlockId)[1], kNothingComputed);
}

engine::Config config_of(engine::ConnectorRecord connector, Profile profile) {
  engine::Config config;
  config.connectors = {std::move(connector)};
  config.profile = profile;
  return config;
}

std::string error_of(const engine::Config& config) {
  const auto setup = EngineTarget::prepare(config, "file", {});
  return setup ? "" : setup.error().expected;
}

TEST(SynchronousConnectorSetup, TakesWhatUpstreamCan) {
  for (const Profile profile : kProfiles) {
    EXPECT_EQ(error_of(config_of(ExampleRecord(), profile)), "") << to_text(profile);
    EXPECT_EQ(error_of(config_of(DecodeBenchRecord(), profile)), "") << to_text(profile);
  }
}

TEST(SynchronousConnectorSetup, IsMadeOfTheRecord) {
  engine::Config config = config_of(ExampleRecord{.num_layers = 3}, Profile::kV023);
  config.ranks = 2;
  const auto setup = EngineTarget::prepare(config, "file", {});
  ASSERT_TRUE(setup);
  ASSERT_TRUE(setup->files);
  EXPECT_EQ(setup->files->kind, SynchronousConnectorKind::kExample);
  EXPECT_EQ(setup->files->num_workers, 2u);
  EXPECT_EQ(setup->files->num_layers, 3u);
  const auto bench =
      EngineTarget::prepare(config_of(DecodeBenchRecord(), Profile::kV023), "file", {});
  ASSERT_TRUE(bench);
  EXPECT_EQ(bench->files->kind, SynchronousConnectorKind::kDecodeBench);
}

TEST(SynchronousConnectorSetup, SeveralGroupsAreForLaterDecodeBenches) {
  const auto with_groups = [](engine::Config config) {
    config.groups = {
        KVCacheSpec{.block_size = 4},
        KVCacheSpec{.kind = KVCacheSpecKind::kSlidingWindow, .block_size = 4, .sliding_window = 8}};
    return config;
  };
  EXPECT_EQ(error_of(with_groups(config_of(DecodeBenchRecord(), Profile::kV023))), "");
  EXPECT_NE(error_of(with_groups(config_of(DecodeBenchRecord(), Profile::kV019))), "");
  EXPECT_NE(error_of(with_groups(config_of(ExampleRecord(), Profile::kV023))), "");
  const DecodeBenchRecord overridden{.num_layers = 1, .decode_bench_hma = true};
  EXPECT_EQ(error_of(with_groups(config_of(overridden, Profile::kV019))), "");
}

TEST(SynchronousConnectorSetup, NeedsRanksAndLayers) {
  engine::Config config = config_of(ExampleRecord(), Profile::kV019);
  config.ranks = 0;
  EXPECT_EQ(error_of(config), "at least one rank");
  config = config_of(ExampleRecord{.num_layers = 0}, Profile::kV019);
  EXPECT_EQ(error_of(config), "a positive num_layers");
}

TEST(SynchronousConnectorCommands, OperationsHaveWords) {
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
