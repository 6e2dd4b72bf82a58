// Laws of the block pool as sentences. Each holds of one implementation alone, whatever state a
// random history has led to.

#include <algorithm>
#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "contract/line.h"
#include "contract/scenario.h"
#include "properties/block_pool_generator.h"
#include "properties/campaign.h"
#include "properties/choices.h"
#include "properties/prop_test_support.h"

namespace kvfence {
namespace {

using block_pool::Command;
using block_pool::Config;
using block_pool::Generator;
using block_pool::Observation;
using block_pool::World;
using Ids = std::vector<BlockId>;

/// One implementation, its world, and what it showed last.
class Session {
 public:
  Session(std::unique_ptr<Implementation<BlockPoolTarget>> implementation, const Config& config)
      : implementation_(std::move(implementation)), world_(BlockPoolTarget::make_world(config)) {
    RC_ASSERT_FALSE(implementation_->reset(config).has_value());
    run(block_pool::GetNewBlocks{});
  }

  const Observation& run(const Command& command) {
    world_.apply(command);
    RC_ASSERT_FALSE(implementation_->submit(command, world_, Observe::kState).has_value());
    RC_ASSERT_FALSE(implementation_->collect(now_).has_value());
    return now_;
  }

  const Observation& now() const { return now_; }
  const World& world() const { return world_; }
  const Ids& free_queue() const { return *now_.free_queue; }
  std::uint32_t ref_cnt(BlockId block) const { return (*now_.ref_cnts)[block]; }
  const BlockHash& key(BlockId block) const { return (*now_.keys)[block]; }
  std::size_t num_blocks() const { return now_.keys->size(); }

