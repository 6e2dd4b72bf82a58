// Laws of clone, assign and digest for every implementation that has them.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

#include "contract/core/implementation.h"
#include "contract/core/line.h"
#include "contract/core/scenario.h"
#include "contract/core/state_digest.h"
#include "properties/core/campaign.h"
#include "properties/core/left_behind_test_support.h"
#include "properties/core/prop_test_support.h"
#include "properties/pool/driver.h"
#include "reference/pool/block_pool.h"

namespace kvfence {
namespace {

/// An implementation, and the side that draws histories for it. The parameters of suites have a
/// plain function as `make`, without a bug.
struct Subject {
  std::function<std::unique_ptr<Implementation>()> make;
  Side drawn_by;
};
Subject subject_of(const Side& side) {
  Side drawn_by = side;
  drawn_by.make = side.sides->make_reference;
  return {side.make, drawn_by};
}

using DigestKey = std::pair<std::uint64_t, std::uint64_t>;
DigestKey key_of(const StateDigest& digest) { return {digest.low, digest.high}; }

std::unique_ptr<Implementation> fresh(const Subject& subject, const Setup& setup) {
  std::unique_ptr<Implementation> implementation = subject.make();
  RC_ASSERT_FALSE(implementation->reset(setup).has_value());
  return implementation;
}

std::unique_ptr<World> fresh_world(const Setup& setup) { return setup.target().make_world(setup); }

Observation answer(Implementation& implementation, const Command& command, const World& world) {
  Observation observation;
  RC_ASSERT_FALSE(implementation.apply(command, world, Observe::kState, observation).has_value());
  return observation;
}

/// The full observation of a state: a copy runs a harmless command.
Observation shown_by(const Implementation& implementation, const World& world,
                     const Command& harmless) {
  const std::unique_ptr<Implementation> copy = implementation.clone();
  RC_ASSERT(copy != nullptr);
  return answer(*copy, harmless, world);
}

/// A random history of commands, drawn on the reference of the target.
struct History {
  Setup setup;
  std::vector<Command> commands;
  std::size_t split = 0;  ///< somewhere in it
};
History draw_history(const Subject& subject) {
  Wanderer wanderer = wander(subject.drawn_by);
  for (const Command& command : wanderer.history) RC_LOG() << print(to_line(command)) << '\n';
  const std::size_t split = draw_seed() % (wanderer.history.size() + 1);
  RC_LOG() << "# split at " << split << '\n';
  return {wanderer.setup, std::move(wanderer.history), split};
}

bool copies_are_alike_and_independent(const Subject& subject) {
  return holds("a copy answers as its original, and neither changes the other", [&] {
    const History history = draw_history(subject);
    const std::unique_ptr<Implementation> original = fresh(subject, history.setup);
    const std::unique_ptr<Implementation> assigned = fresh(subject, history.setup);
    const auto world = fresh_world(history.setup);
    const auto world_of_copies = fresh_world(history.setup);
    for (std::size_t i = 0; i < history.split; ++i) {
      world->apply(history.commands[i]);
      world_of_copies->apply(history.commands[i]);
      answer(*original, history.commands[i], *world);
    }
    const StateDigest digest = original->digest();
    const std::unique_ptr<Implementation> clone = original->clone();
    RC_ASSERT(clone != nullptr);
    RC_ASSERT((clone->digest() == digest));

    std::vector<Observation> answers;
    for (std::size_t i = history.split; i < history.commands.size(); ++i) {
      world->apply(history.commands[i]);
      answers.push_back(answer(*original, history.commands[i], *world));
      RC_ASSERT((clone->digest() == digest));
      // So that the target of the assignment has been used before.
      answer(*assigned, history.commands[i], *world);
    }
    assigned->assign(*clone);
    RC_ASSERT((assigned->digest() == digest));
    const StateDigest last = original->digest();
    for (std::size_t i = history.split; i < history.commands.size(); ++i) {
      const Command& command = history.commands[i];
      world_of_copies->apply(command);
      const Observation& expected = answers[i - history.split];
      RC_ASSERT((answer(*clone, command, *world_of_copies) == expected));
      RC_ASSERT((original->digest() == last));
      const StateDigest of_clone = clone->digest();
      RC_ASSERT((answer(*assigned, command, *world_of_copies) == expected));
      RC_ASSERT((assigned->digest() == of_clone));
      RC_ASSERT((clone->digest() == of_clone));
    }
    RC_ASSERT((clone->digest() == last));
  });
}

/// Compares a history with one that lacks the commands that did not change the digest.
bool equal_digests_answer_alike(const Subject& subject) {
  return holds("what leaves the digest as it was changes no later answer", [&] {
    const History history = draw_history(subject);
    const std::unique_ptr<Implementation> full = fresh(subject, history.setup);
    const std::unique_ptr<Implementation> sparse = fresh(subject, history.setup);
    const auto world = fresh_world(history.setup);
    for (std::size_t i = 0; i < history.commands.size(); ++i) {
      const Command& command = history.commands[i];
      world->apply(command);
      const StateDigest before = full->digest();
      const Observation expected = answer(*full, command, *world);
      if (i < history.split && full->digest() == before) continue;
      RC_ASSERT((answer(*sparse, command, *world) == expected));
      RC_ASSERT((sparse->digest() == full->digest()));
    }
  });
}

std::unique_ptr<Implementation> after(const Subject& subject, const History& history,
                                      std::size_t num_commands) {
  std::unique_ptr<Implementation> implementation = fresh(subject, history.setup);
  const auto world = fresh_world(history.setup);
  for (std::size_t i = 0; i < num_commands; ++i) {
    world->apply(history.commands[i]);
    answer(*implementation, history.commands[i], *world);
  }
  return implementation;
}

/// A state with the digest of an earlier one answers like the earlier one. Adds to num_met.
bool states_met_again_answer_alike(const Subject& subject, int& num_met) {
  constexpr std::size_t kFollowedMax = 4;
  const auto has_met = [&] { return num_met > 0; };
  return holds("a state met again answers as it did first", has_met, [&] {
    const History history = draw_history(subject);
    const std::unique_ptr<Implementation> now = fresh(subject, history.setup);
    const auto world = fresh_world(history.setup);
    std::map<DigestKey, std::size_t> first_met;  ///< after how many commands
    std::vector<std::unique_ptr<Implementation>> followed;
    StateDigest last = now->digest();
    first_met[key_of(last)] = 0;
    for (std::size_t i = 0; i < history.commands.size(); ++i) {
      const Command& command = history.commands[i];
      world->apply(command);
      const Observation expected = answer(*now, command, *world);
      const StateDigest digest = now->digest();
      for (const auto& from_first : followed) {
        RC_ASSERT((answer(*from_first, command, *world) == expected));
        RC_ASSERT((from_first->digest() == digest));
      }
      if (digest == last) continue;
      last = digest;
      const auto [met, is_new] = first_met.try_emplace(key_of(digest), i + 1);
      if (is_new || followed.size() == kFollowedMax) continue;
      followed.push_back(after(subject, history, met->second));
      ++num_met;
    }
  });
}

/// Except as left_behind says: kv_cache and tiering commands that begin with another operation.
/// Adds to num_refused.
bool refusals_leave_the_digest(const Subject& subject, int& num_refused) {
  const auto has_refused = [&] { return num_refused > 0; };
  return holds("a refused command leaves the digest as it was", has_refused, [&] {
    const History history = draw_history(subject);
    const std::unique_ptr<Implementation> implementation = fresh(subject, history.setup);
    const auto world = fresh_world(history.setup);
    for (const Command& command : history.commands) {
      world->apply(command);
      StateDigest before = implementation->digest();
      if (const auto left = left_behind(command)) {
        const std::unique_ptr<Implementation> copy = implementation->clone();
        answer(*copy, *left, *world);
        before = copy->digest();
      }
      if (shown_error(answer(*implementation, command, *world)) == ErrorCode::kNone) continue;
      ++num_refused;
      RC_LOG() << "# refused: " << print(to_line(command)) << '\n';
      RC_ASSERT((implementation->digest() == before));
    }
  });
}

/// Observes only some of the states, because each observation costs a copy.
bool digests_tell_states_apart(const Subject& subject) {
  constexpr std::size_t kLooksMax = 32;
  return holds("states that show something different have different digests", [&] {
    const History history = draw_history(subject);
    const Command harmless = harmless_command(subject.drawn_by.target());
    const std::size_t stride = history.commands.size() / kLooksMax + 1;
    const std::unique_ptr<Implementation> implementation = fresh(subject, history.setup);
    // Observations of a request need its name: every state is observed in the last world.
    const auto world = fresh_world(history.setup);
    const auto last_world = fresh_world(history.setup);
    for (const Command& command : history.commands) last_world->apply(command);
    std::map<DigestKey, Observation> shown;
    for (std::size_t i = 0; i < history.commands.size(); ++i) {
      world->apply(history.commands[i]);
      answer(*implementation, history.commands[i], *world);
      if (i % stride != 0) continue;
      const Observation now = shown_by(*implementation, *last_world, harmless);
      const auto [first, is_new] = shown.try_emplace(key_of(implementation->digest()), now);
      RC_ASSERT((is_new || first->second == now));
    }
  });
}

class StateLaws : public ::testing::TestWithParam<Side> {};
INSTANTIATE_TEST_SUITE_P(Parts, StateLaws, ::testing::ValuesIn(both_sides_of_every_part()),
                         name_of_side);

TEST_P(StateLaws, CopiesAreAlikeAndIndependent) {
  EXPECT_TRUE(copies_are_alike_and_independent(subject_of(GetParam())));
}

TEST_P(StateLaws, EqualDigestsAnswerAlike) {
  EXPECT_TRUE(equal_digests_answer_alike(subject_of(GetParam())));
  int num_met = 0;
  EXPECT_TRUE(states_met_again_answer_alike(subject_of(GetParam()), num_met));
  EXPECT_GT(num_met, 0);
}

TEST_P(StateLaws, RefusalsLeaveTheDigest) {
  int num_refused = 0;
  EXPECT_TRUE(refusals_leave_the_digest(subject_of(GetParam()), num_refused));
  EXPECT_GT(num_refused, 0);
}

TEST_P(StateLaws, DigestsTellStatesApart) {
  EXPECT_TRUE(digests_tell_states_apart(subject_of(GetParam())));
}

/// A planted bug breaks rules and structures, but not the laws of copies and digests.
class StateLawsOfPlanted : public ::testing::TestWithParam<const TargetSides*> {};
INSTANTIATE_TEST_SUITE_P(Values, StateLawsOfPlanted,
                         ::testing::Values(&block_pool_sides(), &kv_cache_sides(),
                                           &eviction_sides(), &offload_sides()),
                         name_of_target);

TEST_P(StateLawsOfPlanted, HoldForEveryPlantedBug) {
  for (const PlantedBugInfo& bug : GetParam()->planted_bugs) {
    SCOPED_TRACE(bug.name);
    const Subject subject = {[&] { return GetParam()->make_planted(bug.name); },
                             reference_side(*GetParam())};
    EXPECT_TRUE(copies_are_alike_and_independent(subject));
    EXPECT_TRUE(equal_digests_answer_alike(subject));
    int num_met = 0;
    EXPECT_TRUE(states_met_again_answer_alike(subject, num_met));
    EXPECT_TRUE(digests_tell_states_apart(subject));
  }
}

// Canaries: mistakes that the laws have to catch.

/// A pool whose digest forgets the keys and the events.
class ForgetfulPool : public reference::BlockPool {
 public:
  using BlockPool::BlockPool;
  void add_to(StateHash& hash) const {
    std::vector<BlockId> free_blocks;
    get_all_free_blocks(free_blocks);
    hash.add(free_blocks);
    for (BlockId block = 0; block < config().num_gpu_blocks; ++block) hash.add(ref_cnt(block));
  }
};

/// A pool whose copies share its state.
class SharedPool {
 public:
  explicit SharedPool(const BlockPoolConfig& config)
      : pool_(std::make_shared<reference::BlockPool>(config)) {}

