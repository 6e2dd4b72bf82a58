// Goal: every planted bug of the KV-cache manager is alive, and only when it is asked for. Method:
// the same pseudo-random life of requests goes to a plain manager and to a planted one, in several
// configurations; the two part company in one of them exactly when a bug is planted.

#include <gtest/gtest.h>

#include <cstdint>
#include <optional>
#include <random>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "optimized/base/planted_bugs_table.h"
#include "optimized/kv_cache/kv_cache_manager.h"
#include "optimized/pool/planted_bugs.h"

namespace kvfence::optimized {
namespace {

using Kind = KVCacheSpecKind;

constexpr std::uint32_t kNumRequests = 4;
constexpr std::uint32_t kMaxModelLen = 48;
constexpr int kNumSteps = 4'000;

KVCacheManagerConfig config_of(std::vector<KVCacheSpec> groups, bool newer, bool use_eagle) {
  KVCacheManagerConfig config;
  config.pool.num_gpu_blocks = 36;
  config.pool.enable_kv_cache_events = true;
  config.pool.hash.hash_block_size = 2;
  config.pool.max_block_size = 8;
  if (newer) {
    for (const RuleField& field : kRuleFields) config.pool.rules.*field.member = true;
  }
  config.groups = std::move(groups);
  config.max_model_len = kMaxModelLen;
  config.max_num_batched_tokens = 6;
  config.use_eagle = use_eagle;
  return config;
}

std::vector<KVCacheManagerConfig> configs() {
  const KVCacheSpec full{.block_size = 2};
  const KVCacheSpec coarse{.block_size = 8};
  const KVCacheSpec sliding{.kind = Kind::kSlidingWindow, .block_size = 2, .sliding_window = 4};
  const KVCacheSpec wider{.kind = Kind::kSlidingWindow, .block_size = 4, .sliding_window = 6};
  const KVCacheSpec chunked{
      .kind = Kind::kChunkedLocal, .block_size = 2, .attention_chunk_size = 6};
  const KVCacheSpec mamba{.kind = Kind::kMamba, .block_size = 2};
  const KVCacheSpec aligned{
      .kind = Kind::kMamba, .block_size = 2, .mamba_align = true, .num_speculative_blocks = 1};
  const KVCacheSpec cross{.kind = Kind::kCrossAttention, .block_size = 2};
  const KVCacheSpec sink{.kind = Kind::kSinkFullAttention, .block_size = 2, .sink_len = 4};
  std::vector<KVCacheManagerConfig> all;
  all.push_back(config_of({full}, false, true));
  all.push_back(config_of({sliding}, true, false));
  all.push_back(config_of({sliding, full}, false, false));
  all.push_back(config_of({coarse, sliding}, true, true));
  all.push_back(config_of({full, sliding, wider}, true, true));
  all.push_back(config_of({sink, chunked}, false, false));
  all.push_back(config_of({full, mamba}, true, true));
  all.push_back(config_of({full, aligned}, false, false));
  all.push_back(config_of({full, aligned}, true, false));
  all.push_back(config_of({full, cross}, true, false));
  all.back().pool.enable_caching = false;
  all.push_back(config_of({coarse, sliding}, true, false));
  all.back().retention_interval = 0;
  return all;
}

/// What one step answered and left behind.
struct Observation {
  int code = 0;
  bool flag = false;
  BlocksByGroup blocks;
  std::uint32_t num_tokens = 0;
  std::vector<std::uint32_t> list;
  std::vector<BlocksByGroup> tables;
  std::vector<BlockId> free_order;
  std::vector<std::uint32_t> ref_cnts;
  std::vector<std::string> keys;
  std::vector<KVCacheEvent> events;
  PrefixCacheStats stats;
  friend bool operator==(const Observation&, const Observation&) = default;
};

/// Requests with common beginnings, and a manager that they live in. Two lives with the same seed
/// give their managers the same commands for as long as the answers are the same.
template <class Manager>
class Life {
 public:
  Life(const KVCacheManagerConfig& config, Manager manager, std::uint32_t seed)
      : config_(config), manager_(std::move(manager)), random_(seed) {
    for (RequestIndex index = 0; index < kNumRequests; ++index) {
      owners_.push_back({Request({}, config.pool.hash)});
      renew(owners_.back());
    }
  }

