#include <algorithm>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "properties/core/rules_test_support.h"
#include "properties/targets/rooms.h"

namespace kvfence::block_pool {
namespace {

using Keys = std::vector<std::string>;

/// A pool of four blocks whose observations are written by hand. Requests A and B share their first
/// hash.
class Scene {
 public:
  explicit Scene(Config config = small_config())
      : config_(*make_block_pool_config(config)), world_(config_) {
    queue.resize(config.num_gpu_blocks - 1);
    for (BlockId block = 1; block < config.num_gpu_blocks; ++block) queue[block - 1] = block;
    refs.resize(config.num_gpu_blocks);
    keys.resize(config.num_gpu_blocks);
    world_.apply(DeclareRequest{{"A", {1, 2, 3, 4}, std::nullopt, 0, std::nullopt, {}}});
    world_.apply(DeclareRequest{{"B", {1, 2, 9, 9}, std::nullopt, 0, std::nullopt, {}}});
  }

  static Config small_config() {
    Config config;
    config.num_gpu_blocks = 4;
    config.hash_block_size = 2;
    config.max_block_size = 4;
    config.profile = Profile::kV023;
    return config;
  }

  // What the next observation shows: keys as symbols, empty for none.
  std::vector<BlockId> queue;
  std::vector<std::uint32_t> refs;
  Keys keys;

  std::string bytes(std::string_view symbol) const {
    return symbol.empty() ? std::string() : world_.requests().resolve(symbol).value();
  }

  /// The observation of the lists above, with the numbers that follow from them.
  Observation show(ErrorCode error = ErrorCode::kNone) const {
    Observation shown;
    shown.error = error;
    shown.free_queue.emplace() = queue;
    shown.ref_cnts.emplace() = refs;
    std::set<std::string> distinct;
    for (const std::string& key : keys) {
      shown.keys.emplace().push_back(bytes(key));
      if (!key.empty()) distinct.insert(key);
    }
    shown.num_free_blocks = static_cast<std::uint32_t>(queue.size());
    shown.num_cached = static_cast<std::uint32_t>(std::count_if(
        queue.begin(), queue.end(), [&](BlockId block) { return !keys[block].empty(); }));
    shown.num_empty = shown.num_free_blocks - shown.num_cached;
    shown.num_referenced = static_cast<std::uint32_t>(keys.size()) - shown.num_free_blocks;
    shown.num_cached_keys = static_cast<std::uint32_t>(distinct.size());
    shown.usage = 1.0 - static_cast<double>(queue.size()) / static_cast<double>(keys.size() - 1);
    return shown;
  }

  static Observation with_blocks(Observation shown, std::vector<BlockId> blocks) {
    shown.blocks.emplace() = std::move(blocks);
    return shown;
  }
  static Observation with_hit(Observation shown, std::optional<std::vector<BlockId>> blocks) {
    shown.hit.emplace() = blocks.has_value();
    if (blocks) shown.blocks.emplace() = *blocks;
    return shown;
  }
  static Observation with_success(Observation shown, bool success) {
    shown.success.emplace() = success;
    return shown;
  }
  static Observation with_events(Observation shown, std::vector<KVCacheEvent> events) {
    shown.events.emplace() = std::move(events);
    return shown;
  }

  /// The verdict on such an answer; the scene does not change.
  std::optional<Divergence> verdict(const Command& command, const Observation& shown) const {
    World world = world_;
    world.apply(command);
    return run_.verdict(command, shown, world);
  }

  /// Continues after a right answer.
  void pass(const Command& command, const Observation& shown) {
    world_.apply(command);
    run_.pass(command, shown, world_);
  }

  /// Blocks 1 and 2 handed out, with hashes A:0 and A:1 in group 0.
  void hand_out_and_cache() {
    queue = {3};
    refs = {0, 1, 1, 0};
    pass(GetNewBlocks{2}, with_blocks(show(), {1, 2}));
    keys = {"", "A:0/0", "A:1/0", ""};
    pass(cache_of("A", {1, 2}, 0, 2), show());
  }

  /// The same, then both are freed, block 2 first: the queue is 3 2 1.
  void leave_cached() {
    hand_out_and_cache();
    queue = {3, 2, 1};
    refs = {0, 0, 0, 0};
    pass(FreeBlocks{{2, 1}, false}, show());
  }

  static CacheFullBlocks cache_of(std::string request, std::vector<BlockId> blocks,
                                  std::uint32_t begin, std::uint32_t end, GroupId group = 0) {
    return {std::move(request), std::move(blocks), begin, end, 2, group, std::nullopt};
  }

  BlockStored stored(std::vector<std::string_view> symbols) const {
    BlockStored event;
    for (std::string_view symbol : symbols) event.block_hashes.push_back(bytes(symbol));
    if (config_.rules.events_carry_group) event.group_idx = 0;
    return event;
  }
  BlockRemoved removed(std::string_view symbol) const {
    BlockRemoved event;
    event.block_hash = bytes(symbol);
    if (config_.rules.events_carry_group) event.group_idx = 0;
    return event;
  }

