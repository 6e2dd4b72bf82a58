// Goal: a freed slot is reused with its storage, and a number or an id leads to its slot. Method:
// each operation by hand, and a long random history compared with std::map.

#include "optimized/base/slots.h"

#include <gtest/gtest.h>

#include <map>
#include <random>
#include <string>
#include <vector>

namespace kvfence::optimized {
namespace {

struct SlotEntry {
  std::string id;
  std::vector<int> list;
};

TEST(SlotPool, TakesAgainWhatWasGivenBackWithItsStorage) {
  SlotPool<SlotEntry> pool;
  const std::uint32_t first = pool.take();
  const std::uint32_t second = pool.take();
  EXPECT_NE(first, second);
  pool[first].list.reserve(100);
  pool.give_back(first);
  EXPECT_EQ(pool.take(), first);
  EXPECT_GE(pool[first].list.capacity(), 100U);
  EXPECT_EQ(pool.size(), 2U);
}

TEST(SlotPool, FreeSlotsAreNoEntries) {
  SlotPool<SlotEntry> pool;
  pool.take();
  pool.give_back(pool.take());
  EXPECT_EQ(StateHash::hash_of(pool).num_entries(), 1U);
}

using Numbered = NumberedSlots<std::uint64_t, SlotEntry>;

std::map<std::uint64_t, std::vector<int>> contents(const Numbered& slots) {
  std::map<std::uint64_t, std::vector<int>> found;
  slots.for_each([&](std::uint64_t number, const SlotEntry& entry) { found[number] = entry.list; });
  return found;
}

TEST(NumberedSlots, FindWhatIsThere) {
  Numbered slots;
  EXPECT_EQ(slots.find(0), Numbered::kNone);
  slots[slots.insert(0)].list = {1};
  slots[slots.insert(5)].list = {2};
  ASSERT_NE(slots.find(5), Numbered::kNone);
  EXPECT_EQ(slots[slots.find(5)].list, std::vector<int>{2});
  EXPECT_EQ(slots.find(4), Numbered::kNone);
  slots.erase(0);
  EXPECT_EQ(slots.find(0), Numbered::kNone);
  EXPECT_EQ(slots.size(), 1U);
}

TEST(NumberedSlots, AnEntryKeepsItsStorage) {
  Numbered slots;
  slots[slots.insert(1)].list.reserve(100);
  slots.erase(1);
  EXPECT_GE(slots[slots.insert(2)].list.capacity(), 100U);
}

TEST(NumberedSlots, DigestsDoNotDependOnTheSlots) {
  Numbered one;
  Numbered other;
  one[one.insert(1)].list = {1};
  one[one.insert(2)].list = {2};
  other[other.insert(2)].list = {2};
  other[other.insert(1)].list = {1};
  EXPECT_EQ(StateHash::digest_of(one), StateHash::digest_of(other));
  other[other.find(1)].list = {3};
  EXPECT_NE(StateHash::digest_of(one), StateHash::digest_of(other));
}

TEST(NumberedSlots, BehaveAsAMap) {
  std::mt19937 random(1);
  Numbered slots;
  std::map<std::uint64_t, std::vector<int>> expected;
  std::uint64_t next = 0;
  for (int step = 0; step < 20'000; ++step) {
    // The map grows for a while, and shrinks for a while.
    const bool inserts = random() % 100 < (step / 1'000 % 2 == 0 ? 60u : 40u);
    if (inserts || expected.empty()) {
      slots[slots.insert(next)].list = {step};
      expected[next++] = {step};
    } else {
      auto victim = expected.lower_bound(random() % next);
      if (victim == expected.end()) victim = expected.begin();
      ASSERT_NE(slots.find(victim->first), Numbered::kNone);
      EXPECT_EQ(slots[slots.find(victim->first)].list, victim->second);
      slots.erase(victim->first);
      EXPECT_EQ(slots.find(victim->first), Numbered::kNone);
      expected.erase(victim);
    }
    ASSERT_EQ(slots.size(), expected.size());
    if (step % 100 == 0) {
      ASSERT_EQ(contents(slots), expected);
    }
  }
}

TEST(NamedSlots, AnErasedEntryStaysReadable) {
  NamedSlots<SlotEntry> slots;
  const std::uint32_t slot = slots.insert("A");
  slots.erase(slot);
  EXPECT_EQ(slots.find("A"), std::nullopt);
  EXPECT_EQ(slots[slot].id, "A");
}

TEST(NamedSlots, BehaveAsAMap) {
  std::mt19937 random(1);
  NamedSlots<SlotEntry> slots;
  std::map<std::string, int> expected;
  for (int step = 0; step < 20'000; ++step) {
    const std::string id = std::to_string(random() % 100);
    const auto found = slots.find(id);
    const auto wanted = expected.find(id);
    ASSERT_EQ(found.has_value(), wanted != expected.end());
    if (found) {
      ASSERT_EQ(slots[*found].list, std::vector<int>{wanted->second});
      slots.erase(*found);
      expected.erase(wanted);
    } else {
      slots[slots.insert(id)].list = {step};
      expected[id] = step;
    }
  }
  EXPECT_LE(slots.size(), 100U);
}

}  // namespace
}  // namespace kvfence::optimized
