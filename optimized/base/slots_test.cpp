// Goal: a freed slot is reused with its storage, and an id leads to its slot. Method: each
// operation by hand, and a long random history compared with std::map.

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