  Observation step() {
    Observation seen;
    const RequestIndex index = below(kNumRequests);
    Owner& owner = owners_[index];
    const KVRequest request{
        .index = index,
        .request = owner.request,
        .num_computed_tokens = owner.num_computed_tokens,
        .num_prompt_tokens = static_cast<std::uint32_t>(owner.request.all_token_ids().size()),
        .skip_reading_prefix_cache = owner.skip_reading_prefix_cache,
        .was_preempted = owner.was_preempted};
    switch (below(14)) {
      case 0:
        manager_.free(index);
        if (below(3) != 0) {
          renew(owner);
        } else {
          owner.num_computed_tokens = 0;
          owner.is_allocated = false;
          owner.was_preempted = true;
        }
        break;
      case 1:
        manager_.remove_skipped_blocks(index, owner.num_computed_tokens);
        break;
      case 2:
        seen.code = static_cast<int>(manager_.cache_blocks(request, owner.num_computed_tokens));
        break;
      case 3:
        if (below(2) == 0) {
          const BlockId block = below(config_.pool.num_gpu_blocks);
          seen.code = static_cast<int>(manager_.evict_blocks({&block, 1}));
        }
        break;
      case 4:
        seen.flag = manager_.reset_prefix_cache();
        break;
      case 5:
        seen.code = static_cast<int>(manager_.get_num_common_prefix_blocks(index, seen.list));
        break;
      case 6:
        manager_.new_step_starts();
        break;
      case 7: {
        const std::uint32_t num_encoder_tokens = below(8);
        const std::uint32_t num_external_tokens = owner.is_allocated ? 0 : below(3);
        seen.code = static_cast<int>(manager_.can_fit_full_sequence(
            request, nullptr, num_external_tokens, num_encoder_tokens, seen.flag));
        break;
      }
      default:
        allocate(owner, request, seen);
    }
    if (below(4) == 0) manager_.take_new_block_ids(seen.list);
    observe(seen);
    return seen;
  }

 private:
  struct Owner {
    Request request;
    std::uint32_t num_computed_tokens = 0;
    bool is_allocated = false;
    bool skip_reading_prefix_cache = false;
    bool was_preempted = false;
  };

  std::uint32_t below(std::uint32_t bound) { return static_cast<std::uint32_t>(random_() % bound); }

  void renew(Owner& owner) {
    RequestSpec spec;
    const std::uint32_t num_tokens = 6 + below(kMaxModelLen - 8);
    const std::uint32_t num_common = below(3) == 0 ? below(num_tokens) : num_tokens;
    for (TokenId token = 0; token < num_tokens; ++token) {
      spec.tokens.push_back(token < num_common ? token : 100 + token);
    }
    owner = {.request = Request(spec, config_.pool.hash),
             .num_computed_tokens = 0,
             .is_allocated = false,
             .skip_reading_prefix_cache = below(8) == 0,
             .was_preempted = false};
  }