  bool get_cached_block(BlockHashView hash, std::span<const GroupId> group_ids,
                        std::span<BlockId> out) const {
    return pool_->get_cached_block(hash, group_ids, out);
  }
  ErrorCode get_new_blocks(std::span<BlockId> out) { return pool_->get_new_blocks(out); }
  ErrorCode touch(std::span<const BlockId> blocks) { return pool_->touch(blocks); }
  ErrorCode cache_full_blocks(const CacheFullBlocksArgs& args) {
    return pool_->cache_full_blocks(args);
  }
  ErrorCode free_blocks(std::span<const BlockId> blocks, FreeTo to) {
    return pool_->free_blocks(blocks, to);
  }
  ErrorCode evict_blocks(std::span<const BlockId> blocks) { return pool_->evict_blocks(blocks); }
  bool reset_prefix_cache() { return pool_->reset_prefix_cache(); }
  void take_events(std::vector<KVCacheEvent>& out) { pool_->take_events(out); }
  std::uint32_t get_num_free_blocks() const { return pool_->get_num_free_blocks(); }
  double get_usage() const { return pool_->get_usage(); }
  std::uint32_t num_cached_keys() const { return pool_->num_cached_keys(); }
  BlockCounts block_counts() const { return pool_->block_counts(); }
  std::uint32_t ref_cnt(BlockId block) const { return pool_->ref_cnt(block); }
  std::string_view block_key(BlockId block) const { return pool_->block_key(block); }
  void get_all_free_blocks(std::vector<BlockId>& out) const { pool_->get_all_free_blocks(out); }
  const BlockPoolConfig& config() const { return pool_->config(); }
  void add_to(StateHash& hash) const { pool_->add_to(hash); }

