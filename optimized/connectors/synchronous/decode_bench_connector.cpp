#include "optimized/connectors/synchronous/decode_bench_connector.h"

#include <algorithm>
#include <cstddef>
#include <span>
#include <utility>

namespace kvfence::optimized {

using Bug = PlantedSynchronousConnectorBug;

// ---- The scheduler's half ----

template <class Instrumentation>
BasicDecodeBenchConnectorScheduler<Instrumentation>::BasicDecodeBenchConnectorScheduler(
    const SynchronousConnectorSpec& spec, Instrumentation instrumentation)
    : instrumentation_(instrumentation),
      block_size_(spec.block_size()),
      nothing_to_tell_(std::make_shared<const SynchronousConnectorMetadata>()) {}

template <class Instrumentation>
MatchedTokens BasicDecodeBenchConnectorScheduler<Instrumentation>::get_num_new_matched_tokens(
    const ConnectorRequest& request, std::uint32_t num_local_tokens) {
  instrumentation_.on_requests(1);
  if (filled_.contains(request.index) && !planted(Bug::kFilledAgain)) return {0, false};
  const auto num_tokens = planted(Bug::kOutputsNotFilled)
                              ? request.num_prompt_tokens
                              : static_cast<std::uint32_t>(request.request.all_token_ids().size());
  if (num_tokens <= num_local_tokens + 1) return {0, false};
  std::uint32_t num_found = num_tokens - num_local_tokens - 1;
  if (planted(Bug::kFillRoundedToBlocks)) num_found = num_found / block_size_ * block_size_;
  return {num_found, false};
}

template <class Instrumentation>
void BasicDecodeBenchConnectorScheduler<Instrumentation>::update_state_after_alloc(
    ConnectorHost&, const ConnectorRequest& request, const BlocksByGroup& blocks,
    std::uint32_t num_external_tokens) {
  instrumentation_.on_requests(1);
  if (num_external_tokens == 0) return;
  if (!filled_.contains(request.index)) filled_.push_back(request.index);
  const std::size_t num_blocks =
      (num_external_tokens + (planted(Bug::kPartBlockNotFilled) ? 0 : block_size_ - 1)) /
      block_size_;
  Fill& fill = fills_.emplace_back();
  fill.request = request.index;
  fill.num_tokens = num_external_tokens;
  fill.blocks.reserve(blocks.size());
  for (const std::vector<BlockId>& group : blocks) {
    const std::span<const BlockId> all = group;
    const std::size_t num_told = std::min(num_blocks, all.size());
    const auto told = planted(Bug::kFillOfTableEnd) ? all.last(num_told) : all.first(num_told);
    instrumentation_.on_table_entries(num_told);
    fill.blocks.emplace_back(told.begin(), told.end());
    if (planted(Bug::kGroupsDropped)) break;
  }
}

template <class Instrumentation>
std::shared_ptr<const KVConnectorMetadata>
BasicDecodeBenchConnectorScheduler<Instrumentation>::build_connector_meta(ConnectorHost&,
                                                                          const SchedulerOutput&) {
  if (planted(Bug::kLastFillToldAgain)) {
    if (!fills_.empty()) {
      last_fill_.assign(1, fills_.back());
    } else if (!last_fill_.empty() && filled_.contains(last_fill_.front().request)) {
      fills_ = last_fill_;
    }
  }
  if (fills_.empty()) return nothing_to_tell_;
  auto told = std::make_shared<SynchronousConnectorMetadata>();
  told->fills = std::move(fills_);
  fills_.clear();
  return told;
}

template <class Instrumentation>
bool BasicDecodeBenchConnectorScheduler<Instrumentation>::request_finished(
    ConnectorHost&, const ConnectorRequest& request, const BlocksByGroup&) {
  instrumentation_.on_requests(1);
  if (filled_.contains(request.index) && !planted(Bug::kFilledOutlivesRequest)) {
    filled_.erase(request.index);
  }
  return false;
}

template class BasicDecodeBenchConnectorScheduler<NoInstrumentation>;
template class BasicDecodeBenchConnectorScheduler<CountingInstrumentation>;
template class BasicDecodeBenchConnectorScheduler<PlantedInstrumentation>;

// ---- The worker's half ----

template <class Instrumentation>
void BasicDecodeBenchConnectorWorker<Instrumentation>::start_load_kv(
    const SynchronousConnectorMetadata& metadata, ScriptedKVCache& kv_cache,
    SynchronousWorkerReport& report) {
  const std::uint32_t num_layers = planted(Bug::kOneLayerFilled) ? 1 : kv_cache.num_layers();
  for (const SynchronousConnectorMetadata::Fill& fill : metadata.fills) {
    for (std::uint32_t i = 0; i < num_layers; ++i) {
      const std::uint32_t layer = kv_cache.first_layer() + i;
      SynchronousWorkerReport::Filled& filled = report.filled.emplace_back();
      filled.request = fill.request;
      filled.layer = layer;
      for (const std::vector<BlockId>& group : fill.blocks) {
        filled.blocks.insert(filled.blocks.end(), group.begin(), group.end());
        if (!planted(Bug::kAllGroupsFilled)) break;
      }
      for (const BlockId block : filled.blocks) {
        if (block == kNullBlockId && planted(Bug::kNullBlockSpared)) continue;
        const std::span<KVSymbol> slots = kv_cache.block(layer, block);
        std::fill(slots.begin(), slots.end(), kFilledWithDummies);
      }
    }
  }
}

template class BasicDecodeBenchConnectorWorker<NoInstrumentation>;
template class BasicDecodeBenchConnectorWorker<PlantedInstrumentation>;

}  // namespace kvfence::optimized
