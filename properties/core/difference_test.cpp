// Goal: a divergence names the exact place and both sides, the reference's first. Method: two
// observations that differ in one place, and expectations that are missed in one place.

#include "properties/core/difference.h"

#include <gtest/gtest.h>

#include "contract/pool/block_pool_target.h"

namespace kvfence {
namespace {

using block_pool::Observation;

Observation state(std::vector<BlockId> free_queue) {
  Observation observation;
  observation.free_queue.emplace() = std::move(free_queue);
  return observation;
}

Observation stored(std::vector<BlockHash> hashes, std::vector<TokenId> tokens) {
  Observation observation;
  BlockStored event;
  event.block_hashes = std::move(hashes);
  event.token_ids = std::move(tokens);
  event.block_size = 2;
  observation.events.emplace() = {AllBlocksCleared{}, event};
  return observation;
}

std::optional<Divergence> first_difference(const Observation& expected, const Observation& actual,
                                           std::size_t step, const SymbolOf& symbol_of = {}) {
  return kvfence::first_difference(declared_of(expected), declared_of(actual), step, symbol_of);
}

std::optional<Divergence> matches(const std::vector<Field>& expectation,
                                  const Observation& observation, std::size_t step,
                                  const ResolveSymbol& resolve) {
  return kvfence::matches(expectation, Erased(observation), step, resolve);
}

/// The fields after `->`.
std::vector<Field> expectation(std::string_view text) {
  const Parsed<Line> line = parse_line("x -> " + std::string(text));
  EXPECT_TRUE(line) << text;
  return *line->expectation;
}

std::optional<std::string> resolve(std::string_view symbol) {
  if (symbol == "A:0") return "\x01\x02";
  return std::nullopt;
}

std::optional<std::string> symbol_of(std::string_view bytes) {
  if (bytes == "\x01\x02") return "A:0";
  return std::nullopt;
}

TEST(FirstDifference, IsNothingIfObservationsAreEqual) {
  EXPECT_FALSE(first_difference(state({1, 2}), state({1, 2}), 0));
}

TEST(FirstDifference, NamesTheListIndexAndKeepsTheSidesApart) {
  const auto found = first_difference(state({3, 2, 1}), state({3, 1, 2}), 7);

  ASSERT_TRUE(found);
  EXPECT_EQ(found->step, 7u);
  EXPECT_EQ(found->oracle, "lockstep");
  EXPECT_EQ(found->field, "free_queue[1]");
  EXPECT_EQ(found->expected, "[3 2 1]");
  EXPECT_EQ(found->actual, "[3 1 2]");
  EXPECT_EQ(found->message, "free_queue (head to tail) must equal the reference's");
}

TEST(FirstDifference, NamesTheElementThatOneSideLacks) {
  const auto found = first_difference(state({3, 2}), state({3, 2, 1}), 0);

  ASSERT_TRUE(found);
  EXPECT_EQ(found->field, "free_queue[2]");
  EXPECT_EQ(found->expected, "[3 2]");
  EXPECT_EQ(found->actual, "[3 2 1]");
}

TEST(FirstDifference, ComesInDeclarationOrder) {
  Observation expected = state({1});
  Observation actual = state({2});
  expected.num_cached = 4;
  actual.num_cached = 5;

  const auto found = first_difference(expected, actual, 0);

  ASSERT_TRUE(found);
  EXPECT_EQ(found->field, "num_cached");
  EXPECT_EQ(found->expected, "4");
  EXPECT_EQ(found->actual, "5");
}

TEST(FirstDifference, TellsAbsentFromEmpty) {
  const auto found = first_difference(Observation{}, state({}), 0);

  ASSERT_TRUE(found);
  EXPECT_EQ(found->field, "free_queue");
  EXPECT_EQ(found->expected, "none");
  EXPECT_EQ(found->actual, "[]");
}

TEST(FirstDifference, DescendsIntoEvents) {
  const auto found = first_difference(stored({}, {4, 5}), stored({}, {4, 6}), 0);

  ASSERT_TRUE(found);
  EXPECT_EQ(found->field, "events[1].token_ids[1]");
  EXPECT_EQ(found->expected, "[4 5]");
  EXPECT_EQ(found->actual, "[4 6]");
}

TEST(FirstDifference, ShowsAKeyThatOneRecordLacksAsNone) {
  Observation expected = stored({}, {});
  std::get<BlockStored>(expected.events.emplace()[1]).group_idx = 3;

  const auto found = first_difference(expected, stored({}, {}), 0);

  ASSERT_TRUE(found);
  EXPECT_EQ(found->field, "events[1].group_idx");
  EXPECT_EQ(found->expected, "3");
  EXPECT_EQ(found->actual, "none");
}

TEST(FirstDifference, ShowsAnotherKindOfEventWhole) {
  Observation actual;
  actual.events.emplace() = {AllBlocksCleared{}, AllBlocksCleared{}};

  const auto found = first_difference(stored({}, {1}), actual, 0);

  ASSERT_TRUE(found);
  EXPECT_EQ(found->field, "events[1]");
  EXPECT_EQ(found->expected,
            "(stored block_hashes=[] parent_block_hash=none token_ids=[1] block_size=2)");
  EXPECT_EQ(found->actual, "(cleared)");
}

TEST(FirstDifference, SpellsHashesAsSymbols) {
  const auto found =
      first_difference(stored({"\x01\x02"}, {}), stored({"\x01\x03"}, {}), 0, symbol_of);

  ASSERT_TRUE(found);
  EXPECT_EQ(found->field, "events[1].block_hashes[0]");
  EXPECT_EQ(found->expected, "[A:0]");
  EXPECT_EQ(found->actual, "[0x0103]");
}

TEST(FirstDifference, ReportsWhatTheTextDoesNotShow) {
  Observation expected = stored({"\x01\x02"}, {});
  std::get<BlockStored>(expected.events.emplace()[1]).extra_keys.resize(1);

  const auto found = first_difference(expected, stored({"\x01\x02"}, {}), 0);

  ASSERT_TRUE(found);
  EXPECT_EQ(found->field, "events");
}

TEST(Matches, LooksOnlyAtTheKeysThatAreThere) {
  Observation observation = state({1, 2});
  observation.num_empty = 9;

  EXPECT_FALSE(matches(expectation("free_queue=[1 2]"), observation, 0, resolve));
  EXPECT_FALSE(matches({}, observation, 0, resolve));
}

TEST(Matches, ReportsTheFirstMismatchWithTheExpectationFirst) {
  const auto found =
      matches(expectation("num_empty=0 free_queue=[1 3] num_cached=7"), state({1, 2}), 4, resolve);

  ASSERT_TRUE(found);
  EXPECT_EQ(found->step, 4u);
  EXPECT_EQ(found->oracle, "expectation");
  EXPECT_EQ(found->field, "free_queue[1]");
  EXPECT_EQ(found->expected, "[1 3]");
  EXPECT_EQ(found->actual, "[1 2]");
  EXPECT_EQ(found->message, "the scenario expects free_queue=[1 3]");
}

TEST(Matches, ResolvesSymbolsWhereTheObservationHasBytes) {
  Observation observation;
  observation.keys.emplace().push_back("\x01\x02");
  observation.keys.emplace().push_back("");

  EXPECT_FALSE(matches(expectation("keys=[A:0 none]"), observation, 0, resolve));
  EXPECT_FALSE(matches(expectation("keys=[0x0102 none]"), observation, 0, resolve));
  const auto wrong = matches(expectation("keys=[B:0 none]"), observation, 0, resolve);
  ASSERT_TRUE(wrong);
  EXPECT_EQ(wrong->field, "keys[0]");
  EXPECT_EQ(wrong->expected, "[B:0 none]");
  EXPECT_EQ(wrong->actual, "[0x0102 none]");
}

TEST(Matches, ResolvesSymbolsWithinEvents) {
  const Observation observation = stored({"\x01\x02"}, {8, 9});
  const std::string_view events =
      "events=[(cleared) (stored block_hashes=[A:0] token_ids=[8 9] block_size=2)]";

  EXPECT_FALSE(matches(expectation(events), observation, 0, resolve));
}

TEST(Matches, DoesNotLetARecordLeaveOutWhatIsThere) {
  const auto found =
      matches(expectation("events=[(cleared) (stored block_hashes=[] block_size=2)]"),
              stored({}, {8}), 0, resolve);

  ASSERT_TRUE(found);
  EXPECT_EQ(found->field, "events[1].token_ids");
  EXPECT_EQ(found->expected, "none");
  EXPECT_EQ(found->actual, "[8]");
}

TEST(Matches, AsksForAbsenceWithNone) {
  EXPECT_FALSE(matches(expectation("blocks=none"), Observation{}, 0, resolve));
  EXPECT_TRUE(matches(expectation("free_queue=none"), state({}), 0, resolve));
  const auto found = matches(expectation("blocks=[1]"), Observation{}, 0, resolve);
  ASSERT_TRUE(found);
  EXPECT_EQ(found->field, "blocks");
  EXPECT_EQ(found->actual, "none");
}

TEST(Matches, ReadsTheCodeOfSuccess) {
  Observation refused;
  refused.error = ErrorCode::kNoFreeBlocks;

  EXPECT_FALSE(matches(expectation("error=none"), Observation{}, 0, resolve));
  EXPECT_FALSE(matches(expectation("error=no_free_blocks"), refused, 0, resolve));
  EXPECT_TRUE(matches(expectation("error=none"), refused, 0, resolve));
  EXPECT_TRUE(matches(expectation("error=no_free_blocks"), Observation{}, 0, resolve));
}

TEST(Matches, TakesAnIntegerForTheSameDecimal) {
  Observation observation;
  observation.usage = 1;

  EXPECT_FALSE(matches(expectation("usage=1"), observation, 0, resolve));
  EXPECT_TRUE(matches(expectation("usage=2"), observation, 0, resolve));
}

TEST(Symbolize, ReachesEveryDepthAndLeavesUnknownBytes) {
  Parsed<Value> value = parse_value("[0x0102 (stored hash=0x0102 other=0x09) [0x0102] 3 none]");
  ASSERT_TRUE(value);

  symbolize(*value, symbol_of);

  EXPECT_EQ(print(*value), "[A:0 (stored hash=A:0 other=0x09) [A:0] 3 none]");
}

}  // namespace
}  // namespace kvfence
