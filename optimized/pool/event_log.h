#pragma once

/// EventLog: the KV cache events of a pool in flat storage, until the caller takes them.
///
/// The variable parts of the records are back to back in arenas that keep their capacity, so a log
/// that is emptied regularly stops allocating. take() builds the contract's event objects. The
/// strings of all events have less than 4 GiB.

#include <cstdint>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "contract/core/flat_lists.h"
#include "contract/core/state_digest.h"
#include "contract/core/types.h"
#include "contract/pool/block_hash.h"
#include "contract/pool/kv_events.h"
#include "contract/pool/request.h"

namespace kvfence::optimized {

class EventLog {
 public:
  /// BlockStored takes several calls: begin, then one add_stored_block per hash.
  void begin_block_stored(std::uint32_t block_size, const std::optional<LoraRequest>& lora,
                          std::optional<GroupId> group_idx,
                          std::optional<BlockHashView> parent_block_hash,
                          std::span<const TokenId> token_ids);

  /// Of the event begun last.
  void add_stored_block(BlockHashView hash, const ExtraKeys& extra_keys);

  void add_block_removed(BlockHashView hash, std::optional<GroupId> group_idx);
  void add_all_blocks_cleared();

  /// Overwrites out with the events so far and empties the log. Cost: allocates what the events
  /// own.
  void take(std::vector<KVCacheEvent>& out);

  /// Adds the events so far.
  void add_to(StateHash& hash) const {
    hash.add_all(records_, token_ids_, num_extra_keys_, extra_keys_, strings_);
  }

 private:
  enum class Kind : std::uint8_t { kBlockStored, kBlockRemoved, kAllBlocksCleared };

  /// The other parts follow in the arenas, in the order of the records.
  struct Record {
    Kind kind = Kind::kAllBlocksCleared;
    bool has_parent = false;
    std::optional<GroupId> group_idx;
    std::uint32_t block_size = 0;
    std::optional<std::uint32_t> lora_id;
    std::uint32_t num_hashes = 0;
    std::size_t num_tokens = 0;
  };

  /// An extra key; its text is a string.
  struct ExtraKeyRecord {
    bool is_mm = false;
    std::int64_t offset = 0;
  };

  class Reader;

  void add_string(std::string_view text) {
    strings_.append(text);
    strings_.end_list();
  }

  std::vector<Record> records_;
  std::vector<TokenId> token_ids_;
  std::vector<std::uint32_t> num_extra_keys_;  ///< one per stored hash
  std::vector<ExtraKeyRecord> extra_keys_;
  FlatLists<char> strings_;
};

}  // namespace kvfence::optimized
