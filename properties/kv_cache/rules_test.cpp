// Goal: each rule of target kv_cache reports a manager that breaks it, and none reports a correct
// one. Method: observations written by hand, with one mistake each.

#include <functional>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "properties/core/rules_test_support.h"
#include "properties/core/typed_test_support.h"
#include "properties/targets/rooms.h"

namespace kvfence::kv_cache {
namespace {

/// A manager of block size 2 whose observations are written by hand. Requests A and B share their
/// first two hashes.
class Scene {
 public:
  explicit Scene(const Config& config = plain())
      : config_(*make_kv_cache_manager_config(config)), world_(fresh_world<KVCacheTarget>(config)) {
    for (BlockId block = 1; block < config.num_gpu_blocks; ++block) queue.push_back(block);
    keys.resize(config.num_gpu_blocks);
    declare("A", {1, 2, 3, 4, 5});
    declare("B", {1, 2, 3, 4, 9});
  }

  static Config plain() {
    Config config;
    config.num_gpu_blocks = 8;
    config.hash_block_size = 2;
    config.groups = {KVCacheSpec{.block_size = 2}};
    config.max_model_len = 16;
    return config;
  }

  static Config window() {
    Config config = plain();
    config.groups = {
        KVCacheSpec{.kind = KVCacheSpecKind::kSlidingWindow, .block_size = 2, .sliding_window = 2}};
    return config;
  }

  void declare(const std::string& name, std::vector<TokenId> tokens) {
    DeclareRequest command;
    command.id = name;
    command.tokens = std::move(tokens);
    pass(command, show());
  }

  // What the next observation shows: keys as symbols, empty for none.
  std::vector<BlockId> queue;
  std::vector<std::string> keys;
  std::vector<RequestBlocks> tables;

  std::string bytes(std::string_view symbol) const {
    return symbol.empty() ? std::string() : world_.requests().resolve(symbol).value();
  }

  /// The observation of the lists above, with the numbers that follow from them.
  Observation show(ErrorCode error = ErrorCode::kNone) const {
    Observation shown;
    shown.error = error;
    shown.free_queue.emplace() = queue;
    std::vector<std::uint32_t>& refs = shown.ref_cnts.emplace();
    refs.assign(keys.size(), 0);
    for (const RequestBlocks& table : tables) {
      for (const std::vector<BlockId>& blocks : table.blocks) {
        for (BlockId block : blocks) refs[block] += block == kNullBlockId ? 0 : 1;
      }
    }
    std::set<std::string> distinct;
    shown.keys.emplace();
    for (const std::string& key : keys) {
      shown.keys.emplace().push_back(bytes(key));
      if (!key.empty()) distinct.insert(key);
    }
    shown.tables.emplace() = tables;
    shown.num_free_blocks = static_cast<std::uint32_t>(queue.size());
    shown.num_cached_keys = static_cast<std::uint32_t>(distinct.size());
    shown.usage = 1.0 - static_cast<double>(queue.size()) / static_cast<double>(keys.size() - 1);
    return shown;
  }

  static Observation with_slots(Observation shown, BlockLists blocks) {
    shown.allocated.emplace() = true;
    shown.blocks.emplace() = std::move(blocks);
    return shown;
  }
  static Observation with_hit(Observation shown, BlockLists blocks, std::uint32_t num_tokens) {
    shown.blocks.emplace() = std::move(blocks);
    shown.num_hit_tokens.emplace() = num_tokens;
    return shown;
  }

  /// The rule that such an answer breaks; empty for none. The scene does not change.
  std::string broken(const Command& command, const Observation& shown) const {
    World world = world_;
    world.apply(command);
    const auto found = run_.verdict(command, shown, world);
    if (!found) return "";
    EXPECT_FALSE(found->field.empty());
    EXPECT_NE(found->expected, found->actual);
    return found->oracle;
  }

  /// The same for a right answer with one change.
  std::string broken(const Command& command, Observation shown,
                     const std::function<void(Observation&)>& change) const {
    EXPECT_EQ(broken(command, shown), "");
    change(shown);
    return broken(command, shown);
  }

  /// Continues after a right answer.
  void pass(const Command& command, const Observation& shown) {
    world_.apply(command);
    run_.pass(command, shown, world_);
  }