 private:
  BlockPoolConfig config_;
  World world_;
  WatchedRun<BlockPoolTarget> run_{[this] { return rules().make(config_); }};
};

/// The verdict names this invariant and this place.
void expect_broken(const std::optional<Divergence>& found, std::string_view id,
                   std::string_view field) {
  kvfence::expect_broken(rules().rows, found, id, field);
}

TEST(Invariants, AreNumberedInOrderAndNamedOnce) {
  expect_numbered_and_named_once(rules().rows, "pool.");
}

TEST(Invariants, RefCntCountsHolders) {
  Scene scene;
  scene.hand_out_and_cache();
  scene.refs = {0, 2, 1, 0};  // the second touch of the list was lost
  expect_broken(scene.verdict(Touch{{1, 0, 1}}, scene.show()), "pool.1", "ref_cnts[1]");
  scene.refs = {0, 3, 1, 0};
  scene.pass(Touch{{1, 0, 1}}, scene.show());
  expect_broken(scene.verdict(FreeBlocks{{1}, false}, scene.show()), "pool.1", "ref_cnts[1]");
  expect_broken(scene.verdict(FreeBlocks{{3}, false}, scene.show()), "pool.1", "error");
}

TEST(Invariants, QueueHoldsTheUnreferenced) {
  Scene scene;
  scene.leave_cached();
  scene.refs = {0, 1, 0, 0};
  const Observation right = [&] {
    scene.queue = {2, 3};  // in any order
    return scene.show();
  }();
  for (const std::vector<BlockId>& wrong : {std::vector<BlockId>{3, 2, 1}, {3}, {3, 3}, {3, 9}}) {
    Observation shown = right;
    shown.free_queue.emplace() = wrong;
    expect_broken(scene.verdict(Touch{{1}}, shown), "pool.2", "free_queue");
  }
  scene.pass(Touch{{1}}, right);
}

TEST(Invariants, NullBlockStaysOut) {
  Scene scene;
  scene.hand_out_and_cache();
  const Command touch = Touch{{0}};
  scene.refs[0] = 1;
  expect_broken(scene.verdict(touch, scene.show()), "pool.3", "ref_cnts[0]");
  scene.refs[0] = 0;
  scene.keys[0] = "B:0/0";
  expect_broken(scene.verdict(touch, scene.show()), "pool.3", "keys[0]");
  scene.keys[0] = "";
  Observation shown = scene.show();
  shown.free_queue.emplace() = {3, 0};
  expect_broken(scene.verdict(touch, shown), "pool.3", "free_queue");
}

TEST(Invariants, NumbersAddUp) {
  Scene scene;
  scene.hand_out_and_cache();
  scene.queue = {3, 1};
  scene.refs = {0, 0, 1, 0};
  const Observation right = scene.show();
  const auto verdict = [&](std::string_view field, auto change) {
    Observation shown = right;
    change(shown);
    expect_broken(scene.verdict(FreeBlocks{{1}, false}, shown), "pool.4", field);
  };
  verdict("num_free_blocks", [](Observation& shown) { shown.num_free_blocks = 1; });
  verdict("num_empty", [](Observation& shown) { shown.num_empty = 2; });
  verdict("num_empty", [](Observation& shown) { shown.num_cached = 0; });
  verdict("num_cached", [](Observation& shown) { shown.num_cached = 0, shown.num_empty = 2; });
  verdict("num_cached", [](Observation& shown) { shown.num_cached = 3; });
  verdict("num_referenced", [](Observation& shown) { shown.num_referenced = 1; });
  verdict("num_cached_keys", [](Observation& shown) { shown.num_cached_keys = 1; });
  verdict("usage", [](Observation& shown) { shown.usage = 0.5; });  // of four blocks
  // Without the state, too.
  Observation numbers = right;
  numbers.keys.reset();
  numbers.num_free_blocks = 1;
  expect_broken(scene.verdict(FreeBlocks{{1}, false}, numbers), "pool.4", "num_free_blocks");
  scene.pass(FreeBlocks{{1}, false}, right);
}

TEST(Invariants, NewBlocksAreUnused) {
  Scene scene;
  scene.hand_out_and_cache();
  scene.queue = {};
  scene.refs = {0, 1, 1, 1};
  for (const std::vector<BlockId>& wrong : {std::vector<BlockId>{1}, {0}, {9}, {}, {3, 3}}) {
    const Observation shown = Scene::with_blocks(scene.show(), wrong);
    const auto found = scene.verdict(GetNewBlocks{1}, shown);
    expect_broken(found, "pool.5", found ? found->field : "");
  }
  scene.pass(GetNewBlocks{1}, Scene::with_blocks(scene.show(), {3}));
}

TEST(Invariants, LookupAgreesWithKeys) {
  Scene scene;
  scene.hand_out_and_cache();
  const Command lookup = GetCachedBlock{"B", 0, 2, {0}};
  const Observation shown = scene.show();
  expect_broken(scene.verdict(lookup, Scene::with_hit(shown, {{2}})), "pool.6", "blocks");
  expect_broken(scene.verdict(lookup, Scene::with_hit(shown, std::nullopt)), "pool.6", "hit");
  scene.pass(lookup, Scene::with_hit(shown, {{1}}));
  const Command both_groups = GetCachedBlock{"A", 0, 2, {0, 1}};
  expect_broken(scene.verdict(both_groups, Scene::with_hit(shown, {{1, 1}})), "pool.6", "blocks");
  scene.pass(both_groups, Scene::with_hit(shown, std::nullopt));
  const Command merged = GetCachedBlock{"A", 0, 4, {0}};
  expect_broken(scene.verdict(merged, Scene::with_hit(shown, {{2}})), "pool.6", "blocks");
}

TEST(Invariants, KeysAreWhatWasCached) {
  Scene scene;
  scene.queue = {};
  scene.refs = {0, 1, 1, 1};
  scene.pass(GetNewBlocks{3}, Scene::with_blocks(scene.show(), {1, 2, 3}));
  CacheFullBlocks masked = Scene::cache_of("A", {1, 2}, 0, 2);
  masked.block_mask = {false, true};
  for (const Keys& wrong :
       {Keys{"", "A:0/0", "A:1/0", ""}, {"", "", "A:0/0", ""}, {"", "", "A:1/1", ""}}) {
    scene.keys = wrong;
    const auto found = scene.verdict(masked, scene.show());
    expect_broken(found, "pool.7", found ? found->field : "");
  }
  scene.keys = {"", "", "A:1/0", ""};
  scene.pass(masked, scene.show());
  CacheFullBlocks merged = Scene::cache_of("A", {1}, 0, 1);
  merged.block_size = 4;
  scene.keys[1] = "A:1/0";  // the last fine hash instead of both
  expect_broken(scene.verdict(merged, scene.show()), "pool.7", "keys[1]");
  scene.keys[1] = "A:0*2/0";
  scene.pass(merged, scene.show());

  expect_broken(scene.verdict(EvictBlocks{{1}}, scene.show()), "pool.7", "keys[1]");
  scene.queue = {3, 2, 1};
  scene.refs = {0, 0, 0, 0};
  scene.pass(FreeBlocks{{1, 2, 3}, false}, scene.show());
  expect_broken(scene.verdict(ResetPrefixCache{}, Scene::with_success(scene.show(), true)),
                "pool.7", "keys[1]");
  scene.pass(ResetPrefixCache{}, Scene::with_success(scene.show(), false));
  scene.queue = {3, 2};
  scene.refs = {0, 1, 0, 0};
  const Observation reused = Scene::with_blocks(scene.show(), {1});
  expect_broken(scene.verdict(GetNewBlocks{1}, reused), "pool.7", "keys[1]");
}

TEST(Invariants, EventsMirrorTheKeys) {
  Scene scene;
  scene.hand_out_and_cache();
  scene.keys[2] = "";
  scene.pass(EvictBlocks{{2}}, scene.show());
  const auto shown = [&](std::vector<KVCacheEvent> events) {
    return Scene::with_events(scene.show(), std::move(events));
  };
  const auto verdict = [&](std::vector<KVCacheEvent> events) {
    return scene.verdict(TakeEvents{}, shown(std::move(events)));
  };
  const BlockStored stored = scene.stored({"A:0", "A:1"});
  const BlockRemoved removed = scene.removed("A:1");
  BlockRemoved other_group = removed;
  other_group.group_idx = 1;
  BlockRemoved without_group = removed;
  without_group.group_idx.reset();
  expect_broken(verdict({stored}), "pool.8", "events");
  expect_broken(verdict({stored, removed, AllBlocksCleared{}}), "pool.8", "events");
  expect_broken(verdict({removed, stored}), "pool.8", "events[0]");
  expect_broken(verdict({stored, removed, removed}), "pool.8", "events[2]");
  expect_broken(verdict({stored, other_group}), "pool.8", "events[1]");
  expect_broken(verdict({stored, without_group}), "pool.8", "events[1]");
  scene.pass(TakeEvents{}, shown({stored, removed}));
  expect_broken(verdict({stored}), "pool.8", "events");

  Config config = Scene::small_config();
  config.enable_kv_cache_events = false;
  Scene off(config);
  expect_broken(off.verdict(TakeEvents{}, Scene::with_events(off.show(), {AllBlocksCleared{}})),
                "pool.8", "events[0]");
}

TEST(Invariants, RefusedChangesNothing) {
  Scene scene;
  scene.leave_cached();
  const Command refused = FreeBlocks{{1}, false};
  const Observation right = scene.show(ErrorCode::kDoubleFree);
  Observation shown = right;
  shown.free_queue.emplace() = {3, 1, 2};
  expect_broken(scene.verdict(refused, shown), "pool.9", "free_queue[1]");
  shown = right;
  shown.ref_cnts.emplace()[1] = 1;
  expect_broken(scene.verdict(refused, shown), "pool.9", "ref_cnts[1]");
  shown = right;
  shown.keys.emplace()[2].clear();
  expect_broken(scene.verdict(refused, shown), "pool.9", "keys[2]");
  scene.pass(refused, right);
}

}  // namespace
}  // namespace kvfence::block_pool
