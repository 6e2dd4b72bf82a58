#pragma once

/// BlockHashToBlockMap: an open-addressing table from packed keys to blocks, without an allocation
/// after construction.
///
/// A key is in its block's row of a flat arena, so the table holds only {tag, block}. The tag is 32
/// bits of the keyed hash of the key, and its low bits are the home slot. Where tags are equal,
/// whole keys are compared. The table size is a power of two, the load at most 1/2. Probing is
/// linear, and erasing shifts the rest of the cluster back, so there are no tombstones, and probe
/// lengths depend on the keys in the table, not on its history. Blocks of one key form a circular
/// list in insertion order through their entries; the table names the first.

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>
#include <string_view>
#include <vector>

#include "contract/core/check.h"
#include "contract/core/limits.h"
#include "contract/core/state_digest.h"
#include "contract/core/table_secret.h"
#include "contract/core/types.h"
#include "contract/pool/block_hash.h"
#include "optimized/base/keyed_hash.h"

namespace kvfence::optimized {

/// A packed key in its two parts, so that no caller has to build one in memory. Passed by
/// reference: by value it would go over the stack in pieces of two sizes, which stalls every lookup
/// on store forwarding.
struct PackedKeyView {
  std::string_view hash;
  std::uint32_t group = 0;      ///< the key's last 4 bytes as they are in memory
  std::size_t group_bytes = 0;  ///< 4, or 0 for a key that is too short to have a group

  PackedKeyView(std::string_view block_hash, GroupId group_id)
      : hash(block_hash), group_bytes(kGroupIdBytes) {
    static_assert(std::endian::native == std::endian::little);
    group = __builtin_bswap32(group_id);
  }

  explicit PackedKeyView(std::string_view key) : hash(key) {
    if (key.size() < kGroupIdBytes) return;
    group_bytes = kGroupIdBytes;
    hash.remove_suffix(kGroupIdBytes);
    std::memcpy(&group, hash.data() + hash.size(), kGroupIdBytes);
  }

