#pragma once

/// Puts any block pool that satisfies the concept behind the interface that a lockstep drives.

#include <algorithm>
#include <memory>
#include <optional>
#include <string>
#include <type_traits>
#include <utility>
#include <variant>
#include <vector>

#include "contract/core/check.h"
#include "contract/core/implementation.h"
#include "contract/core/state_digest.h"
#include "contract/pool/block_pool.h"
#include "contract/pool/block_pool_target.h"
#include "properties/core/driver.h"

namespace kvfence {

/// make_pool builds the pool from its configuration: the place where a planted variant gets its
/// bug.
template <BlockPool Pool, class MakePool>
class BlockPoolDriver final : public DriverOf<BlockPoolTarget> {
 public:
  BlockPoolDriver(std::string name, MakePool make_pool)
      : name_(std::move(name)), make_pool_(std::move(make_pool)) {}

  std::string name() const override { return name_; }

  std::optional<ImplementationFailure> start(const Config&, const Setup& setup) override {
    pool_.emplace(make_pool_(setup));
    return std::nullopt;
  }

  void submit_typed(const Command& command, const World& world, Observe observe) override {
    observation_.hit.reset();
    observation_.blocks.reset();
    observation_.success.reset();
    observation_.events.reset();
    observation_.error = std::visit(
        [&](const auto& alternative) { return run(alternative, world.requests()); }, command);
    observe_numbers();
    if (observe == Observe::kState) {
      observe_state();
    } else {
      observation_.free_queue.reset();
      observation_.ref_cnts.reset();
      observation_.keys.reset();
    }
  }

  void collect_typed(Observation& observation) override { observation = std::move(observation_); }

  std::unique_ptr<Implementation> clone() const override {
    return std::make_unique<BlockPoolDriver>(*this);
  }
  void assign(const Implementation& other) override {
    pool_ = static_cast<const BlockPoolDriver&>(other).pool_;
  }
  void add_to(StateHash& hash) const override { add_state(hash, *pool_); }

  const Pool& pool() const { return *pool_; }

 private:
  ErrorCode run(const block_pool::DeclareRequest&, const RequestTable&) { return ErrorCode::kNone; }

  ErrorCode run(const block_pool::AppendTokens& command, const RequestTable& requests) {
    return requests.find(command.request) ? ErrorCode::kNone : ErrorCode::kUnknownRequest;
  }

  ErrorCode run(const block_pool::GetNewBlocks& command, const RequestTable&) {
    // The list to fill is as long as the command says: an absurd count never reaches the pool.
    if (command.num_blocks > pool_->config().num_gpu_blocks) return ErrorCode::kNoFreeBlocks;
    std::vector<BlockId>& blocks = observation_.blocks.emplace();
    blocks.resize(command.num_blocks);
    const ErrorCode error = pool_->get_new_blocks(blocks);
    if (error != ErrorCode::kNone) observation_.blocks.reset();
    return error;
  }

  ErrorCode run(const block_pool::GetCachedBlock& command, const RequestTable& requests) {
    const Request* request = requests.find(command.request);
    if (!request) return ErrorCode::kUnknownRequest;
    const BlockPoolConfig& config = pool_->config();
    if (command.block_size == 0 || command.block_size % config.hash.hash_block_size != 0 ||
        command.block_size > config.max_block_size) {
      return ErrorCode::kBadBlockSize;
    }
    const BlockHashListView hashes = request->block_hashes(command.block_size);
    if (command.index >= hashes.size()) return ErrorCode::kMissingHash;
    std::vector<BlockId>& blocks = observation_.blocks.emplace();
    blocks.resize(command.groups.size());
    const bool hit = pool_->get_cached_block(hashes[command.index], command.groups, blocks);
    observation_.hit.emplace() = hit;
    if (!hit) observation_.blocks.reset();
    return ErrorCode::kNone;
  }

  ErrorCode run(const block_pool::Touch& command, const RequestTable&) {
    return pool_->touch(command.blocks);
  }

  ErrorCode run(const block_pool::CacheFullBlocks& command, const RequestTable& requests) {
    const Request* request = requests.find(command.request);
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
    return pool_->cache_full_blocks(args);
  }

  ErrorCode run(const block_pool::FreeBlocks& command, const RequestTable&) {
    return pool_->free_blocks(command.blocks, command.prepend ? FreeTo::kHead : FreeTo::kTail);
  }

  ErrorCode run(const block_pool::EvictBlocks& command, const RequestTable&) {
    return pool_->evict_blocks(command.blocks);
  }

  ErrorCode run(const block_pool::ResetPrefixCache&, const RequestTable&) {
    observation_.success.emplace() = pool_->reset_prefix_cache();
    return ErrorCode::kNone;
  }

  ErrorCode run(const block_pool::TakeEvents&, const RequestTable&) {
    pool_->take_events(observation_.events.emplace());
    return ErrorCode::kNone;
  }

  void observe_numbers() {
    const BlockCounts counts = pool_->block_counts();
    observation_.num_free_blocks = pool_->get_num_free_blocks();
    observation_.num_empty = counts.empty;
    observation_.num_cached = counts.cached;
    observation_.num_referenced = counts.referenced;
    observation_.num_cached_keys = pool_->num_cached_keys();
    observation_.usage = pool_->get_usage();
  }

  void observe_state() {
    const std::uint32_t num_blocks = pool_->config().num_gpu_blocks;
    pool_->get_all_free_blocks(observation_.free_queue.emplace());
    std::vector<std::uint32_t>& ref_cnts = observation_.ref_cnts.emplace();
    KeyList& keys = observation_.keys.emplace();
    ref_cnts.resize(num_blocks);
    keys.resize(num_blocks);
    for (BlockId block = 0; block < num_blocks; ++block) {
      ref_cnts[block] = pool_->ref_cnt(block);
      keys[block].assign(std::string_view(pool_->block_key(block)));
    }
  }

  std::string name_;
  MakePool make_pool_;
  std::optional<Pool> pool_;
  Observation observation_;
  std::vector<std::uint8_t> mask_;
};

/// A driver of pools that make_pool(config) makes.
template <class MakePool>
std::unique_ptr<Implementation> make_block_pool_driver(std::string name, MakePool make_pool) {
  using Pool = std::invoke_result_t<MakePool&, const BlockPoolConfig&>;
  return std::make_unique<BlockPoolDriver<Pool, MakePool>>(std::move(name), std::move(make_pool));
}

/// A driver of pools that are made from their configuration alone.
template <BlockPool Pool>
std::unique_ptr<Implementation> make_block_pool_driver(std::string name) {
  return make_block_pool_driver(std::move(name),
                                [](const BlockPoolConfig& config) { return Pool(config); });
}

}  // namespace kvfence