 private:
  std::unique_ptr<Implementation<BlockPoolTarget>> implementation_;
  World world_;
  Observation now_;
};

/// A session behind a random history, and the history.
struct Wanderer {
  Config config;
  std::unique_ptr<Session> session;
  std::vector<Command> history;
  std::vector<Observation> shown;  ///< after each command of the history
};

template <class Side>
Wanderer wander() {
  const std::vector<std::uint8_t> bytes = *episode_bytes(1000);
  Choices choices = Choices::from_bytes(bytes);
  Wanderer wanderer;
  wanderer.config = Generator::draw_config(choices);
  wanderer.session = std::make_unique<Session>(Side::make(), wanderer.config);
  Generator generator(wanderer.config, choices);
  while (!choices.exhausted()) {
    const Session& session = *wanderer.session;
    wanderer.history.push_back(generator.next(choices, session.now(), session.world()));
    wanderer.shown.push_back(wanderer.session->run(wanderer.history.back()));
  }
  return wanderer;
}

Command touch(BlockId block) { return block_pool::Touch{{block}}; }
Command free_one(BlockId block) { return block_pool::FreeBlocks{{block}, false}; }

template <class Side>
class BlockPoolLaws : public ::testing::Test {};
TYPED_TEST_SUITE(BlockPoolLaws, BothSides, );

TYPED_TEST(BlockPoolLaws, FreeingThenTouchingKeepsTheHash) {
  int num_keyed = 0;
  EXPECT_TRUE(rc::check("freeing then touching keeps the hash", [&] {
    const Wanderer wanderer = wander<TypeParam>();
    Session& session = *wanderer.session;
    for (BlockId block = 1; block < session.num_blocks(); ++block) {
      if (session.ref_cnt(block) == 0) continue;
      const Observation before = session.now();
      num_keyed += !session.key(block).empty();
      session.run(free_one(block));
      session.run(touch(block));
      RC_ASSERT(session.now() == [&] {
        Observation same = before;
        same.error = ErrorCode::kNone;
        same.hit.reset();
        same.blocks.reset();
        same.success.reset();
        same.events.reset();
        return same;
      }());
    }
  }));
  EXPECT_GT(num_keyed, 0);
}

TYPED_TEST(BlockPoolLaws, TouchingThenFreeingMovesToTheTail) {
  int num_moved = 0;
  EXPECT_TRUE(rc::check("touching then freeing a queued block moves it to the tail", [&] {
    const Wanderer wanderer = wander<TypeParam>();
    Session& session = *wanderer.session;
    const Ids queue = session.free_queue();
    for (BlockId block : queue) {
      Ids expected = session.free_queue();
      num_moved += expected.back() != block;
      expected.erase(std::find(expected.begin(), expected.end(), block));
      expected.push_back(block);
      const std::vector<BlockHash> keys = *session.now().keys;
      session.run(touch(block));
      session.run(free_one(block));
      RC_ASSERT(session.free_queue() == expected);
      RC_ASSERT(*session.now().keys == keys);
    }
  }));
  EXPECT_GT(num_moved, 0);
}

TYPED_TEST(BlockPoolLaws, RefusedCommandsChangeNothing) {
  int num_refused = 0;
  EXPECT_TRUE(rc::check("a history ends alike without its refused commands", [&] {
    const Wanderer wanderer = wander<TypeParam>();
    Session without(TypeParam::make(), wanderer.config);
    for (std::size_t index = 0; index < wanderer.history.size(); ++index) {
      const bool is_refused = wanderer.shown[index].error != ErrorCode::kNone;
      num_refused += is_refused;
      if (!is_refused) RC_ASSERT(without.run(wanderer.history[index]) == wanderer.shown[index]);
    }
    RC_ASSERT(without.run(block_pool::TakeEvents{}) ==
              wanderer.session->run(block_pool::TakeEvents{}));
  }));
  EXPECT_GT(num_refused, 0);
}

TYPED_TEST(BlockPoolLaws, AfterAResetNoLookupHits) {
  int num_lookups = 0;
  int num_keys = 0;
  EXPECT_TRUE(rc::check("after a reset no lookup hits", [&] {
    const Wanderer wanderer = wander<TypeParam>();
    Session& session = *wanderer.session;
    for (BlockId block = 1; block < session.num_blocks(); ++block) {
      while (session.ref_cnt(block) > 0) session.run(free_one(block));
    }
    num_keys += static_cast<int>(session.now().num_cached_keys);
    const Ids queue = session.free_queue();
    RC_ASSERT(*session.run(block_pool::ResetPrefixCache{}).success);
    RC_ASSERT(session.now().num_cached_keys == 0u);
    RC_ASSERT(session.free_queue() == queue);
    for (const char* name : {"A", "B", "C", "D"}) {
      const Request* request = session.world().requests().find(name);
      const auto num_hashes = request ? static_cast<std::uint32_t>(request->num_hashes()) : 0;
      for (std::uint32_t index = 0; index < num_hashes; ++index) {
        for (GroupId group : {0u, 1u, 2u}) {
          ++num_lookups;
          RC_ASSERT_FALSE(*session
                               .run(block_pool::GetCachedBlock{
                                   name, index, wanderer.config.hash_block_size, {group}})
                               .hit);
        }
      }
    }
  }));
  EXPECT_GT(num_lookups, 0);
  EXPECT_GT(num_keys, 0);
}

/// Serves a request as a scheduler does, alone: what is found from its start is touched, the rest
/// is allocated and cached, and all is freed, its end first. Returns the blocks found.
std::uint32_t serve(Session& session, const std::vector<TokenId>& tokens) {
  constexpr std::uint32_t kBlockSize = 1;
  session.run(block_pool::DeclareRequest{"R", tokens, std::nullopt, 0, std::nullopt, {}});
  const auto num_blocks = static_cast<std::uint32_t>(tokens.size());
  Ids blocks;
  while (blocks.size() < num_blocks) {
    const auto index = static_cast<std::uint32_t>(blocks.size());
    const Observation& found = session.run(block_pool::GetCachedBlock{"R", index, kBlockSize, {0}});
    if (!*found.hit) break;
    blocks.push_back(found.blocks->front());
  }
  const auto num_found = static_cast<std::uint32_t>(blocks.size());
  session.run(block_pool::Touch{blocks});
  const Observation& allocated = session.run(block_pool::GetNewBlocks{num_blocks - num_found});
  RC_ASSERT(allocated.error == ErrorCode::kNone);
  blocks.insert(blocks.end(), allocated.blocks->begin(), allocated.blocks->end());
  session.run(
      block_pool::CacheFullBlocks{"R", blocks, num_found, num_blocks, kBlockSize, 0, std::nullopt});
  RC_ASSERT(session.now().error == ErrorCode::kNone);
  std::reverse(blocks.begin(), blocks.end());
  session.run(block_pool::FreeBlocks{blocks, false});
  return num_found;
}

TYPED_TEST(BlockPoolLaws, ALargerPoolNeverEvictsEarlier) {
  int num_larger_finds_more = 0;
  EXPECT_TRUE(rc::check("a request finds as much or more in a larger pool", [&] {
    constexpr std::uint32_t kTokensMax = 5;
    const std::vector<std::uint8_t> bytes = *episode_bytes(300);
    Choices choices = Choices::from_bytes(bytes);
    Config config;
    config.hash_block_size = 1;
    config.num_gpu_blocks = 1 + kTokensMax + choices.below(6);
    Session smaller(TypeParam::make(), config);
    config.num_gpu_blocks += 1 + choices.below(4);
    Session larger(TypeParam::make(), config);
    while (!choices.exhausted()) {
      std::vector<TokenId> tokens(1 + choices.below(kTokensMax));
      for (TokenId& token : tokens) token = choices.below(2);
      const std::uint32_t found_in_smaller = serve(smaller, tokens);
      const std::uint32_t found_in_larger = serve(larger, tokens);
      RC_ASSERT(found_in_larger >= found_in_smaller);
      num_larger_finds_more += found_in_larger > found_in_smaller;
    }
  }));
  EXPECT_GT(num_larger_finds_more, 0);
}

TYPED_TEST(BlockPoolLaws, TextRoundTripsEveryCommandConfigAndObservation) {
  std::array<int, std::variant_size_v<Command>> num_drawn{};
  EXPECT_TRUE(rc::check("parse(print(x)) == x", [&] {
    const Wanderer wanderer = wander<TypeParam>();
    const Parsed<Line> line = parse_line(print(config_line<BlockPoolTarget>(wanderer.config)));
    RC_ASSERT(static_cast<bool>(line));
    const Parsed<Config> config = config_from_line<BlockPoolTarget>(*line);
    RC_ASSERT(static_cast<bool>(config));
    RC_ASSERT(*config == wanderer.config);
    for (std::size_t index = 0; index < wanderer.history.size(); ++index) {
      const Command& command = wanderer.history[index];
      ++num_drawn[command.index()];
      Line written = to_line(command);
      written.expectation = to_fields(wanderer.shown[index]);
      const Parsed<Line> read = parse_line(print(written));
      RC_ASSERT(static_cast<bool>(read));
      RC_ASSERT(*read == written);
      const Parsed<Command> parsed = command_from_line<Command>(*read);
      RC_ASSERT(static_cast<bool>(parsed));
      RC_ASSERT(*parsed == command);
      const Parsed<Observation> observation = from_fields<Observation>(
          *read->expectation, "observation", {}, {}, /*require_all=*/false);
      RC_ASSERT(static_cast<bool>(observation));
      RC_ASSERT(*observation == wanderer.shown[index]);
    }
  }));
  for (std::size_t index = 0; index < num_drawn.size(); ++index) {
    EXPECT_GT(num_drawn[index], 0) << "command " << index << " was never drawn";
  }
}

TYPED_TEST(BlockPoolLaws, EpisodesAreDecidedByTheirSeed) {
  EXPECT_TRUE(rc::check("the same seed draws and shows the same", [](std::uint64_t seed) {
    const auto run = [seed] {
      Choices choices = episode_choices(seed, 0);
      const Config config = Generator::draw_config(choices);
      Session session(TypeParam::make(), config);
      Generator generator(config, choices);
      std::pair<std::vector<Command>, std::vector<Observation>> episode;
      for (int count = 0; count < 50; ++count) {
        episode.first.push_back(generator.next(choices, session.now(), session.world()));
        episode.second.push_back(session.run(episode.first.back()));
      }
      return episode;
    };
    RC_ASSERT(run() == run());
  }));
}

}  // namespace
}  // namespace kvfence
