#pragma once

/// KeyTable: an open-addressing table from offload keys to a payload, without an allocation after
/// construction for keys of up to 42 bytes (a SHA-256 digest with its group id has 36).
///
/// An entry is one cache line with the key and the payload, so that a lookup fetches both at once.
/// The table proper holds {tag, entry}: the tag is 32 bits of the keyed hash of the key, and its
/// low bits are the home slot. The table size is a power of two, the load at most 1/2. Probing is
/// linear, and erasing shifts the rest of the cluster back, so there are no tombstones.

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string>
#include <vector>

#include "contract/core/check.h"
#include "contract/core/table_secret.h"
#include "contract/eviction/cache_policy.h"
#include "optimized/base/huge_pages.h"
#include "optimized/base/keyed_hash.h"

namespace kvfence::optimized {

inline std::uint64_t load_word(const char* bytes) {
  std::uint64_t word = 0;
  std::memcpy(&word, bytes, sizeof(word));
  return word;
}

/// As long as a SHA-256 digest, with or without a group id.
inline bool is_digest(OffloadKeyView key) { return key.size() - 32 <= sizeof(std::uint64_t); }

template <class Payload>
class KeyTable {
 public:
  using Index = std::uint32_t;
  static constexpr Index kNone = 0xFFFF'FFFF;

  /// Cost: 80 to 96 bytes per key. The only allocations, but for longer keys.
  explicit KeyTable(std::size_t num_keys_max, const TableSecret& secret = {})
      : hash_(secret),
        entries_(num_keys_max),
        slots_(std::bit_ceil(2 * std::max<std::size_t>(num_keys_max, 1))),
        slot_mask_(slots_.size() - 1) {
    KVFENCE_CHECK(slots_.size() <= std::size_t{1} << 32, "a tag is 32 bits");
  }

  /// The position of a key.
  struct Search {
    Index entry = kNone;
    std::uint32_t tag = 0;
    std::size_t at = 0;  ///< its slot, or the empty one where it belongs
  };

  /// Cost: O(1) expected.
  [[gnu::always_inline]] Search search(OffloadKeyView key) const {
    if (!is_digest(key)) [[unlikely]]
      return search_odd(key);
    return search_by(tag_of(key), [this, key](Index index) {
      const Entry& entry = entries_[index];
      return entry.length == key.size() && equal_digests(entry.key, key);
    });
  }

  /// The entry of a key, or kNone.
  [[gnu::always_inline]] Index find(OffloadKeyView key) const { return search(key).entry; }

  /// The entry of a new key; its payload is undefined. Requires: the search for this key found
  /// nothing, nothing has changed since, and fewer than num_keys_max keys are there.
  Index insert(OffloadKeyView key, const Search& found) {
    KVFENCE_CHECK(num_keys_ < entries_.size(), "more keys than the table was built for");
    const Index index = take_entry();
    entries_[index].tag_or_free = found.tag;
    store_key(index, key);
    slots_[found.at] = {.tag = found.tag, .entry = index};
    ++num_keys_;
    return index;
  }

  /// Requires: the entry is in the table. The bytes that key_of named stay valid until the next
  /// insertion.
  void erase(Index index) {
    Entry& entry = entries_[index];
    std::size_t at = entry.tag_or_free & slot_mask_;
    for (; slots_[at].entry != index; at = (at + 1) & slot_mask_) {
      KVFENCE_CHECK(slots_[at].entry != kNone, "an entry that is in no slot");
    }
    erase_slot(at);
    entry.tag_or_free = first_free_;
    first_free_ = index;
    --num_keys_;
  }

  OffloadKeyView key_of(Index index) const {
    const Entry& entry = entries_[index];
    if (entry.length == kLong) return long_keys_[index];
    return {entry.key, entry.length};
  }

  Payload& operator[](Index index) { return entries_[index].payload; }
  const Payload& operator[](Index index) const { return entries_[index].payload; }

  /// Cost: O(num_keys_max), O(1) if it is empty.
  void clear() {
    if (num_keys_ == 0) return;
    std::fill(slots_.begin(), slots_.end(), Slot{});
    num_keys_ = 0;
    num_entries_used_ = 0;
    first_free_ = kNone;
  }

  void prefetch(Index index) const { __builtin_prefetch(&entries_[index], 1); }

  /// Reads the entry, which should be in the cache by now.
  void prefetch_slot(Index index) const {
    __builtin_prefetch(&slots_[entries_[index].tag_or_free & slot_mask_], 1);
  }

