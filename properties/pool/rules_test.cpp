#include "properties/pool/rules.h"

#include <algorithm>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "properties/core/rules_test_support.h"

namespace kvfence::block_pool {
namespace {

using Keys = std::vector<std::string>;

/// A pool of four blocks, as a hand writes down what it shows. Requests A and B share their first
/// hash.
class Scene {
 public:
  explicit Scene(Config config = small_config())
      : config_(*make_block_pool_config(config)), world_(config_), invariants_(config_) {
    queue.resize(config.num_gpu_blocks - 1);
    for (BlockId block = 1; block < config.num_gpu_blocks; ++block) queue[block - 1] = block;
    refs.resize(config.num_gpu_blocks);
    keys.resize(config.num_gpu_blocks);
    world_.apply(DeclareRequest{"A", {1, 2, 3, 4}, std::nullopt, 0, std::nullopt, {}});
    world_.apply(DeclareRequest{"B", {1, 2, 9, 9}, std::nullopt, 0, std::nullopt, {}});
  }

  static Config small_config() {
    Config config;
    config.num_gpu_blocks = 4;
    config.hash_block_size = 2;
    config.max_block_size = 4;
    config.profile = "v0.23";
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

  /// The verdict if the pool answered so; the scene stays where it is.
  std::optional<Divergence> verdict(const Command& command, const Observation& shown) const {
    World world = world_;
    world.apply(command);
    Invariants invariants = invariants_;
    return invariants.check(command, shown, world, step_);
  }

  /// Goes on with an answer that is right.
  void pass(const Command& command, const Observation& shown) {
    world_.apply(command);
    const auto found = invariants_.check(command, shown, world_, step_++);
    if (found) {
      ADD_FAILURE() << "step " << found->step << ": " << found->message << "\n  " << found->field
                    << ": expected " << found->expected << ", actual " << found->actual;
    }
  }

  /// Blocks 1 and 2 handed out, with hashes A:0 and A:1 in group 0.
  void hand_out_and_cache() {
    queue = {3};
    refs = {0, 1, 1, 0};
    pass(GetNewBlocks{2}, with_blocks(show(), {1, 2}));
    keys = {"", "A:0/0", "A:1/0", ""};
    pass(cache_of("A", {1, 2}, 0, 2), show());
  }

  /// The same, and both freed, the second first: the queue is 3 2 1.
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
  Invariants invariants_;
  std::size_t step_ = 0;
};

/// The code `none` as a value: quoted, since the bare word stands for absence.
constexpr std::string_view kNoError = "none";

/// The verdict names this invariant, this place and these two sides.
void expect_broken(const std::optional<Divergence>& found, std::string_view id,
                   std::string_view field, std::string_view expected, std::string_view actual) {
  kvfence::expect_broken(kInvariants, found, id, field);
  ASSERT_TRUE(found);
  EXPECT_EQ(found->expected, expected);
  EXPECT_EQ(found->actual, actual);
}

TEST(Invariants, AreNumberedInOrderAndNamedOnce) {
  expect_numbered_and_named_once(kInvariants, 'I');
}

TEST(Invariants, I1RefCntCountsHolders) {
  Scene scene;
  scene.hand_out_and_cache();
  scene.refs = {0, 2, 1, 0};  // the second touch of the list was lost
  expect_broken(scene.verdict(Touch{{1, 0, 1}}, scene.show()), "I1", "ref_cnts[1]", "[0 3 1 0]",
                "[0 2 1 0]");
  scene.refs = {0, 3, 1, 0};
  scene.pass(Touch{{1, 0, 1}}, scene.show());

  expect_broken(scene.verdict(FreeBlocks{{1}, false}, scene.show()), "I1", "ref_cnts[1]",
                "[0 2 1 0]", "[0 3 1 0]");
  scene.refs = {0, 2, 1, 0};
  scene.pass(FreeBlocks{{1}, false}, scene.show());
}

TEST(Invariants, I2QueueHoldsTheUnreferenced) {
  Scene scene;
  scene.leave_cached();
  scene.refs = {0, 1, 0, 0};
  expect_broken(scene.verdict(Touch{{1}}, scene.show()), "I2", "free_queue[2]", "[3 2]", "[3 2 1]");
  scene.queue = {3};
  expect_broken(scene.verdict(Touch{{1}}, scene.show()), "I2", "free_queue[1]", "[3 2]", "[3]");
  scene.queue = {3, 3};
  expect_broken(scene.verdict(Touch{{1}}, scene.show()), "I2", "free_queue[1]", "[3 2]", "[3 3]");
  scene.queue = {3, 2};
  scene.pass(Touch{{1}}, scene.show());
}

TEST(Invariants, I3LookupAgreesWithKeys) {
  Scene scene;
  scene.hand_out_and_cache();
  // Block 3 gets the key of block 1 and is the younger carrier.
  scene.queue = {};
  scene.refs = {0, 1, 1, 1};
  scene.pass(GetNewBlocks{1}, Scene::with_blocks(scene.show(), {3}));
  scene.keys[3] = "A:0/0";
  scene.pass(Scene::cache_of("B", {3}, 0, 1), scene.show());

  const Command lookup = GetCachedBlock{"A", 0, 2, {0}};
  const Observation shown = scene.show();
  expect_broken(scene.verdict(lookup, Scene::with_hit(shown, {{3}})), "I3", "blocks[0]", "[1]",
                "[3]");
  expect_broken(scene.verdict(lookup, Scene::with_hit(shown, {{2}})), "I3", "blocks[0]", "[1]",
                "[2]");
  expect_broken(scene.verdict(lookup, Scene::with_hit(shown, std::nullopt)), "I3", "hit", "true",
                "false");
  scene.pass(lookup, Scene::with_hit(shown, {{1}}));

  const Command both_groups = GetCachedBlock{"A", 0, 2, {0, 1}};
  expect_broken(scene.verdict(both_groups, Scene::with_hit(shown, {{1, 1}})), "I3", "hit", "false",
                "true");
  scene.pass(both_groups, Scene::with_hit(shown, std::nullopt));
  const Command merged = GetCachedBlock{"A", 0, 4, {0}};
  expect_broken(scene.verdict(merged, Scene::with_hit(shown, {{2}})), "I3", "hit", "false", "true");
  scene.pass(merged, Scene::with_hit(shown, std::nullopt));

  // The older carrier goes: the younger one is found.
  scene.keys[1] = "";
  scene.pass(EvictBlocks{{1}}, scene.show());
  expect_broken(scene.verdict(lookup, Scene::with_hit(scene.show(), {{1}})), "I3", "blocks[0]",
                "[3]", "[1]");
  scene.pass(lookup, Scene::with_hit(scene.show(), {{3}}));
}

TEST(Invariants, I3GroupsAnswerInTheirOrder) {
  Scene scene;
  scene.queue = {3};
  scene.refs = {0, 1, 1, 0};
  scene.pass(GetNewBlocks{2}, Scene::with_blocks(scene.show(), {1, 2}));
  scene.keys = {"", "A:0/0", "", ""};
  scene.pass(Scene::cache_of("A", {1}, 0, 1, 0), scene.show());
  scene.keys = {"", "A:0/0", "A:0/1", ""};
  scene.pass(Scene::cache_of("A", {2}, 0, 1, 1), scene.show());

  const Command lookup = GetCachedBlock{"B", 0, 2, {1, 0}};
  expect_broken(scene.verdict(lookup, Scene::with_hit(scene.show(), {{1, 2}})), "I3", "blocks[0]",
                "[2 1]", "[1 2]");
  expect_broken(scene.verdict(lookup, Scene::with_hit(scene.show(), {{2}})), "I3", "blocks[1]",
                "[2 1]", "[2]");
  scene.pass(lookup, Scene::with_hit(scene.show(), {{2, 1}}));
}

TEST(Invariants, I4NumbersAddUp) {
  Scene scene;
  scene.hand_out_and_cache();
  scene.queue = {3, 1};
  scene.refs = {0, 0, 1, 0};
  const Command command = FreeBlocks{{1}, false};
  const Observation right = scene.show();

  Observation shown = right;
  shown.num_free_blocks = 1;
  expect_broken(scene.verdict(command, shown), "I4", "num_free_blocks", "2", "1");
  shown = right;
  shown.num_empty = 2;
  expect_broken(scene.verdict(command, shown), "I4", "num_empty", "1", "2");
  shown = right;
  shown.num_cached = 0;
  expect_broken(scene.verdict(command, shown), "I4", "num_cached", "1", "0");
  shown = right;
  shown.num_referenced = 1;  // the null block left out
  expect_broken(scene.verdict(command, shown), "I4", "num_referenced", "2", "1");
  shown = right;
  shown.num_cached_keys = 1;
  expect_broken(scene.verdict(command, shown), "I4", "num_cached_keys", "2", "1");
  shown = right;
  shown.usage = 0.5;  // of four blocks instead of three
  expect_broken(scene.verdict(command, shown), "I4", "usage", print(to_value(1.0 - 2.0 / 3.0)),
                "0.5");
  scene.pass(command, right);
}

TEST(Invariants, I5NewBlocksAreTheHead) {
  Scene scene;
  scene.leave_cached();
  scene.queue = {1};
  scene.refs = {0, 0, 1, 1};
  scene.keys = {"", "A:0/0", "", ""};
  const Command command = GetNewBlocks{2};
  const Observation shown = scene.show();
  expect_broken(scene.verdict(command, Scene::with_blocks(shown, {2, 3})), "I5", "blocks[0]",
                "[3 2]", "[2 3]");
  expect_broken(scene.verdict(command, Scene::with_blocks(shown, {3})), "I5", "blocks[1]", "[3 2]",
                "[3]");
  scene.refs[3] = 2;
  expect_broken(scene.verdict(command, Scene::with_blocks(scene.show(), {3, 2})), "I5",
                "ref_cnts[3]", "[0 0 1 1]", "[0 0 1 2]");
  scene.refs[3] = 1;
  scene.keys[2] = "A:1/0";
  expect_broken(scene.verdict(command, Scene::with_blocks(scene.show(), {3, 2})), "I5", "keys[2]",
                "[none A:0/0 none none]", "[none A:0/0 A:1/0 none]");
  scene.pass(command, Scene::with_blocks(shown, {3, 2}));
}

TEST(Invariants, I6NothingChangesUnasked) {
  Scene scene;
  scene.hand_out_and_cache();
  // A refusal that keeps the decrement of block 1.
  const Command refused = FreeBlocks{{1, 3}, false};
  scene.refs = {0, 0, 1, 0};
  expect_broken(scene.verdict(refused, scene.show(ErrorCode::kDoubleFree)), "I6", "ref_cnts[1]",
                "[0 1 1 0]", "[0 0 1 0]");
  scene.refs = {0, 1, 1, 0};
  scene.pass(refused, scene.show(ErrorCode::kDoubleFree));

  const Command lookup = GetCachedBlock{"A", 0, 2, {0}};
  scene.queue = {};
  expect_broken(scene.verdict(lookup, Scene::with_hit(scene.show(), {{1}})), "I6", "free_queue[0]",
                "[3]", "[]");
  scene.queue = {3};
  scene.pass(lookup, Scene::with_hit(scene.show(), {{1}}));

  const Command declared = DeclareRequest{"C", {1}, std::nullopt, 0, std::nullopt, {}};
  scene.keys[2] = "";
  expect_broken(scene.verdict(declared, scene.show()), "I6", "keys[2]", "[none A:0/0 A:1/0 none]",
                "[none A:0/0 none none]");
  scene.keys[2] = "A:1/0";
  scene.pass(declared, scene.show());

  Observation shown = scene.show(ErrorCode::kNoFreeBlocks);
  shown.num_cached_keys = 1;
  expect_broken(scene.verdict(GetNewBlocks{2}, shown), "I6", "num_cached_keys", "2", "1");
  scene.pass(GetNewBlocks{2}, scene.show(ErrorCode::kNoFreeBlocks));
}

TEST(Invariants, I7EventsMirrorTheKeys) {
  Scene scene;
  scene.hand_out_and_cache();
  scene.keys[2] = "";
  scene.pass(EvictBlocks{{2}}, scene.show());
  const Observation shown = scene.show();
  const auto verdict = [&](std::vector<KVCacheEvent> events) {
    return scene.verdict(TakeEvents{}, Scene::with_events(shown, std::move(events)));
  };
  const BlockStored stored = scene.stored({"A:0", "A:1"});
  const BlockRemoved removed = scene.removed("A:1");

  expect_broken(verdict({stored}), "I7", "events.count", "0", "1");
  expect_broken(verdict({scene.stored({"A:1"}), removed}), "I7", "events.count", "1", "0");
  expect_broken(verdict({removed, stored}), "I7", "events[0]", "\"a hash that the index holds\"",
                "(removed block_hash=A:1 group_idx=0)");
  expect_broken(verdict({stored, removed, removed}), "I7", "events[2]",
                "\"a hash that the index holds\"", "(removed block_hash=A:1 group_idx=0)");
  expect_broken(verdict({stored, removed, AllBlocksCleared{}}), "I7", "events.count", "1", "0");
  BlockRemoved without_group = removed;
  without_group.group_idx.reset();
  expect_broken(verdict({stored, without_group}), "I7", "events[1]", "\"an event with group_idx\"",
                "(removed block_hash=A:1)");
  BlockRemoved other_group = removed;
  other_group.group_idx = 1;
  expect_broken(verdict({stored, other_group}), "I7", "events[1]",
                "\"a hash that the index holds\"", "(removed block_hash=A:1 group_idx=1)");
  scene.pass(TakeEvents{}, Scene::with_events(shown, {stored, removed}));
  scene.pass(TakeEvents{}, Scene::with_events(shown, {}));
}

TEST(Invariants, I7ResetClearsTheIndex) {
  Scene scene;
  scene.leave_cached();
  scene.keys = {"", "", "", ""};
  scene.pass(ResetPrefixCache{}, Scene::with_success(scene.show(), true));
  const BlockStored stored = scene.stored({"A:0", "A:1"});
  const auto answer = [&](std::vector<KVCacheEvent> events) {
    return Scene::with_events(scene.show(), std::move(events));
  };
  expect_broken(scene.verdict(TakeEvents{}, answer({AllBlocksCleared{}, stored})), "I7",
                "events.count", "0", "1");
  scene.pass(TakeEvents{}, answer({stored, AllBlocksCleared{}}));
}

TEST(Invariants, I7NoEventWhereEventsAreOff) {
  Config config = Scene::small_config();
  config.enable_kv_cache_events = false;
  Scene scene(config);
  scene.hand_out_and_cache();
  const Observation answer = Scene::with_events(scene.show(), {AllBlocksCleared{}});
  expect_broken(scene.verdict(TakeEvents{}, answer), "I7", "events[0]", "[]", "[(cleared)]");
  scene.pass(TakeEvents{}, Scene::with_events(scene.show(), {}));
}

TEST(Invariants, I8QueueKeepsItsOrder) {
  Scene scene;
  scene.hand_out_and_cache();
  scene.refs = {0, 0, 0, 0};
  const Command to_tail = FreeBlocks{{2, 0, 1}, false};
  scene.queue = {3, 1, 2};
  expect_broken(scene.verdict(to_tail, scene.show()), "I8", "free_queue[1]", "[3 2 1]", "[3 1 2]");
  const Command to_head = FreeBlocks{{2, 1}, true};
  expect_broken(scene.verdict(to_head, scene.show()), "I8", "free_queue[0]", "[2 1 3]", "[3 1 2]");
  scene.queue = {2, 1, 3};
  scene.pass(to_head, scene.show());

  scene.queue = {3, 2};
  scene.refs = {0, 1, 0, 0};
  expect_broken(scene.verdict(Touch{{1}}, scene.show()), "I8", "free_queue[0]", "[2 3]", "[3 2]");
  scene.queue = {2, 3};
  scene.pass(Touch{{1}}, scene.show());

  scene.keys[2] = "";
  scene.queue = {3, 2};
  expect_broken(scene.verdict(EvictBlocks{{2}}, scene.show()), "I8", "free_queue[0]", "[2 3]",
                "[3 2]");
  scene.queue = {2, 3};
  scene.pass(EvictBlocks{{2}}, scene.show());
}

TEST(Invariants, I9KeysChangeAsAsked) {
  Scene scene;
  scene.queue = {};
  scene.refs = {0, 1, 1, 1};
  scene.pass(GetNewBlocks{3}, Scene::with_blocks(scene.show(), {1, 2, 3}));

  CacheFullBlocks masked = Scene::cache_of("A", {1, 2}, 0, 2);
  masked.block_mask = {false, true};
  scene.keys = {"", "A:0/0", "A:1/0", ""};
  expect_broken(scene.verdict(masked, scene.show()), "I9", "keys[1]", "[none none A:1/0 none]",
                "[none A:0/0 A:1/0 none]");
  scene.keys = {"", "", "A:0/0", ""};
  expect_broken(scene.verdict(masked, scene.show()), "I9", "keys[2]", "[none none A:1/0 none]",
                "[none none A:0/0 none]");
  scene.keys = {"", "", "A:1/1", ""};
  expect_broken(scene.verdict(masked, scene.show()), "I9", "keys[2]", "[none none A:1/0 none]",
                "[none none A:1/1 none]");
  scene.keys = {"", "", "A:1/0", ""};
  scene.pass(masked, scene.show());

  scene.keys = {"", "", "", ""};
  scene.queue = {2};
  scene.refs = {0, 1, 0, 1};
  expect_broken(scene.verdict(FreeBlocks{{2}, false}, scene.show()), "I9", "keys[2]",
                "[none none A:1/0 none]", "[none none none none]");
  scene.keys = {"", "", "A:1/0", ""};
  scene.pass(FreeBlocks{{2}, false}, scene.show());
  expect_broken(scene.verdict(EvictBlocks{{2}}, scene.show()), "I9", "keys[2]",
                "[none none none none]", "[none none A:1/0 none]");
}

TEST(Invariants, I9MergedHash) {
  Scene scene;
  scene.queue = {2, 3};
  scene.refs = {0, 1, 0, 0};
  scene.pass(GetNewBlocks{1}, Scene::with_blocks(scene.show(), {1}));
  CacheFullBlocks merged = Scene::cache_of("A", {1}, 0, 1);
  merged.block_size = 4;
  scene.keys[1] = "A:1/0";  // the last fine hash instead of both
  expect_broken(scene.verdict(merged, scene.show()), "I9", "keys[1]", "[none A:0*2/0 none none]",
                "[none A:1/0 none none]");
  scene.keys[1] = "A:0*2/0";
  scene.pass(merged, scene.show());
}

TEST(Invariants, I10NullBlockStaysOut) {
  Scene scene;
  scene.hand_out_and_cache();
  const Command touch = Touch{{0}};
  scene.refs[0] = 1;
  expect_broken(scene.verdict(touch, scene.show()), "I10", "ref_cnts[0]", "[0 1 1 0]", "[1 1 1 0]");
  scene.refs[0] = 0;
  scene.pass(touch, scene.show());

  const Command cache = Scene::cache_of("B", {0, 0}, 0, 1);
  scene.keys[0] = "B:0/0";
  expect_broken(scene.verdict(cache, scene.show()), "I10", "keys[0]", "[none A:0/0 A:1/0 none]",
                "[A:0/0 A:0/0 A:1/0 none]");
  scene.keys[0] = "";
  scene.pass(cache, scene.show());

  const Command freed = FreeBlocks{{0}, false};
  scene.queue = {3, 0};
  expect_broken(scene.verdict(freed, scene.show()), "I10", "free_queue[1]", "[3]", "[3 0]");
  scene.queue = {3};
  scene.pass(freed, scene.show());
}

TEST(Invariants, I11ResetNeedsAnIdlePool) {
  Scene scene;
  scene.hand_out_and_cache();
  const Observation busy = scene.show();
  expect_broken(scene.verdict(ResetPrefixCache{}, Scene::with_success(busy, true)), "I11",
                "success", "false", "true");
  scene.pass(ResetPrefixCache{}, Scene::with_success(busy, false));

  scene.queue = {3, 1, 2};
  scene.refs = {0, 0, 0, 0};
  scene.pass(FreeBlocks{{1, 2}, false}, scene.show());
  expect_broken(scene.verdict(ResetPrefixCache{}, Scene::with_success(scene.show(), false)), "I11",
                "success", "true", "false");
  scene.keys[1] = "";
  expect_broken(scene.verdict(ResetPrefixCache{}, Scene::with_success(scene.show(), true)), "I11",
                "keys[2]", "[none none none none]", "[none none A:1/0 none]");
  scene.keys[2] = "";
  scene.pass(ResetPrefixCache{}, Scene::with_success(scene.show(), true));
}

TEST(Invariants, I12AnswersFitTheCommand) {
  Scene scene;
  scene.hand_out_and_cache();
  const Observation shown = scene.show();
  const auto refused = [&](ErrorCode error) { return scene.show(error); };

  expect_broken(scene.verdict(FreeBlocks{{1, 1}, false}, shown), "I12", "error", "double_free",
                kNoError);
  expect_broken(scene.verdict(FreeBlocks{{1, 9}, false}, refused(ErrorCode::kDoubleFree)), "I12",
                "error", "unknown_block", "double_free");
  expect_broken(scene.verdict(EvictBlocks{{1}}, refused(ErrorCode::kUnknownBlock)), "I12", "error",
                kNoError, "unknown_block");
  expect_broken(scene.verdict(ResetPrefixCache{}, shown), "I12", "success", "\"an answer\"",
                "none");
  expect_broken(scene.verdict(Touch{{1}}, Scene::with_blocks(shown, {1})), "I12", "blocks", "none",
                "\"an answer\"");
  scene.pass(FreeBlocks{{1, 1}, false}, refused(ErrorCode::kDoubleFree));
}

// Each line is a command that the contract refuses with this code, and no other.
TEST(Invariants, I12KnowsEveryRefusal) {
  struct Refusal {
    Command command;
    ErrorCode error;
  };
  CacheFullBlocks short_mask = Scene::cache_of("A", {3}, 0, 1);
  short_mask.block_mask = {true, true};
  CacheFullBlocks odd_size = Scene::cache_of("A", {3}, 0, 1);
  odd_size.block_size = 3;
  const std::vector<Refusal> refusals = {
      {AppendTokens{"Z", {1}}, ErrorCode::kUnknownRequest},
      {GetNewBlocks{2}, ErrorCode::kNoFreeBlocks},
      {GetCachedBlock{"Z", 0, 2, {0}}, ErrorCode::kUnknownRequest},
      {GetCachedBlock{"A", 0, 6, {0}}, ErrorCode::kBadBlockSize},
      {GetCachedBlock{"A", 0, 0, {0}}, ErrorCode::kBadBlockSize},
      {GetCachedBlock{"A", 2, 2, {0}}, ErrorCode::kMissingHash},
      {Touch{{1, 4}}, ErrorCode::kUnknownBlock},
      {EvictBlocks{{4}}, ErrorCode::kUnknownBlock},
      {FreeBlocks{{3}, false}, ErrorCode::kDoubleFree},
      {Scene::cache_of("Z", {3}, 0, 1), ErrorCode::kUnknownRequest},
      {odd_size, ErrorCode::kBadBlockSize},
      {Scene::cache_of("A", {3}, 0, 2), ErrorCode::kBadRange},
      {short_mask, ErrorCode::kBadMask},
      {Scene::cache_of("A", {0, 0, 3}, 0, 3), ErrorCode::kMissingHash},
      {Scene::cache_of("A", {9}, 0, 1), ErrorCode::kUnknownBlock},
      {Scene::cache_of("A", {1}, 0, 1), ErrorCode::kAlreadyHashed},
      {Scene::cache_of("A", {3, 3}, 0, 2), ErrorCode::kAlreadyHashed},
  };
  Scene scene;
  scene.hand_out_and_cache();
  for (const Refusal& refusal : refusals) {
    SCOPED_TRACE(print(to_line(kvfence::Command(refusal.command))));
    expect_broken(scene.verdict(refusal.command, scene.show(ErrorCode::kQueueEmpty)), "I12",
                  "error", to_text(refusal.error), "queue_empty");
    scene.pass(refusal.command, scene.show(refusal.error));
  }
}

TEST(Invariants, I12KnowsWhatAProfileLacks) {
  Config config = Scene::small_config();
  config.profile = "v0.19";
  Scene scene(config);
  scene.hand_out_and_cache();
  // A mask is refused before the empty range is passed over.
  CacheFullBlocks masked = Scene::cache_of("A", {1}, 1, 1);
  masked.block_mask = {true};
  scene.pass(masked, scene.show(ErrorCode::kNotInProfile));
  scene.pass(FreeBlocks{{1}, true}, scene.show(ErrorCode::kNotInProfile));
  expect_broken(scene.verdict(FreeBlocks{{1}, true}, scene.show()), "I12", "error",
                "not_in_profile", kNoError);

  config.enable_caching = false;
  Scene uncached(config);
  uncached.pass(Scene::cache_of("A", {1}, 1, 1), uncached.show());
  uncached.pass(Scene::cache_of("A", {1}, 0, 1), uncached.show(ErrorCode::kCachingDisabled));
}

/// The observation without its state members.
Observation numbers_of(Observation shown) {
  shown.free_queue.reset();
  shown.ref_cnts.reset();
  shown.keys.reset();
  return shown;
}

TEST(Invariants, BookkeepingGoesOnWithoutState) {
  Scene scene;
  scene.queue = {3};
  scene.refs = {0, 1, 1, 0};
  scene.pass(GetNewBlocks{2}, Scene::with_blocks(numbers_of(scene.show()), {1, 2}));
  scene.keys = {"", "A:0/0", "A:1/0", ""};
  scene.pass(Scene::cache_of("A", {1, 2}, 0, 2), numbers_of(scene.show()));
  scene.queue = {3, 2};
  scene.refs = {0, 1, 0, 0};
  scene.pass(FreeBlocks{{2}, false}, numbers_of(scene.show()));

  Observation shown = numbers_of(scene.show());
  shown.num_cached = 0;
  shown.num_empty = 2;
  expect_broken(scene.verdict(TakeEvents{}, Scene::with_events(shown, {})), "I7", "events.count",
                "1", "0");
  expect_broken(scene.verdict(Touch{{0}}, shown), "I4", "num_empty", "1", "2");

  // The whole state comes back: what is wrong with it is not the lookup's fault.
  const Command lookup = GetCachedBlock{"A", 1, 2, {0}};
  scene.queue = {2, 3};
  expect_broken(scene.verdict(lookup, Scene::with_hit(scene.show(), {{2}})), "I8", "free_queue[0]",
                "[3 2]", "[2 3]");
  scene.queue = {3, 2};
  scene.pass(lookup, Scene::with_hit(scene.show(), {{2}}));
}

TEST(Invariants, ResetForgetsEverything) {
  const Config config = Scene::small_config();
  const BlockPoolConfig parsed = *make_block_pool_config(config);
  World world(parsed);
  Invariants invariants(parsed);
  Scene scene;
  const Observation fresh = scene.show();
  scene.queue = {2, 3};
  scene.refs = {0, 1, 0, 0};
  const Observation handed_out = Scene::with_blocks(scene.show(), {1});
  EXPECT_FALSE(invariants.check(GetNewBlocks{1}, handed_out, world, 0));
  EXPECT_TRUE(invariants.check(GetNewBlocks{1}, handed_out, world, 1));
  invariants.reset();
  EXPECT_FALSE(invariants.check(Touch{{}}, fresh, world, 0));
  EXPECT_FALSE(invariants.check(GetNewBlocks{1}, handed_out, world, 1));
}

TEST(Invariants, StepIsTheOneGiven) {
  Scene scene;
  scene.hand_out_and_cache();
  const auto found = scene.verdict(GetNewBlocks{9}, scene.show());
  ASSERT_TRUE(found);
  EXPECT_EQ(found->step, 2U);
}

}  // namespace
}  // namespace kvfence::block_pool
