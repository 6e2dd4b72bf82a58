#pragma once

/// The ExampleConnector, both halves: the executable specification. The rules of each function
/// stand in contract/connectors/synchronous/synchronous_connector.h.
/// Source: vLLM v0.19.0 and v0.23.0
/// distributed/kv_transfer/kv_connector/v1/example_connector.py.

#include <cstdint>
#include <memory>
#include <set>
#include <vector>

#include "contract/connectors/synchronous/synchronous_connector.h"
#include "contract/core/state_digest.h"

namespace kvfence::reference {

class ExampleConnector final : public SynchronousConnectorScheduler {
 public:
  /// Requires: check_spec(spec) finds nothing wrong; storage outlives this and its copies
  ExampleConnector(const SynchronousConnectorSpec& spec, const SharedStorage& storage);

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
  void filled_requests(std::vector<RequestIndex>& out) const override;
  void add_to(StateHash& hash) const override { hash.add_all(requests_need_load_); }

 private:
  bool found_match_for_request(const ConnectorRequest& request) const;
  /// What is kept of the first num_tokens tokens, in the first blocks of the request.
  SynchronousConnectorMetadata::Transfer transfer_of(const ConnectorRequest& request, bool is_store,
                                                     std::uint32_t num_tokens,
                                                     std::span<const BlockId> blocks) const;

  SynchronousConnectorSpec spec_;
  const SharedStorage* storage_;
  std::set<RequestIndex> requests_need_load_;
};

/// Of one rank.
class ExampleConnectorWorker final : public SynchronousConnectorWorker {
 public:
  /// Requires: storage outlives this
  explicit ExampleConnectorWorker(SharedStorage& storage) : storage_(storage) {}

  void start_load_kv(const SynchronousConnectorMetadata& metadata, ScriptedKVCache& kv_cache,
                     SynchronousWorkerReport& report) override;
  void save_kv_layer(const SynchronousConnectorMetadata& metadata, std::uint32_t layer,
                     const ScriptedKVCache& kv_cache, SynchronousWorkerReport& report) override;

 private:
  SharedStorage& storage_;
};

}  // namespace kvfence::reference