 private:
  std::shared_ptr<reference::BlockPool> pool_;
};

template <class Pool>
Subject broken_pool() {
  return {[] { return make_driver<BlockPoolDriver, Pool>("broken"); },
          reference_side(block_pool_sides())};
}

TEST(StateLawsCanary, AForgetfulDigestIsCaught) {
  const Subject subject = broken_pool<ForgetfulPool>();
  EXPECT_FALSE(equal_digests_answer_alike(subject));
  EXPECT_FALSE(digests_tell_states_apart(subject));
}

TEST(StateLawsCanary, ASharedCloneIsCaught) {
  EXPECT_FALSE(copies_are_alike_and_independent(broken_pool<SharedPool>()));
}

TEST(StateLawsCanary, ARefusalThatChangesTheStateIsCaught) {
  const Subject subject = {
      [] { return block_pool_sides().make_planted("get_takes_before_refusing"); },
      reference_side(block_pool_sides())};
  int num_refused = 0;
  EXPECT_FALSE(refusals_leave_the_digest(subject, num_refused));
}

// Leaks, which the number of entries has to catch.

/// A pool that keeps an entry for everything it handed out.
class LeakyPool : public reference::BlockPool {
 public:
  using BlockPool::BlockPool;
  ErrorCode get_new_blocks(std::span<BlockId> out) {
    ++num_calls_;
    return BlockPool::get_new_blocks(out);
  }
  void add_to(StateHash& hash) const {
    BlockPool::add_to(hash);
    const std::vector<int> calls(num_calls_);
    if (is_kept_) {
      hash.add_kept(calls);
    } else {
      hash.add(calls);
    }
  }