  /// Prefetches for a later lookup.
  void prefetch(OffloadKeyView key) const { __builtin_prefetch(&slots_[tag_of(key) & slot_mask_]); }

  /// The second step, somewhat later: reads the slot, which should be in the cache by now, and
  /// prefetches its entry. That is another key's entry if the slot holds another key.
  void prefetch_entry(OffloadKeyView key) const {
    const Index index = slots_[tag_of(key) & slot_mask_].entry;
    if (index != kNone) __builtin_prefetch(&entries_[index], 1);
  }

 private:
  static constexpr std::size_t kLineBytes = 64;
  static constexpr std::size_t kInlineBytes =
      kLineBytes - sizeof(std::uint32_t) - sizeof(Payload) - sizeof(std::uint16_t);
  static_assert(alignof(Payload) <= alignof(std::uint32_t));
  static_assert(kInlineBytes >= 42);
  static constexpr std::uint16_t kLong = 0xFFFF;

  struct alignas(kLineBytes) Entry {
    std::uint32_t tag_or_free = 0;  ///< the tag; of a free entry, the next free one
    Payload payload;
    std::uint16_t length = 0;  ///< of the key; kLong: the key is in long_keys_
    char key[kInlineBytes] = {};
  };
  static_assert(sizeof(Entry) == kLineBytes);

  struct Slot {
    std::uint32_t tag = 0;
    Index entry = kNone;
  };

  [[gnu::always_inline]] std::uint32_t tag_of(OffloadKeyView key) const {
    return static_cast<std::uint32_t>(hash_(key));
  }

  /// Five words; the last one may overlap the one before.
  static bool equal_digests(const char* entry_key, OffloadKeyView key) {
    const auto differs_at = [entry_key, key](std::size_t offset) {
      return load_word(entry_key + offset) ^ load_word(key.data() + offset);
    };
    return (differs_at(0) | differs_at(8) | differs_at(16) | differs_at(24) |
            differs_at(key.size() - 8)) == 0;
  }

  template <class IsKey>
  [[gnu::always_inline]] Search search_by(std::uint32_t tag, IsKey is_key) const {
    for (std::size_t at = tag & slot_mask_;; at = (at + 1) & slot_mask_) {
      const Slot slot = slots_[at];
      if (slot.entry == kNone || (slot.tag == tag && is_key(slot.entry))) {
        return {.entry = slot.entry, .tag = tag, .at = at};
      }
    }
  }

  /// A key of another length. Out of line: a call in the loop above would cost every lookup.
  [[gnu::noinline]] Search search_odd(OffloadKeyView key) const {
    return search_by(tag_of(key), [this, key](Index index) { return key_of(index) == key; });
  }

  void store_key(Index index, OffloadKeyView key) {
    Entry& entry = entries_[index];
    if (key.size() <= kInlineBytes) [[likely]] {
      key.copy(entry.key, key.size());
      entry.length = static_cast<std::uint16_t>(key.size());
      return;
    }
    if (long_keys_.empty()) long_keys_.resize(entries_.size());
    long_keys_[index] = key;
    entry.length = kLong;
  }

  Index take_entry() {
    if (first_free_ == kNone) return num_entries_used_++;
    const Index index = first_free_;
    first_free_ = entries_[index].tag_or_free;
    return index;
  }

  /// Backward-shift deletion: each later slot of the cluster moves into the gap unless that is
  /// before its home.
  void erase_slot(std::size_t gap) {
    for (std::size_t at = (gap + 1) & slot_mask_;; at = (at + 1) & slot_mask_) {
      const Slot slot = slots_[at];
      if (slot.entry == kNone) break;
      const std::size_t distance_from_home = (at - slot.tag) & slot_mask_;
      const std::size_t distance_from_gap = (at - gap) & slot_mask_;
      if (distance_from_home < distance_from_gap) continue;
      slots_[gap] = slot;
      gap = at;
    }
    slots_[gap] = {};
  }

  KeyedHash hash_;
  std::uint32_t num_keys_ = 0;
  Index num_entries_used_ = 0;  ///< those from here on were never taken
  Index first_free_ = kNone;
  std::vector<Entry, HugePageAllocator<Entry>> entries_;
  std::vector<std::string> long_keys_;  ///< [entry], once there is one
  std::vector<Slot, HugePageAllocator<Slot>> slots_;
  std::size_t slot_mask_;
};

}  // namespace kvfence::optimized
