#pragma once

/// The DecodeBenchConnector, both halves: the executable specification. The rules of each function
/// stand in contract/connectors/synchronous/synchronous_connector.h.
/// Source: vLLM v0.19.0 and v0.23.0
/// distributed/kv_transfer/kv_connector/v1/decode_bench_connector.py.

#include <cstdint>
#include <memory>
#include <vector>

#include "contract/connectors/synchronous/synchronous_connector.h"
#include "contract/core/state_digest.h"

namespace kvfence::reference {

class DecodeBenchConnector final : public SynchronousConnectorScheduler {
 public:
  /// Requires: check_spec(spec) finds nothing wrong
  explicit DecodeBenchConnector(const SynchronousConnectorSpec& spec);

  std::unique_ptr<KVConnector> clone() const override;
  void on_new_request(const ConnectorRequest& request) override;
  MatchedTokens get_num_new_matched_tokens(const ConnectorRequest& request,
                                           std::uint32_t num_local_tokens) override;
  void update_state_after_alloc(ConnectorHost& host, const ConnectorRequest& request,
                                const BlocksByGroup& blocks,
                                std::uint32_t num_external_tokens) override;
  std::shared_ptr<const KVConnectorMetadata> build_connector_meta(
      ConnectorHost& host, const SchedulerOutput& output) override;
  void update_connector_output(ConnectorHost& host, const KVConnectorOutput& output) override;
  bool request_finished(ConnectorHost& host, const ConnectorRequest& request,
                        const BlocksByGroup& blocks) override;
  void take_events(std::vector<KVCacheEvent>& out) override;
  bool reset_cache() override;
  void filled_requests(std::vector<RequestIndex>& out) const override { out = filled_requests_; }
  void add_to(StateHash& hash) const override { hash.add_all(filled_requests_, pending_fills_); }

 private:
  SynchronousConnectorSpec spec_;
  std::vector<RequestIndex> filled_requests_;  ///< in the order of their fills
  std::vector<SynchronousConnectorMetadata::Fill> pending_fills_;
};

/// Of one rank.
class DecodeBenchConnectorWorker final : public SynchronousConnectorWorker {
 public:
  void start_load_kv(const SynchronousConnectorMetadata& metadata, ScriptedKVCache& kv_cache,
                     SynchronousWorkerReport& report) override;
  void save_kv_layer(const SynchronousConnectorMetadata& metadata, std::uint32_t layer,
                     const ScriptedKVCache& kv_cache, SynchronousWorkerReport& report) override;
};

}  // namespace kvfence::reference