  /// A's five tokens in blocks 1, 2, 3; the first two are cached. The state before the answer.
  static AllocateSlots first_slots() { return {.request = "A", .num_new_tokens = 5}; }
  Observation show_first_slots() {
    queue.erase(queue.begin(), queue.begin() + 3);
    keys[1] = "A:0/0";
    keys[2] = "A:1/0";
    tables = {{"A", {{1, 2, 3}}}};
    return with_slots(show(), {{1, 2, 3}});
  }
  void allocate_first() {
    const Observation shown = show_first_slots();
    pass(first_slots(), shown);
  }

  /// B found A's blocks 1 and 2, and took 4.
  void share_prefix() {
    allocate_first();
    pass(GetComputedBlocks{"B"}, with_hit(show(), {{1, 2}}, 4));
    queue.erase(queue.begin());
    tables.push_back({"B", {{1, 2, 4}}});
    pass(second_slots(), with_slots(show(), {{4}}));
  }
  static AllocateSlots second_slots() {
    return {.request = "B", .num_new_tokens = 1, .from_cache = true};
  }

  const KVCacheManagerConfig& config() const { return config_; }

 private:
  KVCacheManagerConfig config_;
  World world_;
  WatchedRun<KVCacheTarget> run_{[this] { return rules().make(config_); }};
};

TEST(KVCacheInvariants, NullAndSinksStayOut) {
  Scene scene;
  const Observation right = scene.show_first_slots();
  EXPECT_EQ(scene.broken(Scene::first_slots(), right,
                         [](Observation& shown) { ++shown.ref_cnts.emplace()[0]; }),
            "null_and_sinks_stay_out");

  Config config = Scene::plain();
  config.groups = {
      KVCacheSpec{.kind = KVCacheSpecKind::kSinkFullAttention, .block_size = 2, .sink_len = 2}};
  World world = fresh_world<KVCacheTarget>(config);
  Observation fresh = Scene().show();
  const auto checker = rules().make(*make_kv_cache_manager_config(config));
  const auto found = checker->check(NewStepStarts{}, nullptr, fresh, world);

  ASSERT_TRUE(found);
  EXPECT_EQ(found->oracle, "null_and_sinks_stay_out");
}

TEST(KVCacheInvariants, RefCntCountsPlaces) {
  Scene scene;
  const Observation right = scene.show_first_slots();
  EXPECT_EQ(scene.broken(Scene::first_slots(), right,
                         [](Observation& shown) { shown.ref_cnts.emplace()[2] = 2; }),
            "ref_cnt_counts_places");
}

TEST(KVCacheInvariants, QueueHoldsTheUnreferenced) {
  Scene scene;
  const Observation right = scene.show_first_slots();
  EXPECT_EQ(scene.broken(Scene::first_slots(), right,
                         [](Observation& shown) { shown.free_queue.emplace().back() = 3; }),
            "queue_holds_the_unreferenced");
}

TEST(KVCacheInvariants, ABlockHasOnePlace) {
  Scene scene;
  scene.tables = {{"A", {{1, 2, 2}}}};
  scene.queue = {3, 4, 5, 6, 7};
  scene.keys[1] = "A:0/0";
  EXPECT_EQ(scene.broken(Scene::first_slots(), Scene::with_slots(scene.show(), {{1, 2, 2}})),
            "a_block_has_one_place");

  // Requests of the same prefix share; others do not.
  Scene sharing;
  sharing.share_prefix();
  sharing.tables[1].blocks[0].push_back(3);
  EXPECT_EQ(
      sharing.broken(AllocateSlots{.request = "B", .num_computed_tokens = 5, .num_new_tokens = 2},
                     Scene::with_slots(sharing.show(), {{3}})),
      "a_block_has_one_place");
}

TEST(KVCacheInvariants, KeysFitTheirPlaces) {
  Scene scene;
  const Observation right = scene.show_first_slots();
  EXPECT_EQ(scene.broken(Scene::first_slots(), right,
                         [](Observation& shown) {
                           KeyList& keys = shown.keys.emplace();
                           std::swap(keys[1], keys[2]);
                         }),
            "keys_fit_their_places");
}

TEST(KVCacheInvariants, NumbersAddUp) {
  Scene scene;
  const Observation right = scene.show_first_slots();
  for (const auto& change : std::vector<std::function<void(Observation&)>>{
           [](Observation& shown) { ++shown.num_free_blocks; },
           [](Observation& shown) { --shown.num_cached_keys; },
           [](Observation& shown) { shown.usage = 0.5; }}) {
    EXPECT_EQ(scene.broken(Scene::first_slots(), right, change), "numbers_add_up");
  }
}

TEST(KVCacheInvariants, NothingIsHeldWhenAllIsFreed) {
  Scene scene;
  scene.allocate_first();
  Observation numbers;
  numbers.num_free_blocks = 6;
  numbers.num_cached_keys = 2;
  numbers.usage = 1.0 - 6.0 / 7.0;
  EXPECT_EQ(scene.broken(Free{"A"}, numbers), "nothing_is_held_when_all_is_freed");
  numbers.num_free_blocks = 7;
  numbers.usage = 0;
  EXPECT_EQ(scene.broken(Free{"A"}, numbers), "");

  Scene sharing;
  sharing.share_prefix();
  EXPECT_EQ(sharing.broken(Free{"A"}, sharing.show()), "nothing_is_held_when_all_is_freed");
}

TEST(KVCacheInvariants, NeededPlacesKeepTheirBlocks) {
  Scene scene;
  scene.allocate_first();
  Scene exchanged = scene;
  exchanged.tables = {{"A", {{1, 2, 4}}}};
  exchanged.queue = {3, 5, 6, 7};
  const AllocateSlots again{.request = "A", .num_computed_tokens = 5, .num_new_tokens = 1};
  EXPECT_EQ(exchanged.broken(again, Scene::with_slots(exchanged.show(), {{}})),
            "needed_places_keep_their_blocks");
  EXPECT_EQ(exchanged.broken(NewStepStarts{}, exchanged.show()), "needed_places_keep_their_blocks");

  Scene sliding(Scene::window());
  sliding.allocate_first();
  EXPECT_EQ(sliding.broken(RemoveSkippedBlocks{"A", 5}, sliding.show()), "");  // later is sound
  sliding.tables = {{"A", {{0, 0, 3}}}};
  sliding.queue = {4, 5, 6, 7, 2, 1};
  EXPECT_EQ(sliding.broken(RemoveSkippedBlocks{"A", 5}, sliding.show()), "");
  EXPECT_EQ(sliding.broken(RemoveSkippedBlocks{"A", 3}, sliding.show()),
            "needed_places_keep_their_blocks");
}

TEST(KVCacheInvariants, AllocationCoversTheTokens) {
  Scene scene;
  scene.queue.erase(scene.queue.begin(), scene.queue.begin() + 2);
  scene.keys[1] = "A:0/0";
  scene.keys[2] = "A:1/0";
  scene.tables = {{"A", {{1, 2}}}};
  const Observation short_table = Scene::with_slots(scene.show(), {{1, 2}});
  EXPECT_EQ(scene.broken(AllocateSlots{.request = "A", .num_new_tokens = 4}, short_table), "");
  EXPECT_EQ(scene.broken(Scene::first_slots(), short_table), "allocation_covers_the_tokens");
}

TEST(KVCacheInvariants, KeysFollowComputedTokens) {
  Scene scene;
  const Observation cached = scene.show_first_slots();
  AllocateSlots command = Scene::first_slots();
  command.delay_cache_blocks = true;
  EXPECT_EQ(scene.broken(command, cached), "keys_follow_computed_tokens");
  command = {.request = "A", .num_new_tokens = 3, .num_lookahead_tokens = 2};
  EXPECT_EQ(scene.broken(command, cached), "keys_follow_computed_tokens");

  scene.keys[2] = "";
  scene.pass(Scene::first_slots(), Scene::with_slots(scene.show(), {{1, 2, 3}}));
  scene.keys[2] = "A:1/0";
  EXPECT_EQ(scene.broken(CacheBlocks{"A", 3}, scene.show()), "keys_follow_computed_tokens");
  EXPECT_EQ(scene.broken(CacheBlocks{"A", 4}, scene.show()), "");
  EXPECT_EQ(scene.broken(NewStepStarts{}, scene.show()), "keys_follow_computed_tokens");
}

TEST(KVCacheInvariants, EvictedIsGone) {
  Scene scene;
  scene.allocate_first();
  EXPECT_EQ(scene.broken(EvictBlocks{{1}}, scene.show()), "evicted_is_gone");
  scene.tables.clear();
  scene.queue = {4, 5, 6, 7, 3, 2, 1};
  scene.pass(Free{"A"}, scene.show());
  Observation kept = scene.show();
  kept.success.emplace() = true;
  EXPECT_EQ(scene.broken(ResetPrefixCache{}, kept), "evicted_is_gone");
  scene.keys[1] = "";
  EXPECT_EQ(scene.broken(EvictBlocks{{1}}, scene.show()), "");
}

TEST(KVCacheInvariants, HitIsCachedInEveryGroup) {
  Scene scene;
  scene.allocate_first();
  const GetComputedBlocks lookup{"B"};
  const auto hit = [&](BlockLists blocks, std::uint32_t num_tokens) {
    return scene.broken(lookup, Scene::with_hit(scene.show(), std::move(blocks), num_tokens));
  };
  constexpr std::string_view kRule = "hit_is_cached_in_every_group";
  EXPECT_EQ(hit({{1, 2}}, 4), "");
  EXPECT_EQ(hit({{1, 2, 3}}, 6), kRule) << "longer than the request";
  EXPECT_EQ(hit({{1, 2}}, 3), kRule) << "no whole blocks";
  EXPECT_EQ(hit({{1}}, 4), kRule) << "blocks and tokens differ";
  EXPECT_EQ(hit({{1}}, 2), "") << "a shorter hit is right";
  EXPECT_EQ(hit({{2, 1}}, 4), kRule) << "keys of other places";
  EXPECT_EQ(hit({{0, 2}}, 4), kRule) << "full attention needs all";

  Scene sliding(Scene::window());
  sliding.allocate_first();
  EXPECT_EQ(sliding.broken(lookup, Scene::with_hit(sliding.show(), {{0, 2}}, 4)), "");
  EXPECT_EQ(sliding.broken(lookup, Scene::with_hit(sliding.show(), {{1, 0}}, 4)), kRule);
}

TEST(KVCacheInvariants, StateOfThisStepIsNotHit) {
  Config config = Scene::plain();
  config.groups = {KVCacheSpec{.kind = KVCacheSpecKind::kMamba, .block_size = 2}};
  for (const bool same_step : {true, false}) {
    Scene scene(config);
    scene.allocate_first();
    if (!same_step) scene.pass(NewStepStarts{}, scene.show());
    scene.tables.push_back({"B", {{0, 2, 4}}});
    scene.queue.erase(scene.queue.begin());
    EXPECT_EQ(scene.broken(Scene::second_slots(), Scene::with_slots(scene.show(), {{4}})),
              same_step ? "state_of_this_step_is_not_hit" : "");
  }
}

TEST(KVCacheInvariants, CommonPrefixIsHeldByAll) {
  Scene scene;
  scene.share_prefix();
  Observation shown = scene.show();
  shown.counts.emplace() = {2};
  EXPECT_EQ(scene.broken(GetNumCommonPrefixBlocks{"A"}, shown), "");
  shown.counts.emplace() = {3};
  EXPECT_EQ(scene.broken(GetNumCommonPrefixBlocks{"A"}, shown), "common_prefix_is_held_by_all");
}

TEST(KVCacheInvariants, EventsMirrorTheKeys) {
  Scene scene;
  scene.allocate_first();
  const auto answer = [&](std::vector<KVCacheEvent> events) {
    Observation shown = scene.show();
    shown.events.emplace() = std::move(events);
    return scene.broken(TakeEvents{}, shown);
  };
  BlockStored stored;
  stored.block_hashes = {scene.bytes("A:0"), scene.bytes("A:1")};
  EXPECT_EQ(answer({stored}), "");
  EXPECT_EQ(answer({}), "events_mirror_the_keys") << "nothing of what was stored";
  EXPECT_EQ(answer({stored, stored}), "events_mirror_the_keys") << "twice";
  EXPECT_EQ(answer({stored, BlockRemoved{scene.bytes("B:0"), std::nullopt}}),
            "events_mirror_the_keys")
      << "removed, but still there";
  BlockStored with_group = stored;
  with_group.group_idx = 0;
  EXPECT_EQ(answer({with_group}), "events_mirror_the_keys") << "not in this profile";
}

TEST(KVCacheInvariants, RefusedChangesNothing) {
  Scene scene;
  scene.allocate_first();
  for (const auto& change : std::vector<std::function<void(Observation&)>>{
           [](Observation& shown) {
             std::swap(shown.free_queue.emplace()[0], shown.free_queue.emplace()[1]);
           },
           [](Observation& shown) { shown.ref_cnts.emplace()[3] = 0; },
           [](Observation& shown) { shown.keys.emplace()[1].clear(); },
           [](Observation& shown) { shown.tables.emplace().clear(); }}) {
    EXPECT_EQ(scene.broken(Free{"nobody"}, scene.show(ErrorCode::kUnknownRequest), change),
              "refused_changes_nothing");
  }
}

TEST(KVCacheInvariants, AreNumberedInOrderAndNamedOnce) {
  expect_numbered_and_named_once(rules().rows, "kv_cache.");
}

}  // namespace
}  // namespace kvfence::kv_cache
