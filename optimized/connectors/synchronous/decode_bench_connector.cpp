#include "optimized/connectors/synchronous/decode_bench_connector.h"

#include <algorithm>
#include <cstddef>
#include <span>
#include <utility>

namespace kvfence::optimized {

// ---- The scheduler's half ----

DecodeBenchConnectorScheduler::DecodeBenchConnectorScheduler(const SynchronousConnectorSpec& spec)
    : block_size_(spec.block_size()),
      nothing_to_tell_(std::make_shared<const SynchronousConnectorMetadata>()) {}

MatchedTokens DecodeBenchConnectorScheduler::get_num_new_matched_tokens(
    const ConnectorRequest& request, std::uint32_t num_local_tokens) {
  if (filled_.contains(request.index)) return {0, false};
  const auto num_tokens = static_cast<std::uint32_t>(request.request.all_token_ids().size());
  if (num_tokens <= num_local_tokens + 1) return {0, false};
  return {num_tokens - num_local_tokens - 1, false};
}

void DecodeBenchConnectorScheduler::update_state_after_alloc(ConnectorHost&,
                                                             const ConnectorRequest& request,
                                                             const BlocksByGroup& blocks,
                                                             std::uint32_t num_external_tokens) {
  if (num_external_tokens == 0) return;
  if (!filled_.contains(request.index)) filled_.push_back(request.index);
  const std::size_t num_blocks = (num_external_tokens + block_size_ - 1) / block_size_;
  Fill& fill = fills_.emplace_back();
  fill.request = request.index;
  fill.num_tokens = num_external_tokens;
  fill.blocks.reserve(blocks.size());
  for (const std::vector<BlockId>& group : blocks) {
    const std::span<const BlockId> all = group;
    const std::span<const BlockId> told = all.first(std::min(num_blocks, all.size()));
    fill.blocks.emplace_back(told.begin(), told.end());
  }
}

std::shared_ptr<const KVConnectorMetadata> DecodeBenchConnectorScheduler::build_connector_meta(
    ConnectorHost&, const SchedulerOutput&) {
  if (fills_.empty()) return nothing_to_tell_;
  auto told = std::make_shared<SynchronousConnectorMetadata>();
  told->fills = std::move(fills_);
  fills_.clear();
  return told;
}

bool DecodeBenchConnectorScheduler::request_finished(ConnectorHost&,
                                                     const ConnectorRequest& request,
                                                     const BlocksByGroup&) {
  if (filled_.contains(request.index)) filled_.erase(request.index);
  return false;
}

// ---- The worker's half ----

void DecodeBenchConnectorWorker::start_load_kv(const SynchronousConnectorMetadata& metadata,
                                               ScriptedKVCache& kv_cache,
                                               SynchronousWorkerReport& report) {
  for (const SynchronousConnectorMetadata::Fill& fill : metadata.fills) {
    for (std::uint32_t i = 0; i < kv_cache.num_layers(); ++i) {
      const std::uint32_t layer = kv_cache.first_layer() + i;
      SynchronousWorkerReport::Filled& filled = report.filled.emplace_back();
      filled.request = fill.request;
      filled.layer = layer;
      filled.blocks = fill.blocks.front();
      for (const BlockId block : filled.blocks) {
        const std::span<KVSymbol> slots = kv_cache.block(layer, block);
        std::fill(slots.begin(), slots.end(), kFilledWithDummies);
      }
    }
  }
}

}  // namespace kvfence::optimized
