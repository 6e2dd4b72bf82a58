#pragma once

/// Connects any KV-cache manager that satisfies the concept to the interface that a lockstep
/// drives.

#include <utility>
#include <vector>

#include "contract/kv_cache/kv_cache_manager.h"
#include "contract/kv_cache/kv_cache_target.h"
#include "contract/pool/observe_blocks.h"
#include "properties/core/driver.h"

namespace kvfence {

template <class MakeManager>
class KVCacheDriver final
    : public ValueDriver<KVCacheDriver<MakeManager>, KVCacheTarget, MakeManager> {
  using Base = ValueDriver<KVCacheDriver, KVCacheTarget, MakeManager>;
  static_assert(KVCacheManager<typename Base::Component>);
  friend Base;

 public:
  using Base::Base;

 private:
  using Base::component_;
  using Base::observed;
  using typename Base::World;

  using Entry = kv_cache::World::Entry;

  /// A request as the manager gets it.
  static KVRequest request_of(const World& world, const Entry& entry,
                              std::uint32_t num_computed_tokens, bool was_preempted) {
    return {.index = entry.index,
            .request = *world.requests().find(entry.name),
            .num_computed_tokens = num_computed_tokens,
            .num_prompt_tokens = entry.num_prompt_tokens,
            .skip_reading_prefix_cache = entry.skip_reading_prefix_cache,
            .was_preempted = was_preempted};
  }

  ErrorCode run(const kv_cache::DeclareRequest& command, const World& world) {
    const Entry* entry = world.find(command.id);
    return entry && entry->is_new ? ErrorCode::kNone : ErrorCode::kAlreadyDeclared;
  }

  /// A command that names a request is refused if there is no such request.
  template <class Named>
  requires requires(const Named& command) { command.request; }
  ErrorCode run(const Named& command, const World& world) {
    const Entry* const entry = world.find(command.request);
    if (!entry) return ErrorCode::kUnknownRequest;
    return error_of([&] { return run(command, world, *entry); });
  }

  void run(const kv_cache::AppendTokens&, const World&, const Entry&) {}

  void run(const kv_cache::NewStepStarts&, const World&) { component_->new_step_starts(); }

  void run(const kv_cache::GetComputedBlocks& command, const World& world, const Entry& entry) {
    component_->get_computed_blocks(request_of(world, entry, 0, command.was_preempted), hit_);
    observed().blocks.emplace() = hit_.blocks;
    observed().num_hit_tokens.emplace() = hit_.num_tokens;
  }

  ErrorCode run(const kv_cache::CanFitFullSequence& command, const World& world,
                const Entry& entry) {
    const KVRequest request = request_of(world, entry, command.num_computed_tokens, false);
    if (command.from_cache) component_->get_computed_blocks(request, hit_);
    bool fits = false;
    const ErrorCode error = component_->can_fit_full_sequence(
        request, command.from_cache ? &hit_ : nullptr, command.num_external_tokens,
        command.num_encoder_tokens, fits);
    if (error == ErrorCode::kNone) observed().fits.emplace() = fits;
    return error;
  }

  ErrorCode run(const kv_cache::AllocateSlots& command, const World& world, const Entry& entry) {
    const KVRequest request =
        request_of(world, entry, command.num_computed_tokens, command.was_preempted);
    if (command.from_cache) component_->get_computed_blocks(request, hit_);
    bool allocated = false;
    BlocksByGroup& blocks = observed().blocks.emplace();
    const ErrorCode error =
        component_->allocate_slots({.request = request,
                                    .num_new_tokens = command.num_new_tokens,
                                    .hit = command.from_cache ? &hit_ : nullptr,
                                    .num_lookahead_tokens = command.num_lookahead_tokens,
                                    .num_external_tokens = command.num_external_tokens,
                                    .delay_cache_blocks = command.delay_cache_blocks,
                                    .num_encoder_tokens = command.num_encoder_tokens,
                                    .full_sequence_must_fit = command.full_sequence_must_fit,
                                    .reserved_blocks = command.reserved_blocks},
                                   allocated, blocks);
    if (error == ErrorCode::kNone) observed().allocated.emplace() = allocated;
    if (allocated && component_->config().pool.rules.full_sequence_gate_in_allocate_slots) {
      observed().num_remaining.emplace() = component_->get_num_remaining_blocks(request);
    }
    if (error != ErrorCode::kNone || !allocated) observed().blocks.reset();
    return error;
  }

  ErrorCode run(const kv_cache::CacheBlocks& command, const World& world, const Entry& entry) {
    return component_->cache_blocks(request_of(world, entry, command.num_computed_tokens, false),
                                    command.num_computed_tokens);
  }

  void run(const kv_cache::Free&, const World&, const Entry& entry) {
    component_->free(entry.index);
  }

  void run(const kv_cache::RemoveSkippedBlocks& command, const World&, const Entry& entry) {
    component_->remove_skipped_blocks(entry.index, command.total_computed_tokens);
  }

  ErrorCode run(const kv_cache::EvictBlocks& command, const World&) {
    return component_->evict_blocks(command.blocks);
  }

  void run(const kv_cache::ResetPrefixCache&, const World&) {
    observed().success.emplace() = component_->reset_prefix_cache();
  }

  ErrorCode run(const kv_cache::GetNumCommonPrefixBlocks&, const World&, const Entry& entry) {
    const ErrorCode error =
        component_->get_num_common_prefix_blocks(entry.index, observed().counts.emplace());
    if (error != ErrorCode::kNone) observed().counts.reset();
    return error;
  }

  void run(const kv_cache::GetUnhashedBlockIds&, const World&, const Entry& entry) {
    component_->get_unhashed_block_ids(entry.index, observed().blocks.emplace());
  }

  void run(const kv_cache::TakeNewBlockIds&, const World&) {
    component_->take_new_block_ids(observed().block_ids.emplace());
  }

  void run(const kv_cache::TakeEvents&, const World&) {
    component_->take_events(observed().events.emplace());
  }

  void run(const kv_cache::TakePrefixCacheStats&, const World&) {
    const PrefixCacheStats stats = component_->take_prefix_cache_stats();
    std::vector<std::uint32_t>& list = observed().stats.emplace();
    list.clear();
    for (std::uint64_t number :
         {std::uint64_t{stats.reset}, stats.requests, stats.queries, stats.hits,
          stats.preempted_requests, stats.preempted_queries, stats.preempted_hits}) {
      list.push_back(static_cast<std::uint32_t>(number));
    }
  }

  void observe(const World& world, bool with_state) {
    const auto& pool = component_->block_pool();
    observed().num_free_blocks = pool.get_num_free_blocks();
    observed().num_cached_keys = pool.num_cached_keys();
    observed().usage = pool.get_usage();
    if (with_state) observe_state(world);
  }

  void observe_state(const World& world) {
    observe_blocks(component_->block_pool(), observed());
    std::vector<kv_cache::RequestBlocks>& tables = observed().tables.emplace();
    std::size_t num_tables = 0;
    for (const Entry& entry : world.entries()) {
      component_->get_block_ids(entry.index, table_);
      if (!has_blocks(table_)) continue;
      if (num_tables == tables.size()) tables.emplace_back();
      tables[num_tables].request = entry.name;
      std::swap(tables[num_tables++].blocks, table_);
    }
    tables.resize(num_tables);
  }

  ComputedBlocks hit_;
  BlocksByGroup table_;
};

}  // namespace kvfence
