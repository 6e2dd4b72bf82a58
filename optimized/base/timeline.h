#pragma once

/// Timeline: lists in one row of places, which grow at their end and lose members anywhere.
///
/// A new member of a list takes the next place of the row, so the order of places is the order of
/// the lists. Moving a member to the end writes one place and two bits, and touches no neighbours
/// as a linked list would. Each list is a set of places. A member can change its list and keep its
/// place, and the oldest member of an ordered list is known. So unwanted members can have their own
/// list, and nothing has to skip them.
///
/// Moves leave unused places in the row. When nearly all places are used up, each append tidies 64
/// of them: it moves the members there to the front, in order. Tidying reaches the end before the
/// row is full, and then three quarters of the row are free again.

#include <bit>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <vector>

#include "contract/core/check.h"
#include "optimized/base/huge_pages.h"
#include "optimized/base/place_set.h"

namespace kvfence::optimized {

class Timeline {
 public:
  static constexpr Place kNone = PlaceSet::kNone;

  /// One list for each element of `orders`. Requires: no more than num_members_max members at a
  /// time.
  /// Cost: 16 bytes per member, and half a byte more for each list. The only allocations.
  Timeline(std::size_t num_members_max, std::initializer_list<PlaceOrder> orders)
      : num_words_(num_members_max * kPlacesPerMember / kWordPlaces + 2),
        members_(num_words_ * kWordPlaces),
        announced_(orders.size()) {
    KVFENCE_CHECK(members_.size() < kNone, "a place is 32 bits");
    lists_.reserve(orders.size());
    for (PlaceOrder order : orders) lists_.emplace_back(members_.size(), order);
  }

  std::uint32_t size(std::size_t list) const { return lists_[list].size(); }

  /// The oldest of a list, or kNone.
  Place first(std::size_t list) const { return lists_[list].first(); }

  /// Removes the oldest member of a list and returns it. Announces those that will soon be the
  /// oldest: members.prefetch(member), and later members.prefetch_slot(member). Requires: the list
  /// is not empty.
  template <class Members>
  [[gnu::always_inline]] std::uint32_t pop_first(std::size_t list, const Members& members) {
    const Place place = lists_[list].pop_first();
    if (members_.size() >= kPlacesAnnouncing) announce(list, place + 1, members);
    return members_[place];
  }

  /// The oldest of a list from a place on, or kNone.
  Place next(std::size_t list, Place place) const { return lists_[list].next(place); }

  std::uint32_t member_at(Place place) const { return members_[place]; }

  /// Writes the member's place to members[member].place, now and whenever the member has to move;
  /// members.prefetch(member) announces a move.
  template <class Members>
  [[gnu::always_inline]] void append(std::size_t list, std::uint32_t member, Members& members) {
    if (end_ >= members_.size() - num_words_) [[unlikely]]
      tidy_word(members);
    const Place place = end_++;
    members_[place] = member;
    members[member].place = place;
    lists_[list].insert(place);
  }

  [[gnu::always_inline]] void erase(std::size_t list, Place place) { lists_[list].erase(place); }

  /// Moves to another list, at the same place of the row.
  [[gnu::always_inline]] void change_list(std::size_t from, std::size_t to, Place place) {
    lists_[from].erase(place);
    lists_[to].insert(place);
  }

  /// Cost: O(places), O(lists) if it is empty.
  void clear() {
    for (PlaceSet& list : lists_) list.clear();
    end_ = 0;
    num_tidied_words_ = 0;
    tidy_end_ = 0;
  }

 private:
  static constexpr std::size_t kPlacesPerMember = 4;
  static constexpr std::size_t kWordPlaces = 64;

  /// The members of a smaller row are in the caches anyway.
  static constexpr std::size_t kPlacesAnnouncing = std::size_t{1} << 17;
  static constexpr Place kPlacesAhead = 64;
  static constexpr Place kPlacesAheadOfSlots = 24;

  /// How far the members of a list were announced.
  struct Announced {
    Place members_end = 0;
    Place slots_end = 0;
  };

  std::uint64_t occupied(std::size_t word) const {
    std::uint64_t places = 0;
    for (const PlaceSet& list : lists_) places |= list.word(word);
    return places;
  }

  template <class Members>
  [[gnu::noinline]] void announce(std::size_t list, Place first, const Members& members) {
    Announced& announced = announced_[list];
    visit_ahead(list, first, kPlacesAhead, announced.members_end,
                [&members](std::uint32_t member) { members.prefetch(member); });
    visit_ahead(list, first, kPlacesAheadOfSlots, announced.slots_end,
                [&members](std::uint32_t member) { members.prefetch_slot(member); });
  }

  /// Visits up to two members between `end`, where the last call ended, and `first + distance`. Two
  /// are enough to keep up, as members go one by one.
  template <class Visit>
  void visit_ahead(std::size_t list, Place first, Place distance, Place& end, Visit visit) {
    if (end < first || end > first + distance) end = first;
    for (int i = 0; i < 2; ++i) {
      const Place place = lists_[list].next(end);
      if (place >= first + distance) return;
      visit(members_[place]);
      end = place + 1;
    }
  }

  /// Moves the members in the next 64 places to the front, after those moved before. Tidying takes
  /// as many calls as the row has words, and at least as many places were free at the first call.
  template <class Members>
  [[gnu::noinline]] void tidy_word(Members& members) {
    const std::size_t word = num_tidied_words_++;
    const std::uint64_t places = occupied(word);
    for (PlaceSet& list : lists_) {
      if (list.word(word) != 0) list.insert_run(tidy_end_, pack(list.take_word(word), places));
    }
    for (std::uint64_t rest = places; rest != 0; rest &= rest - 1) {
      const std::uint32_t member = members_[place_of(word, rest)];
      members[member].place = tidy_end_;
      members_[tidy_end_++] = member;
    }
    if (num_tidied_words_ * kWordPlaces >= end_) {
      end_ = tidy_end_;
      num_tidied_words_ = 0;
      tidy_end_ = 0;
      return;
    }
    for (std::uint64_t rest = occupied(word + 1); rest != 0; rest &= rest - 1) {
      members.prefetch(members_[place_of(word + 1, rest)]);
    }
  }

  /// The place of the lowest bit.
  static std::size_t place_of(std::size_t word, std::uint64_t bits) {
    return word * kWordPlaces + static_cast<std::size_t>(std::countr_zero(bits));
  }

  /// The bits of `word` at the positions of `mask`, packed together. Requires: word is a subset of
  /// mask.
  static std::uint64_t pack(std::uint64_t word, std::uint64_t mask) {
    if (word == mask) {
      return ~std::uint64_t{0} >> (kWordPlaces - static_cast<std::size_t>(std::popcount(mask)));
    }
    std::uint64_t packed = 0;
    for (std::uint64_t bit = 1; mask != 0; mask &= mask - 1, bit <<= 1) {
      if ((word & mask & -mask) != 0) packed |= bit;
    }
    return packed;
  }

  std::size_t num_words_;
  Place end_ = 0;                                                         ///< the next place
  std::size_t num_tidied_words_ = 0;                                      ///< since tidying began
  Place tidy_end_ = 0;                                                    ///< of the tidied members
  std::vector<std::uint32_t, HugePageAllocator<std::uint32_t>> members_;  ///< [place]
  std::vector<PlaceSet> lists_;       ///< no place is in two of them
  std::vector<Announced> announced_;  ///< [list]
};

}  // namespace kvfence::optimized
