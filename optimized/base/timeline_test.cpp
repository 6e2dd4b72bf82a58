#include "optimized/base/timeline.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <random>
#include <vector>

#include "planted/optimized/base/timeline.h"
#include "properties/planted/switches.h"

namespace kvfence::optimized {
namespace {

constexpr std::size_t kNumLists = 3;
constexpr std::uint32_t kNowhere = 0xFFFF'FFFF;

struct Member {
  Place place = 0;
};

/// The members of a timeline, which record its notifications.
class Members {
 public:
  explicit Members(std::size_t num_members) : members_(num_members) {}
  Member& operator[](std::uint32_t member) { return members_.at(member); }
  void prefetch(std::uint32_t member) const {
    EXPECT_LT(member, members_.size());
    ++num_announced_;
  }
  void prefetch_slot(std::uint32_t member) const { EXPECT_LT(member, members_.size()); }
  std::uint32_t num_announced() const { return num_announced_; }

 private:
  std::vector<Member> members_;
  mutable std::uint32_t num_announced_ = 0;
};

std::vector<std::uint32_t> members_of(const Timeline& timeline, std::size_t list) {
  std::vector<std::uint32_t> members;
  for (Place place = timeline.first(list); place != timeline.kNone;
       place = timeline.next(list, place + 1)) {
    members.push_back(timeline.member_at(place));
  }
  return members;
}

class TimelineOfMembers : public testing::TestWithParam<std::uint32_t> {};

// Long enough that places are used up many times.
TEST_P(TimelineOfMembers, KeepsTheOrderOfItsListsWhileItTidies) {
  const std::uint32_t num_members = GetParam();
  Timeline timeline(num_members, {PlaceOrder::kOrdered, PlaceOrder::kPlain, PlaceOrder::kOrdered});
  Members members(num_members);
  std::vector<std::vector<std::uint32_t>> expected(kNumLists);  // in order of arrival
  std::vector<std::uint32_t> list_of(num_members, kNowhere);
  std::mt19937 random(num_members);
  const int num_steps = 4'000 + 40 * static_cast<int>(num_members);
  for (int step = 0; step < num_steps; ++step) {
    const auto member = static_cast<std::uint32_t>(random() % num_members);
    const std::uint32_t from = list_of[member];
    const auto to = static_cast<std::uint32_t>(random() % kNumLists);
    if (random() % 8 == 0 && !expected[0].empty()) {
      ASSERT_EQ(timeline.pop_first(0, members), expected[0].front());
      list_of[expected[0].front()] = kNowhere;
      expected[0].erase(expected[0].begin());
      continue;
    }
    if (from != kNowhere) {
      ASSERT_EQ(timeline.member_at(members[member].place), member);
      timeline.erase(from, members[member].place);
      std::erase(expected[from], member);
      list_of[member] = kNowhere;
    }
    if (random() % 8 != 0) {
      timeline.append(to, member, members);
      expected[to].push_back(member);
      list_of[member] = to;
    }
    ASSERT_EQ(timeline.size(to), expected[to].size());
    if (step % 97 == 0 || num_members < 10) {
      for (std::size_t list = 0; list < kNumLists; ++list) {
        ASSERT_EQ(members_of(timeline, list), expected[list]);
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Members, TimelineOfMembers, testing::Values(1, 2, 7, 64, 1000));

TEST(Timeline, AMemberKeepsItsPlaceWhenItChangesItsList) {
  Timeline timeline(3, {PlaceOrder::kOrdered, PlaceOrder::kPlain});
  Members members(3);
  for (std::uint32_t member = 0; member < 3; ++member) timeline.append(0, member, members);
  timeline.change_list(0, 1, members[0].place);
  EXPECT_EQ(members_of(timeline, 0), (std::vector<std::uint32_t>{1, 2}));
  EXPECT_EQ(members_of(timeline, 1), (std::vector<std::uint32_t>{0}));
  timeline.change_list(1, 0, members[0].place);
  EXPECT_EQ(members_of(timeline, 0), (std::vector<std::uint32_t>{0, 1, 2}));
}

// In a row that is larger than the caches, each removed member is announced once.
TEST(Timeline, AnnouncesWhoGoesNext) {
  constexpr std::uint32_t kNumMembers = 40'000;
  Timeline timeline(kNumMembers, {PlaceOrder::kOrdered});
  Members members(kNumMembers);
  for (std::uint32_t member = 0; member < kNumMembers; ++member) {
    timeline.append(0, member, members);
  }
  for (std::uint32_t member = 0; member < kNumMembers; ++member) {
    ASSERT_EQ(timeline.pop_first(0, members), member);
  }
  EXPECT_EQ(members.num_announced(), kNumMembers - 1);
}

TEST(Timeline, BeginsAgainWhenItIsCleared) {
  Timeline timeline(2, {PlaceOrder::kOrdered});
  Members members(2);
  for (int i = 0; i < 1000; ++i) {
    timeline.append(0, 0, members);
    timeline.append(0, 1, members);
    timeline.clear();
    ASSERT_EQ(timeline.size(0), 0U);
    ASSERT_EQ(timeline.first(0), timeline.kNone);
  }
}

// The most expensive append tidies one word.
TEST(Timeline, AnAppendCostsNoMoreThanAWordOfPlaces) {
  constexpr std::uint32_t kNumMembers = 10'000;
  constexpr std::uint64_t kWordsPerAppendMax = 64 * 5 + 8;
  planted::optimized::Timeline timeline(kNumMembers, {planted::optimized::PlaceOrder::kOrdered});
  Members members(kNumMembers);
  for (std::uint32_t member = 0; member < kNumMembers; ++member) {
    timeline.append(0, member, members);
  }
  std::uint64_t most = 0;
  const std::uint64_t before_all = planted::operation_counts.words;
  constexpr std::uint32_t kNumAppends = 40 * kNumMembers;
  for (std::uint32_t i = 0; i < kNumAppends; ++i) {
    const std::uint64_t before = planted::operation_counts.words;
    // A few members move all the time; the others stay, and tidying has to move them down.
    const std::uint32_t member = i % 10;
    timeline.erase(0, members[member].place);
    timeline.append(0, member, members);
    most = std::max(most, planted::operation_counts.words - before);
  }
  EXPECT_LE(most, kWordsPerAppendMax);
  EXPECT_LE(static_cast<double>(planted::operation_counts.words - before_all) / kNumAppends, 5.0);
}

}  // namespace
}  // namespace kvfence::optimized
