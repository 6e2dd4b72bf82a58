#pragma once

/// Both halves of the DecodeBenchConnector. The rules stand in
/// contract/connectors/synchronous/synchronous_connector.h.
///
/// The scheduler's half costs a step the fills that it tells, and each call O(1) but for the blocks
/// of a fill. What is allocated is the metadata of steps that have fills.

#include <cstdint>
#include <memory>
#include <vector>

#include "contract/connectors/synchronous/synchronous_connector.h"
#include "contract/core/state_digest.h"
#include "contract/scheduler/scheduler.h"
#include "optimized/base/request_list.h"

namespace kvfence::optimized {

class DecodeBenchConnectorScheduler final : public SynchronousConnectorScheduler {
 public:
  /// Requires: check_spec(spec) finds nothing.
  explicit DecodeBenchConnectorScheduler(const SynchronousConnectorSpec& spec);

  std::unique_ptr<KVConnector> clone() const override {
    return std::make_unique<DecodeBenchConnectorScheduler>(*this);
  }
  void on_new_request(const ConnectorRequest&) override {}
  MatchedTokens get_num_new_matched_tokens(const ConnectorRequest& request,
                                           std::uint32_t num_local_tokens) override;
  void update_state_after_alloc(ConnectorHost& host, const ConnectorRequest& request,
                                const BlocksByGroup& blocks,
                                std::uint32_t num_external_tokens) override;
  std::shared_ptr<const KVConnectorMetadata> build_connector_meta(
      ConnectorHost& host, const SchedulerOutput& output) override;
  void update_connector_output(ConnectorHost&, const KVConnectorOutput&) override {}
  bool request_finished(ConnectorHost& host, const ConnectorRequest& request,
                        const BlocksByGroup& blocks) override;
  void take_events(std::vector<KVCacheEvent>&) override {}
  bool reset_cache() override { return true; }

  void filled_requests(std::vector<RequestIndex>& out) const override { filled_.copy_to(out); }
  void add_to(StateHash& hash) const override { hash.add_all(filled_, fills_); }

 private:
  using Fill = SynchronousConnectorMetadata::Fill;

  std::uint32_t block_size_;
  RequestList filled_;
  std::vector<Fill> fills_;  ///< that no metadata told of
  std::shared_ptr<const SynchronousConnectorMetadata> nothing_to_tell_;
};

/// The worker's half of one rank. A call costs the slots that it fills.
class DecodeBenchConnectorWorker final : public SynchronousConnectorWorker {
 public:
  void start_load_kv(const SynchronousConnectorMetadata& metadata, ScriptedKVCache& kv_cache,
                     SynchronousWorkerReport& report) override;
  void save_kv_layer(const SynchronousConnectorMetadata&, std::uint32_t, const ScriptedKVCache&,
                     SynchronousWorkerReport&) override {}

 private:
};

}  // namespace kvfence::optimized
