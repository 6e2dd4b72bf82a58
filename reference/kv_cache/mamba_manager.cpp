#include "reference/kv_cache/single_type_kv_cache_manager.h"

#include <algorithm>
#include <set>
#include <utility>

#include "contract/core/check.h"
#include "contract/core/state_digest.h"

namespace kvfence::reference {
namespace {

/// Mamba: one state a request, kept at block boundaries. In mode "all" each block of tokens has a
/// block; in mode "align" only the running state and the last one before it have, at places of
/// their own among null blocks, followed by the speculative blocks. Source: vLLM v0.19.0 and
/// v0.23.0 v1/core/single_type_kv_cache_manager.py MambaManager.
class MambaManager final : public Cloning<MambaManager, SingleTypeKVCacheManager> {
 public:
  using Cloning::Cloning;

  // A hit that another request cached in this step has not been computed yet: more blocks than
  // there are puts the request off. Mode align needs a running state and, the first time, the
  // speculative blocks; a negative number for a table that is too long. Source: vLLM v0.19.0
  // v1/core/single_type_kv_cache_manager.py MambaManager.get_num_blocks_to_allocate
  std::int64_t get_num_blocks_to_allocate(const BlockPool& pool,
                                          const Allocation& allocation) const override {
    const std::span<const BlockId> hit = hit_of(allocation);
    if (!hit.empty() &&
        cached_blocks_this_step_.contains(std::string(pool.block_key(hit.back())))) {
      return std::int64_t{pool.config().num_gpu_blocks} + 1;
    }
    if (!spec_.mamba_align) {
      return SingleTypeKVCacheManager::get_num_blocks_to_allocate(pool, allocation);
    }
    const std::size_t num_there = hit.size() + blocks(allocation.request).size();
    std::int64_t num_new = static_cast<std::int64_t>(num_required_blocks(allocation)) -
                           static_cast<std::int64_t>(num_there);
    if (num_new > 0) {
      const bool has_running_state = allocated_block_reqs_.contains(allocation.request);
      num_new = has_running_state ? 1 : std::int64_t{1} + spec_.num_speculative_blocks;
    }
    return num_new + static_cast<std::int64_t>(get_num_evictable_blocks(pool, hit));
  }

  // Mode align: null blocks up to the running state; the speculative blocks of the last step that
  // now lie before it move after it; new blocks for the rest. Returns null and moved blocks too.
  // Source: vLLM v0.19.0 v1/core/single_type_kv_cache_manager.py MambaManager.allocate_new_blocks
  std::vector<BlockId> allocate_new_blocks(BlockPool& pool, const Allocation& allocation) override {
    if (!spec_.mamba_align) return SingleTypeKVCacheManager::allocate_new_blocks(pool, allocation);
    std::vector<BlockId>& table = req_to_blocks_[allocation.request];
    const std::size_t num_required = num_required_blocks(allocation);
    if (num_required <= table.size()) return {};

    const std::size_t num_before = table.size();
    const std::size_t num_new = num_new_blocks(allocation, num_before);
    const std::size_t num_speculative = spec_.num_speculative_blocks;
    const std::size_t num_skipped = num_required - num_speculative - 1;
    const bool has_running_state = allocated_block_reqs_.contains(allocation.request);
    if (has_running_state) {
      last_state_block_idx_[allocation.request] = num_before - 1 - num_speculative;
    } else if (num_before > 0) {
      last_state_block_idx_[allocation.request] = num_before - 1;
    }

    table.resize(std::max(num_before, num_skipped), kNullBlockId);
    if (has_running_state) {
      for (std::size_t i = num_before - num_speculative; i < std::min(num_before, num_skipped);
           ++i) {
        table.push_back(std::exchange(table[i], kNullBlockId));
      }
    }
    append_new_blocks(pool, num_new, table);
    KVFENCE_CHECK(table.size() == num_required, "a Mamba table has another length than required");
    allocated_block_reqs_.insert(allocation.request);
    return {table.begin() + static_cast<std::ptrdiff_t>(num_before), table.end()};
  }

  // Source: vLLM v0.19.0 v1/core/single_type_kv_cache_manager.py MambaManager.allocate_new_blocks
  // (its assertion); v0.23.0, the same function, leaves the table alone
  bool table_shrinks(const Allocation& allocation) const override {
    return spec_.mamba_align && !config_.pool.rules.mamba_align_keeps_blocks &&
           num_required_blocks(allocation) < blocks(allocation.request).size();
  }

  // Source: vLLM v0.19.0 v1/core/single_type_kv_cache_manager.py MambaManager.cache_blocks
  void cache_blocks(BlockPool& pool, const KVRequest& request, std::size_t num_tokens) override {
    const std::size_t num_cached_before = num_cached_blocks(request.index);
    SingleTypeKVCacheManager::cache_blocks(pool, request, num_tokens);
    const std::span<const BlockId> table = blocks(request.index);
    for (std::size_t i = num_cached_before; i < num_cached_blocks(request.index); ++i) {
      if (table[i] == kNullBlockId) continue;
      cached_blocks_this_step_.emplace(pool.block_key(table[i]));
    }
  }

