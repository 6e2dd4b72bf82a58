// How mutations of whole commands change the bytes of the commands.

#include "fuzz/command_mutator.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <map>
#include <random>
#include <set>

namespace kvfence::fuzz {
namespace {

// Configuration, three commands, unread bytes.
const Bytes kInput = {9, 9, 1, 1, 2, 3, 3, 3, 8};
const Marks kMarks = {2, 4, 5, 8};

std::set<Bytes> mutants_of(const Bytes& input, const Marks& marks,
                           decltype(mutate_commands)* mutate = mutate_commands) {
  std::minstd_rand random(1);
  std::set<Bytes> mutants;
  for (int round = 0; round < 1000; ++round) mutants.insert(mutate(input, marks, random));
  return mutants;
}

TEST(MutateCommands, MakesEachKindOfMutant) {
  const std::set<Bytes> mutants = mutants_of(kInput, kMarks);
  EXPECT_TRUE(mutants.contains({9, 9, 1, 1, 3, 3, 3, 8})) << "one left out";
  EXPECT_TRUE(mutants.contains({9, 9, 1, 1, 1, 1, 2, 3, 3, 3, 8})) << "one twice";
  EXPECT_TRUE(mutants.contains({9, 9, 1, 1, 2, 1, 1, 3, 3, 3, 8})) << "one again, later";
  EXPECT_TRUE(mutants.contains({9, 9, 2, 1, 1, 3, 3, 3, 8})) << "neighbors exchanged";
  EXPECT_TRUE(mutants.contains({9, 9, 2, 3, 3, 3, 1, 1, 8})) << "one much later";
  EXPECT_TRUE(std::ranges::any_of(mutants, [](const Bytes& mutant) {
    return mutant.size() == kInput.size() + 7;
  })) << "one more";
}

TEST(MutateCommands, LeavesTheConfigurationAndTheRestAlone) {
  for (const Bytes& mutant : mutants_of(kInput, kMarks)) {
    EXPECT_EQ(Bytes(mutant.begin(), mutant.begin() + 2), Bytes({9, 9}));
    EXPECT_EQ(mutant.back(), 8);
  }
}

TEST(MutateCommands, WithoutCommandsTheInputIsUnchanged) {
  EXPECT_EQ(mutants_of(kInput, {}), std::set<Bytes>{kInput});
  EXPECT_EQ(mutants_of(kInput, {2}), std::set<Bytes>{kInput});
}

TEST(ReplaceEnd, KeepsTheFirstCommandsAndContinues) {
  std::map<std::size_t, std::size_t> longest;
  for (const Bytes& replaced : mutants_of(kInput, kMarks, replace_end)) {
    const auto [differs, ignored] = std::ranges::mismatch(kInput, replaced);
    std::size_t& size = longest[static_cast<std::size_t>(differs - kInput.begin())];
    size = std::max(size, replaced.size());
  }
  for (const std::size_t mark : kMarks) EXPECT_GT(longest[mark], 1000U) << mark;
  EXPECT_FALSE(longest.contains(0));
}

TEST(ReplaceEnd, LeavesInputsThatHaveNotRunUnchanged) {
  EXPECT_EQ(mutants_of(kInput, {}, replace_end), std::set<Bytes>{kInput});
}

TEST(CrossCommands, JoinsABeginningAndAnEnd) {
  const Bytes other = {7, 4, 5, 5};
  const Marks marks = {1, 2, 4};
  std::minstd_rand random(1);
  std::set<Bytes> crossed;
  for (int round = 0; round < 1000; ++round) {
    crossed.insert(cross_commands(kInput, kMarks, other, marks, random));
  }
  EXPECT_EQ(crossed.size(), kMarks.size() * marks.size());
  EXPECT_TRUE(crossed.contains({9, 9, 1, 1, 5, 5}));
}

TEST(KnownMarks, AreOfInputsThatHaveRun) {
  KnownMarks known;
  known.add(kInput, kMarks);
  EXPECT_EQ(known.find(kInput), kMarks);
  EXPECT_EQ(known.find(Bytes{1}), Marks());
}

}  // namespace
}  // namespace kvfence::fuzz