  std::size_t size() const { return hash.size() + group_bytes; }
};

class BlockHashToBlockMap {
 public:
  /// The group is added after the secret is mixed in, so that no hash can cancel it.
  std::uint32_t tag_of(const PackedKeyView& key) const {
    return static_cast<std::uint32_t>((hash_(key.hash) + key.group * 0x9E37'79B9'7F4A'7C15) >> 32);
  }

  /// Cost: key_bytes_max + 2 rounded up to 8, 16 for the entry, 16 to 32 for the table: bytes a
  /// block. The only allocations.
  BlockHashToBlockMap(std::uint32_t num_blocks, std::size_t key_bytes_max,
                      const TableSecret& secret = {})
      : hash_(secret),
        key_bytes_max_(key_bytes_max),
        row_bytes_((key_bytes_max + sizeof(KeyLength) + 7) / 8 * 8),
        entries_(num_blocks),
        rows_(num_blocks * row_bytes_),
        slots_(static_cast<std::size_t>(
            std::min(std::bit_ceil(std::uint64_t{2} * std::max(num_blocks, 1U)), kSlotsMax))),
        slot_mask_(slots_.size() - 1) {
    KVFENCE_CHECK(num_blocks <= limits::kBlocksMax, "block ids above this are marks");
    KVFENCE_CHECK(key_bytes_max <= std::numeric_limits<KeyLength>::max(),
                  "a key's length is 16 bits");
  }

  /// Cost: O(1) if the map is empty, else O(num_blocks).
  void clear() {
    if (empty()) return;
    std::fill(slots_.begin(), slots_.end(), Slot{});
    for (Entry& entry : entries_) entry.role = Role::kNone;
    num_keys_ = 0;
    num_hashed_blocks_ = 0;
  }

  /// Of keys.
  std::uint32_t size() const { return num_keys_; }

  static constexpr BlockId kNoBlock = 0xFFFF'FFFF;

  bool empty() const { return num_hashed_blocks_ == 0; }

  /// The first inserted surviving block of a key, or kNoBlock. Cost: O(1) expected; no allocation.
  [[gnu::always_inline]] BlockId get_one_block(const PackedKeyView& key) const {
    const std::uint32_t tag = tag_of(key);
    for (std::size_t index = tag & slot_mask_;; index = (index + 1) & slot_mask_) {
      const Slot slot = slots_[index];
      if (slot.block == kNoBlock) return kNoBlock;
      if (slot.tag == tag && has_key(slot.block, key)) return slot.block;
    }
  }

  /// Requires: the block carries no key; the key is not empty.
  void insert(const PackedKeyView& key, BlockId block) {
    KVFENCE_CHECK(key.size() <= key_bytes_max_, "a key longer than the map was built for");
    const std::uint32_t tag = tag_of(key);
    Entry& entry = entries_[block];
    store_key(block, key);
    ++num_hashed_blocks_;
    std::size_t index = tag & slot_mask_;
    for (;; index = (index + 1) & slot_mask_) {
      Slot& slot = slots_[index];
      if (slot.block == kNoBlock) break;
      if (slot.tag != tag || !has_key(slot.block, key)) continue;
      Entry& first = entries_[slot.block];
      entry = {.prev = first.prev, .next = slot.block, .tag = tag, .role = Role::kLater};
      entries_[first.prev].next = block;
      first.prev = block;
      return;
    }
    slots_[index] = {.tag = tag, .block = block};
    entry = {.prev = block, .next = block, .tag = tag, .role = Role::kFirst};
    ++num_keys_;
  }

  /// Removes the block from the map; false if it carries no key. The bytes that key_of named stay
  /// valid until the block is inserted again.
  bool erase(BlockId block) {
    Entry& entry = entries_[block];
    if (entry.role == Role::kNone) return false;
    if (entry.role == Role::kFirst) {
      std::size_t index = entry.tag & slot_mask_;
      for (;; index = (index + 1) & slot_mask_) {
        if (slots_[index].block == block) break;
      }
      if (entry.next == block) {
        erase_slot(index);
        --num_keys_;
      } else {
        slots_[index].block = entry.next;
        entries_[entry.next].role = Role::kFirst;
      }
    }
    entries_[entry.prev].next = entry.next;
    entries_[entry.next].prev = entry.prev;
    entry.role = Role::kNone;
    --num_hashed_blocks_;
    return true;
  }

  /// The key that a block carries, empty for none; a view that erase leaves valid. Requires: block
  /// < num_blocks.
  std::string_view key_of(BlockId block) const {
    if (entries_[block].role == Role::kNone) return {};
    return {row(block), key_length(block)};
  }

  void prefetch_entry(BlockId block) const { __builtin_prefetch(&entries_[block], 1); }

  /// Reads the entry, which should be in the cache by now.
  void prefetch_slot(BlockId block) const {
    __builtin_prefetch(&slots_[entries_[block].tag & slot_mask_], 1);
  }

  /// Prefetches for a later insertion.
  void prefetch_insert(const PackedKeyView& key, BlockId block) const {
    __builtin_prefetch(&slots_[tag_of(key) & slot_mask_], 1);
    __builtin_prefetch(&entries_[block], 1);
    __builtin_prefetch(row(block), 1);
  }

  /// Adds the state in canonical form: all that decides later answers, but not history, such as the
  /// places in the table.
  /// Cost: O(num_blocks).
  void add_to(StateHash& hash) const {
    hash.add(num_keys_);
    hash.add(num_hashed_blocks_);
    for (BlockId first = 0; first < entries_.size(); ++first) {
      if (entries_[first].role != Role::kFirst) continue;
      StateHash of_key;
      BlockId block = first;
      do {
        of_key.add(key_of(block));
        of_key.add(block);
        block = entries_[block].next;
      } while (block != first);
      hash.add_unordered(of_key);
    }
  }

 private:
  using KeyLength = std::uint16_t;

  /// kFirst: the table names this block. kLater: the list from the first one leads to it.
  enum class Role : std::uint32_t { kNone, kFirst, kLater };

  struct Slot {
    std::uint32_t tag = 0;
    BlockId block = kNoBlock;
  };

  struct Entry {
    BlockId prev = kNoBlock;
    BlockId next = kNoBlock;
    std::uint32_t tag = 0;
    Role role = Role::kNone;
  };

  /// A tag has 32 bits, so a larger table would never be used in full.
  static constexpr std::uint64_t kSlotsMax = std::uint64_t{1} << 32;

  template <class Word>
  static Word load(const char* bytes) {
    Word word = 0;
    std::memcpy(&word, bytes, sizeof(word));
    return word;
  }

  /// The sizes of the two digests are inline: a call of memcmp costs more than comparing a digest.
  static bool equal_bytes(const char* lhs, const char* rhs, std::size_t size) {
    const auto differs_at = [lhs, rhs](std::size_t offset) {
      return load<std::uint64_t>(lhs + offset) ^ load<std::uint64_t>(rhs + offset);
    };
    if (size == 32) return (differs_at(0) | differs_at(8) | differs_at(16) | differs_at(24)) == 0;
    if (size == 16) return (differs_at(0) | differs_at(8)) == 0;
    return std::memcmp(lhs, rhs, size) == 0;
  }

  char* row(BlockId block) { return rows_.data() + block * row_bytes_; }
  const char* row(BlockId block) const { return rows_.data() + block * row_bytes_; }

  /// The length is at the end of the row, so that a comparison need not read the entry.
  KeyLength key_length(BlockId block) const {
    KeyLength length = 0;
    std::memcpy(&length, row(block) + row_bytes_ - sizeof(length), sizeof(length));
    return length;
  }

  bool has_key(BlockId block, const PackedKeyView& key) const {
    const char* const bytes = row(block);
    return key_length(block) == key.size() &&
           equal_bytes(bytes, key.hash.data(), key.hash.size()) &&
           (key.group_bytes == 0 || load<std::uint32_t>(bytes + key.hash.size()) == key.group);
  }

  void store_key(BlockId block, const PackedKeyView& key) {
    char* const bytes = row(block);
    std::memcpy(bytes, key.hash.data(), key.hash.size());
    if (key.group_bytes != 0) std::memcpy(bytes + key.hash.size(), &key.group, kGroupIdBytes);
    const auto length = static_cast<KeyLength>(key.size());
    std::memcpy(bytes + row_bytes_ - sizeof(length), &length, sizeof(length));
  }

  /// Backward-shift deletion: each later slot of the cluster moves into the gap unless that is
  /// before its home.
  void erase_slot(std::size_t gap) {
    for (std::size_t index = (gap + 1) & slot_mask_;; index = (index + 1) & slot_mask_) {
      const Slot slot = slots_[index];
      if (slot.block == kNoBlock) break;
      const std::size_t distance_from_home = (index - slot.tag) & slot_mask_;
      const std::size_t distance_from_gap = (index - gap) & slot_mask_;
      if (distance_from_home < distance_from_gap) continue;
      slots_[gap] = slot;
      gap = index;
    }
    slots_[gap] = {};
  }

  KeyedHash hash_;
  std::size_t key_bytes_max_;
  std::size_t row_bytes_;
  std::uint32_t num_keys_ = 0;
  std::uint32_t num_hashed_blocks_ = 0;
  std::vector<Entry> entries_;  ///< [num_blocks]
  std::vector<char> rows_;      ///< [num_blocks][row_bytes]: key, padding, length
  std::vector<Slot> slots_;
  std::size_t slot_mask_;
};

}  // namespace kvfence::optimized
