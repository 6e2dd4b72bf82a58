#include "properties/kv_cache/block_table_rules.h"

#include <algorithm>
#include <functional>
#include <string>

#include "contract/core/lists.h"
#include "properties/core/broken_rule.h"
#include "properties/core/invariant_values.h"
#include "properties/kv_cache/arithmetic.h"

namespace kvfence {

using detail::is_key_of;
using detail::key_value;
using detail::phrase;
using detail::place_name;

BlockTableInvariants::BlockTableInvariants(const KVCacheManagerConfig& config, bool others_hold)
    : config_(config), others_hold_(others_hold), num_sinks_(kv_cache::num_sink_blocks(config)) {
  reset();
}

void BlockTableInvariants::reset() { is_aliased_.assign(config_.pool.num_gpu_blocks, false); }

void BlockTableInvariants::check_blocks(const BlockState& state) {
  const std::vector<BlockId>& queue = state.free_queue;
  const std::vector<std::uint32_t>& ref_cnts = state.ref_cnts;
  num_places_.assign(config_.pool.num_gpu_blocks, 0);
  for (const kv_cache::RequestBlocks& table : state.tables) {
    if (table.blocks.size() != config_.groups.size()) {
      broken_rule(rule(BlockRule::kListPerGroup), "tables", phrase("a list per group"),
                  state.tables);
    }
    for (const std::vector<BlockId>& blocks : table.blocks) {
      for (BlockId block : blocks) {
        if (block >= num_places_.size()) {
          broken_rule(rule(BlockRule::kRefCntCountsPlaces), "tables", phrase("ids of the pool"),
                      state.tables);
        }
        if (block != kNullBlockId) ++num_places_[block];
      }
    }
  }
  for (BlockId block = 0; block <= num_sinks_; ++block) {
    const Invariant& stay_out = rule(BlockRule::kNullAndSinksStayOut);
    const auto index = [block] { return "[" + std::to_string(block) + "]"; };
    if (ref_cnts[block] != 0) {
      broken_rule(stay_out, "ref_cnts" + index(), 0U, ref_cnts[block]);
    }
    if (!state.keys[block].empty()) {
      broken_rule(stay_out, "keys" + index(), Value(), key_value(state.keys[block]));
    }
    if (num_places_[block] != 0) {
      broken_rule(stay_out, "tables", phrase("no block of a sink"), state.tables);
    }
    if (contains(queue, block)) {
      broken_rule(stay_out, "free_queue", phrase("neither null nor sinks"), queue);
    }
  }
  const bool are_counted =
      others_hold_ ? std::ranges::equal(num_places_, ref_cnts, std::ranges::less_equal())
                   : num_places_ == ref_cnts;
  if (!are_counted) {
    broken_rule(rule(BlockRule::kRefCntCountsPlaces), "ref_cnts", num_places_, ref_cnts);
  }
  is_queued_.assign(ref_cnts.size(), 0);
  bool is_right = true;
  for (BlockId block : queue) {
    is_right = is_right && block < ref_cnts.size() && ref_cnts[block] == 0 && !is_queued_[block];
    if (block < ref_cnts.size()) is_queued_[block] = 1;
  }
  const auto num_unreferenced =
      static_cast<std::size_t>(std::count(ref_cnts.begin() + num_sinks_ + 1, ref_cnts.end(), 0U));
  if (is_right && queue.size() == num_unreferenced) return;
  std::vector<BlockId> unreferenced;
  for (BlockId block = num_sinks_ + 1; block < ref_cnts.size(); ++block) {
    if (ref_cnts[block] == 0) unreferenced.push_back(block);
  }
  broken_rule(rule(BlockRule::kQueueHoldsTheUnreferenced), "free_queue", unreferenced, queue);
}

void BlockTableInvariants::find_aliases(const BlockState& state,
                                        std::span<const TableOwner> owners) {
  for (BlockId block = 0; block < is_aliased_.size(); ++block) {
    if (state.ref_cnts[block] == 0) is_aliased_[block] = false;
  }
  // A block that was taken for one group of a request and found for another is in both.
  for (std::size_t k = 0; k < owners.size(); ++k) {
    if (owners[k].aliasing == Aliasing::kNone) continue;
    const bool is_unknown = owners[k].aliasing == Aliasing::kUnknown;
    const BlocksByGroup& blocks = state.tables[k].blocks;
    for (GroupId group = 0; group < config_.groups.size() && config_.groups.size() > 1; ++group) {
      for (BlockId block : blocks[group]) {
        bool is_double = is_unknown;
        for (GroupId other = 0; other < group; ++other) {
          is_double = is_double || contains(blocks[other], block);
        }
        if (is_double && block != kNullBlockId) is_aliased_[block] = true;
      }
    }
  }
}

void BlockTableInvariants::check_places(const BlockState& state,
                                        std::span<const TableOwner> owners) {
  find_aliases(state, owners);
  first_.assign(config_.pool.num_gpu_blocks, {});
  for (std::size_t k = 0; k < owners.size(); ++k) {
    const kv_cache::RequestBlocks& table = state.tables[k];
    const Request& request = *owners[k].request;
    for (GroupId group = 0; group < config_.groups.size(); ++group) {
      const std::uint32_t block_size = config_.groups[group].block_size;
      const BlockHashListView hashes =
          request.block_hashes(std::max(block_size, config_.pool.hash.hash_block_size));
      for (std::size_t index = 0; index < table.blocks[group].size(); ++index) {
        const BlockId block = table.blocks[group][index];
        if (block == kNullBlockId || is_aliased_[block]) continue;
        const BlockHash& key = state.keys[block];
        if (!key.empty() && !is_key_of(key, request, block_size, index, group)) {
          broken_rule(rule(BlockRule::kKeysFitTheirPlaces), place_name(table.request, group, index),
                      phrase("a block with the key of its place"), block);
        }
        Place& first = first_[block];
        if (!first.request) {
          first = {&request, owners[k].index, group, index};
          continue;
        }
        const BlockHashListView other_hashes = first.request->block_hashes(block_size);
        const bool is_shared = first.owner != owners[k].index && first.group == group &&
                               first.index == index && index < hashes.size() &&
                               index < other_hashes.size() && hashes[index] == other_hashes[index];
        if (!is_shared) {
          broken_rule(rule(BlockRule::kABlockHasOnePlace), place_name(table.request, group, index),
                      phrase("a block that is at no other place"), block);
        }
      }
    }
  }
}

}  // namespace kvfence
