#pragma once

/// Rules of the blocks below a KV-cache manager: tables, references, free queue and keys agree at
/// any time. Shared by the targets that have such a manager.

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "contract/kv_cache/kv_cache_manager.h"
#include "contract/kv_cache/kv_cache_target.h"
#include "contract/pool/block_pool_target.h"
#include "contract/pool/request.h"
#include "properties/core/divergence.h"
#include "properties/core/named_place.h"

namespace kvfence {

/// What is checked; a target's table has a rule for each.
enum class BlockRule : std::uint8_t {
  kListPerGroup,         ///< a table has a list per group
  kNullAndSinksStayOut,  ///< no key, no reference, no place in queue and tables
  kRefCntCountsPlaces,
  kQueueHoldsTheUnreferenced,
  kABlockHasOnePlace,
  kKeysFitTheirPlaces,
};
inline constexpr std::size_t kNumBlockRules = 6;

/// The observed state of the blocks.
struct BlockState {
  const std::vector<BlockId>& free_queue;
  const std::vector<std::uint32_t>& ref_cnts;
  const KeyList& keys;
  const std::vector<kv_cache::RequestBlocks>& tables;
};

/// Whether a request may hold a block twice: external blocks that it took together with a hit may
/// be blocks of the hit (contract/kv_cache/kv_cache_manager.h on vllm#33775).
enum class Aliasing : std::uint8_t {
  kNone,
  kShown,    ///< it took them; its table, observed right after that, shows which
  kUnknown,  ///< it took them, and the table was not observed then
};

/// The owner of a table.
struct TableOwner {
  const Request* request = nullptr;
  RequestIndex index = 0;  ///< distinguishes requests
  Aliasing aliasing = Aliasing::kNone;
};

/// A value: copyable. Cost of each check: linear in the blocks and the places of all tables,
/// without allocation once warm. Each throws a broken rule (broken_rule.h).
class BlockTableInvariants {
 public:
  /// rules: of the target's table, by BlockRule. others_hold: blocks may have references beside
  /// those of the tables.
  template <const auto& kTable>
  BlockTableInvariants(const KVCacheManagerConfig& config,
                       const NamedPlace<kTable> (&rules)[kNumBlockRules], bool others_hold = false)
      : BlockTableInvariants(config, others_hold) {
    for (std::size_t at = 0; at < kNumBlockRules; ++at) rules_[at] = &kTable[rules[at].place()];
  }

  /// For a fresh manager of the same configuration.
  void reset();

  /// References, queue, null block and sinks.
  void check_blocks(const BlockState& state);

  /// Each place of the tables. owners[k] owns tables[k].
  /// Requires: check_blocks found nothing wrong with this state.
  void check_places(const BlockState& state, std::span<const TableOwner> owners);

  /// Whether a block is in two groups of a request, by the last check_places.
  bool is_aliased(BlockId block) const { return is_aliased_[block]; }

 private:
  struct Place {
    const Request* request = nullptr;  ///< null: none
    RequestIndex owner = 0;
    GroupId group = 0;
    std::size_t index = 0;
  };

  BlockTableInvariants(const KVCacheManagerConfig& config, bool others_hold);

  const Invariant& rule(BlockRule rule) const { return *rules_[static_cast<std::size_t>(rule)]; }
  void find_aliases(const BlockState& state, std::span<const TableOwner> owners);

  std::array<const Invariant*, kNumBlockRules> rules_;
  KVCacheManagerConfig config_;
  bool others_hold_ = false;
  std::uint32_t num_sinks_ = 0;
  std::vector<bool> is_aliased_;  ///< by block
  // Scratch, by block.
  std::vector<std::uint32_t> num_places_;
  std::vector<std::uint8_t> is_queued_;
  std::vector<Place> first_;
};

namespace kv_cache {

/// Whether queue, references, keys and tables are shown.
inline bool has_state(const Observation& shown) {
  return shown.free_queue.has_value() && shown.ref_cnts.has_value() && shown.keys.has_value() &&
         shown.tables.has_value();
}

}  // namespace kv_cache

}  // namespace kvfence