  void allocate(Owner& owner, const KVRequest& request, Observation& seen) {
    ComputedBlocks hit;
    const bool asks = !owner.is_allocated && below(6) != 0;
    if (asks) {
      manager_.get_computed_blocks(request, hit);
      seen.num_tokens = hit.num_tokens;
    }
    const bool is_newer = config_.pool.rules.full_sequence_gate_in_allocate_slots;
    AllocateSlotsArgs args{
        .request = request,
        .num_new_tokens = below(3) == 0 ? 1 + below(8) : 1,
        .hit = asks ? &hit : nullptr,
        .num_lookahead_tokens = below(4) == 0 ? below(5) : 0,
        .num_external_tokens = !owner.is_allocated && below(2) == 0 ? below(9) : 0,
        .delay_cache_blocks = below(5) == 0,
        .num_encoder_tokens = 5,
        .full_sequence_must_fit = is_newer && below(3) == 0,
        .reserved_blocks = is_newer && below(3) == 0 ? below(12) : 0};
    seen.code = static_cast<int>(manager_.allocate_slots(args, seen.flag, seen.blocks));
    if (seen.code != 0 || !seen.flag) return;
    owner.is_allocated = true;
    owner.num_computed_tokens += hit.num_tokens + args.num_external_tokens + args.num_new_tokens;
    if (below(6) == 0) --owner.num_computed_tokens;  // a draft was rejected
  }

  void observe(Observation& seen) {
    seen.tables.resize(kNumRequests);
    for (RequestIndex index = 0; index < kNumRequests; ++index) {
      manager_.get_block_ids(index, seen.tables[index]);
    }
    manager_.block_pool().get_all_free_blocks(seen.free_order);
    for (BlockId block = 0; block < config_.pool.num_gpu_blocks; ++block) {
      seen.ref_cnts.push_back(manager_.block_pool().ref_cnt(block));
      seen.keys.emplace_back(manager_.block_pool().block_key(block));
    }
    manager_.take_events(seen.events);
    seen.stats = manager_.take_prefix_cache_stats();
  }

  KVCacheManagerConfig config_;
  Manager manager_;
  std::mt19937 random_;
  std::vector<Owner> owners_;
};

/// Whether a planted manager differs from the plain one within the steps, in some configuration.
bool diverges(PlantedKVCacheBug bug) {
  std::uint32_t seed = 0;
  for (const KVCacheManagerConfig& config : configs()) {
    Life<KVCacheManager> expected(config, KVCacheManager(config), ++seed);
    Life<PlantedKVCacheManager> actual(config, PlantedKVCacheManager(config, bug), seed);
    for (int step = 0; step < kNumSteps; ++step) {
      if (expected.step() != actual.step()) return true;
    }
  }
  return false;
}

class PlantedKVCacheBugs : public testing::TestWithParam<PlantedKVCacheBugInfo> {};

TEST_P(PlantedKVCacheBugs, PartsFromTheSoundManager) { EXPECT_TRUE(diverges(GetParam().bug)); }

// A broken manager still has to answer, without a crash or an endless loop.
TEST_P(PlantedKVCacheBugs, KeepsAnsweringOnceBroken) {
  std::uint32_t seed = 0;
  std::size_t num_answers = 0;
  for (const KVCacheManagerConfig& config : configs()) {
    Life<PlantedKVCacheManager> life(config, PlantedKVCacheManager(config, GetParam().bug), ++seed);
    for (int step = 0; step < kNumSteps; ++step) num_answers += life.step().tables.size();
  }
  EXPECT_EQ(num_answers, configs().size() * kNumSteps * kNumRequests);
}

INSTANTIATE_TEST_SUITE_P(All, PlantedKVCacheBugs, testing::ValuesIn(kPlantedKVCacheBugs),
                         [](const auto& param) { return std::string(param.param.name); });

TEST(PlantedKVCacheBugTable, NoBugIsTheSoundManager) {
  EXPECT_FALSE(diverges(PlantedKVCacheBug::kNone));
}

TEST(PlantedKVCacheBugTable, IsInTheOrderOfTheEnumerationWithNamesOfItsOwn) {
  std::set<std::string_view> names;
  for (const PlantedBugInfo& info : kPlantedBugs) names.insert(info.name);
  EXPECT_EQ(misplaced_bugs(kPlantedKVCacheBugs, planted_kv_cache_bug_from_name, names),
            std::vector<std::string_view>{});
}

}  // namespace
}  // namespace kvfence::optimized