  // Mode align: a speculative block holds no state of the request yet, and will move.
  // Source: ours; upstream would cache it, and fail at its hash when it has moved
  std::size_t num_token_blocks(RequestIndex request) const override {
    const std::size_t num_blocks = blocks(request).size();
    return spec_.mamba_align ? minus_or_0(num_blocks, spec_.num_speculative_blocks) : num_blocks;
  }

  // Source: vLLM v0.19.0 v1/core/single_type_kv_cache_manager.py MambaManager.free
  void free(BlockPool& pool, RequestIndex request) override {
    allocated_block_reqs_.erase(request);
    last_state_block_idx_.erase(request);
    SingleTypeKVCacheManager::free(pool, request);
  }

  // Speculative tokens may still be rejected, so they do not count as computed. Mode align also
  // gives the state back that the running one was copied from, once it is two boundaries back: it
  // may be alone among null blocks, where the base does not see it. Source: vLLM v0.19.0
  // v1/core/single_type_kv_cache_manager.py MambaManager.remove_skipped_blocks
  void remove_skipped_blocks(BlockPool& pool, RequestIndex request,
                             std::size_t total_computed_tokens) override {
    const std::size_t num_computed_tokens =
        minus_or_0(total_computed_tokens, spec_.num_speculative_blocks);
    SingleTypeKVCacheManager::remove_skipped_blocks(pool, request, num_computed_tokens);

    const auto last_state = last_state_block_idx_.find(request);
    if (last_state == last_state_block_idx_.end()) return;
    if (last_state->second + 1 >= cdiv(num_computed_tokens, block_size_)) return;
    BlockId& block = req_to_blocks_.at(request)[last_state->second];
    if (block != kNullBlockId) free_blocks(pool, {&block, 1}, /*unhashed_first=*/false);
    block = kNullBlockId;
  }

  // Source: vLLM v0.19.0 v1/core/single_type_kv_cache_manager.py MambaManager.new_step_starts
  void new_step_starts() override { cached_blocks_this_step_.clear(); }

  // The rightmost aligned block that is cached; null blocks before it: one state is enough.
  // Source: vLLM v0.19.0 v1/core/single_type_kv_cache_manager.py
  // MambaManager.find_longest_cache_hit
  BlocksByGroup find_longest_cache_hit(const BlockPool& pool, const Lookup& lookup) const override {
    BlocksByGroup computed_blocks(lookup.group_ids.size());
    for (std::size_t i = lookup.max_length / block_size_; i-- > 0;) {
      if ((i + 1) * block_size_ % lookup.alignment_tokens != 0 &&
          block_size_ != lookup.alignment_tokens) {
        continue;
      }
      const auto cached = get_cached_block(pool, lookup, i);
      if (!cached) continue;
      for (std::size_t g = 0; g < cached->size(); ++g) {
        computed_blocks[g].assign(i, kNullBlockId);
        computed_blocks[g].push_back((*cached)[g]);
      }
      break;
    }
    return computed_blocks;
  }

  // Source: ours
  void add_to(StateHash& hash) const override {
    SingleTypeKVCacheManager::add_to(hash);
    hash.add_all(cached_blocks_this_step_, last_state_block_idx_, allocated_block_reqs_);
  }

 protected:
  // Speculative blocks come on top. Mode align has no slots for lookahead: they would end it beyond
  // the boundary. Source: vLLM v0.19.0 v1/core/single_type_kv_cache_manager.py
  // MambaManager.get_num_blocks_to_allocate, allocate_new_blocks
  std::size_t num_required_blocks(const Allocation& allocation) const override {
    const std::size_t num_tokens =
        spec_.mamba_align ? allocation.num_tokens_main_model : allocation.num_tokens;
    return cdiv(num_tokens, block_size_) + spec_.num_speculative_blocks;
  }

  // Mode align: what is neither a null block before the running state nor a speculative block of
  // the last step. Source: vLLM v0.19.0 v1/core/single_type_kv_cache_manager.py
  // MambaManager.allocate_new_blocks
  std::size_t num_new_blocks(const Allocation& allocation, std::size_t num_blocks) const override {
    if (!spec_.mamba_align) return SingleTypeKVCacheManager::num_new_blocks(allocation, num_blocks);
    const std::size_t num_required = num_required_blocks(allocation);
    if (num_required <= num_blocks) return 0;
    if (allocated_block_reqs_.contains(allocation.request)) return 1;
    const std::size_t num_skipped = num_required - spec_.num_speculative_blocks - 1;
    return num_required - std::max(num_blocks, num_skipped);
  }

  // Source: vLLM v0.19.0 v1/core/single_type_kv_cache_manager.py
  // MambaManager.get_num_skipped_tokens
  std::size_t get_num_skipped_tokens(std::size_t num_computed_tokens) const override {
    return minus_or_0(num_computed_tokens, 1);
  }

 private:
  std::set<std::string> cached_blocks_this_step_;  ///< packed keys
  /// Mode align: the place of the state that the running one was copied from.
  std::map<RequestIndex, std::size_t> last_state_block_idx_;
  /// Mode align: requests whose table ends with a running state and the speculative blocks.
  std::set<RequestIndex> allocated_block_reqs_;
};

}  // namespace

std::unique_ptr<SingleTypeKVCacheManager> make_mamba_manager(const KVCacheManagerConfig& config,
                                                             GroupId group) {
  return std::make_unique<MambaManager>(config, group);
}

}  // namespace kvfence::reference
