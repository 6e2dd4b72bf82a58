#pragma once

/// PlaceSet: a set of places, which are numbers below a bound, that knows its smallest member.
///
/// A bitmap with summaries: a bit of one level says that a word of the level below is not zero. A
/// place has 32 bits and a word 64, so there are six levels at most. An insertion or a removal
/// touches higher levels only where a word becomes or was zero.

#include <algorithm>
#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include "optimized/base/huge_pages.h"

namespace kvfence::optimized {

using Place = std::uint32_t;

/// kOrdered: first() and next() are O(1). kPlain: without summaries they are O(places / 64), for a
/// set that is rarely read in order.
enum class PlaceOrder : std::uint8_t { kPlain, kOrdered };

class PlaceSet {
 public:
  static constexpr Place kNone = 0xFFFF'FFFF;

  /// Requires: num_places is a multiple of 64. Cost: a bit per place, and 1/63 more if it is
  /// ordered. The only allocation.
  PlaceSet(std::size_t num_places, PlaceOrder order) {
    std::size_t num_words = 0;
    std::size_t num_words_of_level = num_places;
    do {
      num_words_of_level = (num_words_of_level + kWordBits - 1) / kWordBits;
      level_begins_[num_levels_++] = num_words;
      num_words += num_words_of_level;
    } while (num_words_of_level > 1 && order == PlaceOrder::kOrdered);
    level_begins_[num_levels_] = num_words;
    words_.resize(num_words);
  }

  std::uint32_t size() const { return size_; }

  /// Does nothing if the place is there.
  [[gnu::always_inline]] void insert(Place place) {
    std::uint64_t& word = words_[place / kWordBits];
    const std::uint64_t before = word;
    word = before | bit_of(place);
    size_ += 1U - has(before, place);
    low_ = std::min(low_, place);
    if (before == 0) [[unlikely]]
      insert_above(place / kWordBits);
  }

  /// Does nothing if the place is not there.
  [[gnu::always_inline]] void erase(Place place) {
    std::uint64_t& word = words_[place / kWordBits];
    size_ -= has(word, place);
    word &= ~bit_of(place);
    if (word == 0) [[unlikely]]
      erase_above(place / kWordBits);
  }

  /// The smallest member, or kNone.
  Place first() const { return next(low_); }

  /// Takes the smallest member out. Requires: there is one.
  [[gnu::always_inline]] Place pop_first() {
    const Place place = next(low_);
    low_ = place + 1;
    erase(place);
    return place;
  }

  /// The smallest member that is at least `place`, or kNone.
  Place next(Place place) const {
    const std::size_t index = place / kWordBits;
    if (index < num_words(0)) [[likely]] {
      const std::uint64_t rest = words_[index] & (~std::uint64_t{0} << place % kWordBits);
      if (rest != 0) [[likely]]
        return first_in(rest, index);
    }
    return next_above(static_cast<Place>(index));
  }

  /// The members among 64 places; bit i stands for the place 64 * index + i.
  std::uint64_t word(std::size_t index) const { return words_[index]; }

  /// Removes those members, and returns them as word does.
  std::uint64_t take_word(std::size_t index) {
    const std::uint64_t word = std::exchange(words_[index], 0);
    size_ -= static_cast<std::uint32_t>(std::popcount(word));
    if (word != 0) erase_above(static_cast<Place>(index));
    return word;
  }

  /// Inserts place + i for each bit i. Requires: those places are below num_places and free.
  void insert_run(Place place, std::uint64_t bits) {
    const Place shift = place % kWordBits;
    low_ = std::min(low_, place);
    insert_word(place / kWordBits, bits << shift);
    if (shift != 0) insert_word(place / kWordBits + 1, bits >> (kWordBits - shift));
    size_ += static_cast<std::uint32_t>(std::popcount(bits));
  }

  /// Cost: O(num_places / 64), O(1) if it is empty.
  void clear() {
    if (size_ == 0) return;
    std::fill(words_.begin(), words_.end(), std::uint64_t{0});
    size_ = 0;
    low_ = 0;
  }

 private:
  static constexpr std::uint32_t kWordBits = 64;
  static constexpr std::uint32_t kNumLevelsMax = 6;

  static std::uint64_t bit_of(Place place) { return std::uint64_t{1} << place % kWordBits; }
  static std::uint32_t has(std::uint64_t word, Place place) {
    return static_cast<std::uint32_t>(word >> place % kWordBits) & 1;
  }
  static Place first_in(std::uint64_t word, std::size_t index) {
    return static_cast<Place>(index * kWordBits) + static_cast<Place>(std::countr_zero(word));
  }

  std::size_t num_words(std::uint32_t level) const {
    return level_begins_[level + 1] - level_begins_[level];
  }
  std::uint64_t& word_at(std::uint32_t level, std::size_t index) {
    return words_[level_begins_[level] + index];
  }
  std::uint64_t word_at(std::uint32_t level, std::size_t index) const {
    return words_[level_begins_[level] + index];
  }

  void insert_word(std::size_t index, std::uint64_t bits) {
    if (bits == 0) return;
    const std::uint64_t before = words_[index];
    words_[index] = before | bits;
    if (before == 0) insert_above(static_cast<Place>(index));
  }

  /// The word of that index of the lowest level has become nonzero.
  [[gnu::noinline]] void insert_above(Place index) {
    for (std::uint32_t level = 1; level < num_levels_; ++level) {
      std::uint64_t& word = word_at(level, index / kWordBits);
      const std::uint64_t before = word;
      word = before | bit_of(index);
      if (before != 0) return;
      index /= kWordBits;
    }
  }

  /// The word of that index of the lowest level has become zero.
  [[gnu::noinline]] void erase_above(Place index) {
    for (std::uint32_t level = 1; level < num_levels_; ++level) {
      std::uint64_t& word = word_at(level, index / kWordBits);
      word &= ~bit_of(index);
      if (word != 0) return;
      index /= kWordBits;
    }
  }

  /// The smallest member of a later word than that of the lowest level.
  [[gnu::noinline]] Place next_above(Place index) const {
    if (num_levels_ == 1) return next_plain(index);
    for (std::uint32_t level = 1; level < num_levels_; ++level) {
      const Place place = index + 1;
      index = place / kWordBits;
      if (index >= num_words(level)) return kNone;
      const std::uint64_t rest = word_at(level, index) & (~std::uint64_t{0} << place % kWordBits);
      if (rest != 0) return descend(level, first_in(rest, index));
    }
    return kNone;
  }

  Place next_plain(std::size_t index) const {
    for (++index; index < num_words(0); ++index) {
      if (words_[index] != 0) return first_in(words_[index], index);
    }
    return kNone;
  }

  /// The smallest member below bit `index` of a level.
  Place descend(std::uint32_t level, Place index) const {
    while (level > 0) {
      --level;
      index = first_in(word_at(level, index), index);
    }
    return index;
  }

  std::uint32_t num_levels_ = 0;
  std::uint32_t size_ = 0;
  Place low_ = 0;                                              ///< no member is smaller
  std::array<std::size_t, kNumLevelsMax + 1> level_begins_{};  ///< and the end of the last one
  std::vector<std::uint64_t, HugePageAllocator<std::uint64_t>>
      words_;  ///< the levels, lowest first
};

}  // namespace kvfence::optimized
