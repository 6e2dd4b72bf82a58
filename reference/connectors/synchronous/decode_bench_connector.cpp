#include "reference/connectors/synchronous/decode_bench_connector.h"

#include <algorithm>
#include <span>

#include "contract/core/check.h"
#include "contract/scheduler/scheduler.h"

namespace kvfence::reference {

DecodeBenchConnector::DecodeBenchConnector(const SynchronousConnectorSpec& spec) : spec_(spec) {
  KVFENCE_CHECK(!check_spec(spec), "no connector can be built from this spec");
}

std::unique_ptr<KVConnector> DecodeBenchConnector::clone() const {
  return std::make_unique<DecodeBenchConnector>(*this);
}

void DecodeBenchConnector::on_new_request(const ConnectorRequest& /*request*/) {}

// Source: vLLM v0.19.0 decode_bench_connector.py
// DecodeBenchConnectorScheduler.get_num_new_matched_tokens
MatchedTokens DecodeBenchConnector::get_num_new_matched_tokens(const ConnectorRequest& request,
                                                               std::uint32_t num_local_tokens) {
  const bool is_filled = std::find(filled_requests_.begin(), filled_requests_.end(),
                                   request.index) != filled_requests_.end();
  const auto num_tokens = static_cast<std::uint32_t>(request.request.all_token_ids().size());
  if (is_filled || num_tokens <= num_local_tokens + 1) return {0, /*load_async=*/false};
  return {num_tokens - num_local_tokens - 1, /*load_async=*/false};
}

// Source: vLLM v0.19.0 decode_bench_connector.py
// DecodeBenchConnectorScheduler.update_state_after_alloc
void DecodeBenchConnector::update_state_after_alloc(ConnectorHost& /*host*/,
                                                    const ConnectorRequest& request,
                                                    const BlocksByGroup& blocks,
                                                    std::uint32_t num_external_tokens) {
  if (num_external_tokens == 0) return;
  const std::size_t num_blocks_to_fill =
      (num_external_tokens + spec_.block_size() - 1) / spec_.block_size();
  SynchronousConnectorMetadata::Fill fill{request.index, num_external_tokens, blocks};
  for (std::vector<BlockId>& group : fill.blocks) {
    group.resize(std::min(group.size(), num_blocks_to_fill));
  }
  pending_fills_.push_back(std::move(fill));
  filled_requests_.push_back(request.index);
}

std::shared_ptr<const KVConnectorMetadata> DecodeBenchConnector::build_connector_meta(
    ConnectorHost& /*host*/, const SchedulerOutput& /*output*/) {
  auto metadata = std::make_shared<SynchronousConnectorMetadata>();
  metadata->fills.swap(pending_fills_);
  return metadata;
}

void DecodeBenchConnector::update_connector_output(ConnectorHost& /*host*/,
                                                   const KVConnectorOutput& /*output*/) {}

bool DecodeBenchConnector::request_finished(ConnectorHost& /*host*/,
                                            const ConnectorRequest& request,
                                            const BlocksByGroup& /*blocks*/) {
  std::erase(filled_requests_, request.index);
  return false;
}

void DecodeBenchConnector::take_events(std::vector<KVCacheEvent>& /*out*/) {}

// Source: vLLM v0.19.0 kv_connector/v1/base.py reset_cache, v1/core/sched/scheduler.py
// reset_connector_cache
bool DecodeBenchConnector::reset_cache() { return true; }

// Source: vLLM v0.19.0 decode_bench_connector.py DecodeBenchConnectorWorker.start_fill_kv,
// _fill_blocks, register_kv_caches
void DecodeBenchConnectorWorker::start_load_kv(const SynchronousConnectorMetadata& metadata,
                                               ScriptedKVCache& kv_cache,
                                               SynchronousWorkerReport& report) {
  for (const SynchronousConnectorMetadata::Fill& fill : metadata.fills) {
    const std::vector<BlockId>& blocks_of_group_0 = fill.blocks.front();
    for (std::uint32_t i = 0; i < kv_cache.num_layers(); ++i) {
      const std::uint32_t layer = kv_cache.first_layer() + i;
      for (const BlockId block : blocks_of_group_0) {
        const std::span<KVSymbol> slots = kv_cache.block(layer, block);
        std::fill(slots.begin(), slots.end(), kFilledWithDummies);
      }
      report.filled.push_back({fill.request, layer, blocks_of_group_0});
    }
  }
}

void DecodeBenchConnectorWorker::save_kv_layer(const SynchronousConnectorMetadata& /*metadata*/,
                                               std::uint32_t /*layer*/,
                                               const ScriptedKVCache& /*kv_cache*/,
                                               SynchronousWorkerReport& /*report*/) {}

}  // namespace kvfence::reference
