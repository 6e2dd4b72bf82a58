#pragma once

/// A correct indexer's model of an engine: the blocks of one space (a group in a medium), by hash.
///
/// A hash is identified by 64 bits of XXH3 of its bytes: at 10^7 blocks, two of them collide in one
/// run of 300,000. Token ids are not kept. A held block takes 104 bytes at most, 136 with a digest;
/// BlockTable::memory_bytes() has the figure of a run.

#include <array>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <string_view>
#include <vector>

#include "scenarios/audit/rules.h"

namespace kvfence::audit {

using HashId = std::uint64_t;

HashId id_of(std::string_view hash_bytes);

struct MirrorBlock {
  HashId id = 0;
  HashId parent = 0;          ///< 0: none
  std::uint64_t content = 0;  ///< parent, tokens, extra keys and lookahead; 0: not known
  EventRef stored;            ///< the last time
  std::uint32_t copies = 0;   ///< blocks that carry the hash; 0: excused alone
  std::uint32_t depth = 0;    ///< blocks from the root, itself included, as far as they are known
  std::uint32_t block_size = 0;
  std::uint32_t children = 0;  ///< hashes held that name it as parent
  /// The number of broken chains when all blocks before it were held.
  std::uint32_t whole_until = 0;
  /// A finding explains all events about this hash.
  bool is_excused = false;
  /// Copies are left by count, but they may have been reports of the one that is gone.
  bool is_doubtful = false;
};

/// Open addressing over a dense array. Pointers hold until the next insertion.
/// Cost: O(1) expected per operation.
class BlockTable {
 public:
  using Digest = std::array<char, 32>;

  MirrorBlock* find(HashId id);
  /// The block of that id; made if there is none.
  MirrorBlock& at(HashId id);
  /// Requires: there is one.
  void erase(HashId id);
  void clear();

  std::size_t size() const { return blocks_.size(); }
  std::size_t memory_bytes() const;

  /// The whole digest of a hash of which events carry only 64 bits.
  void keep_digest(HashId id, std::string_view digest);
  /// Empty where none is kept.
  std::string_view digest_of(HashId id) const;

  /// visit(block), in no order.
  template <class Visit>
  void for_each(Visit&& visit) const {
    for (const MirrorBlock& block : blocks_) visit(block);
  }

 private:
  static constexpr std::uint32_t kNone = 0xFFFF'FFFF;

  std::size_t mask() const { return slots_.size() - 1; }
  std::size_t slot_of(HashId id) const;
  void grow();

  std::vector<std::uint32_t> slots_;  ///< numbers in blocks_; a power of two, at most half full
  std::vector<MirrorBlock> blocks_;   ///< dense: the last one moves into a hole
  std::vector<Digest> digests_;       ///< beside blocks_, or empty
  std::size_t digest_bytes_ = 0;
};

/// A hash whose last copy is gone, remembered so that a finding can say when.
struct GoneBlock {
  HashId id = 0;
  EventRef stored;
  EventRef removed;
};

/// What a space holds, and what it held last.
struct Mirror {
  BlockTable blocks;
  std::uint32_t largest_block_size = 0;
  std::uint64_t held = 0;          ///< hashes with a copy
  std::uint64_t held_largest = 0;  ///< of them, of blocks of the largest size, and not doubtful
  std::uint64_t doubtful = 0;      ///< of them, doubtful
  std::uint64_t depth_max = 0;
  std::uint32_t broken_chains = 0;  ///< hashes removed before their children
  std::deque<GoneBlock> removed;    ///< the last ones
  std::vector<GoneBlock> cleared;   ///< by the last clear, sorted by id

  /// The first copy of a hash.
  void add(MirrorBlock& block, HashId parent, std::uint32_t block_size);
  /// One more copy. Requires: it has one.
  void add_copy(MirrorBlock& block);
  /// Invalidates the block. Requires: it has a copy.
  /// may_be_last: its other copies may be reports of this one.
  void remove_copy(MirrorBlock& block, EventRef at, bool is_remembered, bool may_be_last);
  void forget();
  /// As forget(); what was held stays known as cleared.
  void clear(EventRef at);

  /// Null if it is not remembered.
  const GoneBlock* find_removed(HashId id) const;
  const GoneBlock* find_cleared(HashId id) const;
  std::size_t memory_bytes() const;

 private:
  void set_doubtful(MirrorBlock& block, bool is_doubtful);
};

}  // namespace kvfence::audit
