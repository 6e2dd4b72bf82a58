#include "scenarios/audit/encode.h"

#include <gtest/gtest.h>

#include <fstream>
#include <map>
#include <numeric>
#include <sstream>
#include <utility>

#include "contract/core/hex.h"

namespace kvfence::audit {
namespace {

EventHash hash_of(std::size_t num_bytes, char byte) {
  return {std::string(num_bytes, byte), false};
}

EventHash integer_of(std::uint64_t value) {
  std::string bytes;
  for (int shift = 56; shift >= 0; shift -= 8) bytes += static_cast<char>(value >> shift);
  return {bytes, true};
}

/// The batches of adapters/test_publish_vllm.py, by name.
std::map<std::string, EventBatch> batches_of(WireRelease release) {
  using KeyKind = EventExtraKey::Kind;
  std::map<std::string, EventBatch> batches;
  StoredEvent plain;
  plain.block_hashes = {hash_of(32, 1), hash_of(32, 2)};
  plain.token_ids = {1, 127, 128, 65536};
  plain.block_size = 2;
  plain.medium = "GPU";
  batches["plain"] = {1.5, {plain}, std::nullopt};

  StoredEvent full;
  full.block_hashes = {hash_of(16, 3), hash_of(16, 4)};
  full.parent_block_hash = hash_of(16, 9);
  full.token_ids = {0x80000001, 255, 256, 65535};
  full.block_size = 2;
  full.lora_id = 7;
  full.medium = "GPU";
  full.lora_name = "adapter";
  full.extra_keys.emplace();
  full.extra_keys->push_back(
      std::vector<EventExtraKey>{{KeyKind::kText, "adapter", std::nullopt},
                                 {KeyKind::kItem, "image", -3},
                                 {KeyKind::kText, "salt", std::nullopt},
                                 {KeyKind::kBytes, "\x01\x02", std::nullopt}});
  full.extra_keys->push_back(std::nullopt);
  // 0.19.0 has no field for these.
  full.group_idx = 1;
  full.kv_cache_spec_kind = "sliding_window";
  full.kv_cache_spec_sliding_window = 4096;
  RemovedEvent removed;
  removed.block_hashes = {hash_of(16, 3)};
  removed.medium = "GPU";
  removed.group_idx = 1;
  batches["full"] = {2.25, {full, removed, ClearedEvent{}}, 3};

  StoredEvent integers;
  integers.block_hashes = {integer_of(UINT64_MAX), integer_of(5), integer_of(300)};
  integers.parent_block_hash = integer_of(70000);
  integers.block_size = 16;
  integers.medium = "CPU";
  RemovedEvent removed_integer;
  removed_integer.block_hashes = {integer_of(std::uint64_t{1} << 32)};
  batches["integers"] = {0, {integers, removed_integer}, 0};

  StoredEvent long_one;
  long_one.token_ids.resize(20);
  std::iota(long_one.token_ids.begin(), long_one.token_ids.end(), TokenId{0});
  long_one.block_size = 20;
  long_one.medium = "GPU";
  long_one.lora_name = std::string(40, 'l');
  batches["long"] = {0, {long_one}, std::nullopt};

  if (release != WireRelease::kV033) return batches;
  StoredEvent latest;
  latest.block_hashes = {hash_of(32, 1)};
  latest.token_ids = {1, 2};
  latest.block_size = 2;
  latest.medium = "CPU";
  latest.locality = "LOCAL";
  latest.ownership = "disk";
  latest.session_id = "s";
  latest.lookahead_token_ids = {{3, 4}};
  RemovedEvent removed_latest;
  removed_latest.block_hashes = {hash_of(32, 1)};
  removed_latest.medium = "CPU";
  removed_latest.locality = "REMOTE";
  removed_latest.ownership = "disk";
  batches["of_0_33"] = {0, {latest, removed_latest}, std::nullopt};
  return batches;
}

TEST(EncodeEvents, WritesTheBytesOfEachRelease) {
  const std::map<std::string, WireRelease> releases = {{"0.19.0", WireRelease::kV019},
                                                       {"0.23.0", WireRelease::kV023},
                                                       {"0.33.0", WireRelease::kV033}};
  std::ifstream golden(KVFENCE_WIRE_GOLDEN);
  std::size_t num_compared = 0;
  for (std::string line; std::getline(golden, line);) {
    if (line.starts_with("#")) continue;
    std::istringstream words(line);
    std::string release, name, hex;
    words >> release >> name >> hex;
    const auto batches = batches_of(releases.at(release));
    EXPECT_EQ(to_hex(encode(batches.at(name), releases.at(release))), hex)
        << release << ' ' << name;
    ++num_compared;
  }
  EXPECT_EQ(num_compared, 13U);
}

TEST(EncodeEvents, MakesEventsOfWhatAPoolReports) {
  BlockStored stored;
  stored.block_hashes = {"0123456789abcdef"};
  stored.parent_block_hash = "fedcba9876543210";
  stored.token_ids = {1, 2};
  stored.block_size = 2;
  stored.lora_name = "adapter";
  stored.lora_id = 7;
  stored.extra_keys = {ExtraKeys{std::string("adapter"), MmExtraKey{"image", -3}}};
  stored.group_idx = 4;
  const Event event = to_event(stored);
  const auto& bytes = std::get<StoredEvent>(event);
  EXPECT_EQ(bytes.block_hashes, (std::vector<EventHash>{{"0123456789abcdef", false}}));
  EXPECT_EQ(bytes.medium, "GPU");
  EXPECT_EQ(bytes.lora_id, 7);
  EXPECT_EQ(bytes.group_idx, 4U);
  ASSERT_EQ(bytes.extra_keys->front()->size(), 2U);
  EXPECT_EQ(bytes.extra_keys->front()->back(),
            (EventExtraKey{EventExtraKey::Kind::kItem, "image", -3}));
  EventBatch batch{0, {event, to_event(BlockRemoved{"0123456789abcdef", 4, "CPU"})}, 0};
  to_low64(batch);
  const auto& low = std::get<StoredEvent>(batch.events[0]);
  EXPECT_EQ(low.block_hashes, (std::vector<EventHash>{{"89abcdef", true}}));
  EXPECT_EQ(low.parent_block_hash, (EventHash{"76543210", true}));
  const auto& removed = std::get<RemovedEvent>(batch.events[1]);
  EXPECT_EQ(removed.medium, "CPU");
  EXPECT_EQ(removed.block_hashes, low.block_hashes);
  EXPECT_TRUE(std::holds_alternative<ClearedEvent>(to_event(AllBlocksCleared{})));
}

}  // namespace
}  // namespace kvfence::audit
