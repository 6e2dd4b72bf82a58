#pragma once

/// Connects any block pool that satisfies the concept to the interface that a lockstep drives.

#include <vector>

#include "contract/pool/block_pool.h"
#include "contract/pool/block_pool_target.h"
#include "contract/pool/observe_blocks.h"
#include "properties/core/driver.h"

namespace kvfence {

template <class MakePool>
class BlockPoolDriver final
    : public ValueDriver<BlockPoolDriver<MakePool>, BlockPoolTarget, MakePool> {
  using Base = ValueDriver<BlockPoolDriver, BlockPoolTarget, MakePool>;
  static_assert(BlockPool<typename Base::Component>);
  friend Base;

 public:
  using Base::Base;

 private:
  using Base::component_;
  using Base::observed;
  using typename Base::World;

  ErrorCode run(const block_pool::DeclareRequest&, const World&) { return ErrorCode::kNone; }

  ErrorCode run(const block_pool::AppendTokens& command, const World& world) {
    return world.requests().find(command.request) ? ErrorCode::kNone : ErrorCode::kUnknownRequest;
  }

  ErrorCode run(const block_pool::GetNewBlocks& command, const World&) {
    // The list to fill is as long as the command says, so an absurd count must not reach the pool.
    if (command.num_blocks > component_->config().num_gpu_blocks) return ErrorCode::kNoFreeBlocks;
    std::vector<BlockId>& blocks = observed().blocks.emplace();
    blocks.resize(command.num_blocks);
    const ErrorCode error = component_->get_new_blocks(blocks);
    if (error != ErrorCode::kNone) observed().blocks.reset();
    return error;
  }

  ErrorCode run(const block_pool::GetCachedBlock& command, const World& world) {
    const Request* request = world.requests().find(command.request);
    if (!request) return ErrorCode::kUnknownRequest;
    const BlockPoolConfig& config = component_->config();
    if (command.block_size == 0 || command.block_size % config.hash.hash_block_size != 0 ||
        command.block_size > config.max_block_size) {
      return ErrorCode::kBadBlockSize;
    }
    const BlockHashListView hashes = request->block_hashes(command.block_size);
    if (command.index >= hashes.size()) return ErrorCode::kMissingHash;
    std::vector<BlockId>& blocks = observed().blocks.emplace();
    blocks.resize(command.groups.size());
    const bool hit = component_->get_cached_block(hashes[command.index], command.groups, blocks);
    observed().hit.emplace() = hit;
    if (!hit) observed().blocks.reset();
    return ErrorCode::kNone;
  }

  ErrorCode run(const block_pool::Touch& command, const World&) {
    return component_->touch(command.blocks);
  }

  ErrorCode run(const block_pool::CacheFullBlocks& command, const World& world) {
    const Request* request = world.requests().find(command.request);
    if (!request) return ErrorCode::kUnknownRequest;
    CacheFullBlocksArgs args{.request = *request,
                             .blocks = command.blocks,
                             .num_cached_blocks = command.num_cached_blocks,
                             .num_full_blocks = command.num_full_blocks,
                             .block_size = command.block_size,
                             .kv_cache_group_id = command.group,
                             .block_mask = std::nullopt};
    if (command.block_mask) {
      mask_.assign(command.block_mask->begin(), command.block_mask->end());
      args.block_mask = mask_;
    }
    return component_->cache_full_blocks(args);
  }

  ErrorCode run(const block_pool::FreeBlocks& command, const World&) {
    return component_->free_blocks(command.blocks, command.prepend ? FreeTo::kHead : FreeTo::kTail);
  }

  ErrorCode run(const block_pool::EvictBlocks& command, const World&) {
    return component_->evict_blocks(command.blocks);
  }

  void run(const block_pool::ResetPrefixCache&, const World&) {
    observed().success.emplace() = component_->reset_prefix_cache();
  }

  void run(const block_pool::TakeEvents&, const World&) {
    component_->take_events(observed().events.emplace());
  }

  void observe(const World&, bool with_state) {
    block_pool::Observation& shown = observed();
    const BlockCounts counts = component_->block_counts();
    shown.num_free_blocks = component_->get_num_free_blocks();
    shown.num_empty = counts.empty;
    shown.num_cached = counts.cached;
    shown.num_referenced = counts.referenced;
    shown.num_cached_keys = component_->num_cached_keys();
    shown.usage = component_->get_usage();
    if (with_state) observe_blocks(*component_, shown);
  }

  std::vector<std::uint8_t> mask_;
};

}  // namespace kvfence