 protected:
  bool is_kept_ = false;

 private:
  std::size_t num_calls_ = 0;
};

struct KeepingPool : LeakyPool {
  explicit KeepingPool(const BlockPoolConfig& config) : LeakyPool(config) { is_kept_ = true; }
};

/// A leaky pool that does not show its number of entries.
struct OpaquePool : LeakyPool {
  using LeakyPool::LeakyPool;
  void add_to(StateHash& hash) const { hash.add_unknown(); }
};

template <class Pool>
CampaignResult run_against(const Oracles& oracles = {}) {
  const auto reference = block_pool_sides().make_reference();
  const auto pool = make_driver<BlockPoolDriver, Pool>("other");
  CampaignOptions options;
  options.commands_max = 20'000;
  options.lockstep.oracles = oracles;
  return run_campaign(*block_pool_sides().checks, *reference, *pool, options,
                      [](const CampaignProgress&) { return true; });
}

TEST(LeaksCanary, ATableThatStaysFullIsCaught) {
  const auto leaky = run_against<LeakyPool>();
  ASSERT_TRUE(leaky.failure);
  const Divergence& divergence = leaky.failure->divergence;
  EXPECT_EQ(divergence.oracle, "leaks");
  EXPECT_EQ(leaky.failure->scenario.steps.size(), divergence.step + 1);
  EXPECT_NE(divergence.expected, divergence.actual);
  EXPECT_FALSE(run_against<LeakyPool>({.leaks = false}).failure);
}

TEST(Leaks, IgnoreKeptAndUnknownEntries) {
  const auto keeping = run_against<KeepingPool>();
  EXPECT_FALSE(keeping.failure);
  EXPECT_GT(keeping.count_of("tables_compared"), 0u);
  const auto opaque = run_against<OpaquePool>();
  EXPECT_FALSE(opaque.failure);
  EXPECT_GT(opaque.count_of("tails_to_the_end"), 0u);
  EXPECT_TRUE(std::ranges::none_of(
      opaque.goals, [](const GoalCount& each) { return each.goal.name == "tables_compared"; }));
}

}  // namespace
}  // namespace kvfence
