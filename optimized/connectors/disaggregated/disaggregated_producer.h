#pragma once

/// DisaggregatedProducer: the scheduler's half of the engine that computes prompts for another one.
/// The rules stand in contract/connectors/disaggregated/disaggregated_connector.h. A step costs the
/// requests that got blocks or finished, and allocates nothing but the metadata that tell of them.

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "contract/connectors/disaggregated/disaggregated_connector.h"
#include "contract/core/state_digest.h"

namespace kvfence::optimized {

class DisaggregatedProducer final : public kvfence::DisaggregatedProducer {
 public:
  /// Requires: check_spec(spec) finds nothing.
  explicit DisaggregatedProducer(const DisaggregatedSpec& spec);

  std::unique_ptr<KVConnector> clone() const override {
    return std::make_unique<DisaggregatedProducer>(*this);
  }
  void set_xfer_handshake_metadata(const HandshakesByRank& handshakes) override;
  void on_new_request(const ConnectorRequest&) override {}
  MatchedTokens get_num_new_matched_tokens(const ConnectorRequest&, std::uint32_t) override {
    return {0, false};
  }
  void update_state_after_alloc(ConnectorHost& host, const ConnectorRequest& request,
                                const BlocksByGroup& blocks,
                                std::uint32_t num_external_tokens) override;
  std::shared_ptr<const KVConnectorMetadata> build_connector_meta(
      ConnectorHost& host, const SchedulerOutput& output) override;
  void update_connector_output(ConnectorHost&, const KVConnectorOutput&) override {}

  /// Cost: O(blocks) if they are held, O(1) if not.
  bool request_finished(ConnectorHost& host, const ConnectorRequest& request,
                        const BlocksByGroup& blocks) override;
  void take_events(std::vector<KVCacheEvent>&) override {}
  bool reset_cache() override { return true; }

  void tell_time(Seconds now) override { now_ = now; }
  void take_remote_prefills(std::vector<RemotePrefill>& out) override;
  std::optional<std::string> take_client_params() override;

  void add_to(StateHash& hash) const override {
    hash.add_all(now_, step_, named_in_, remote_prefills_, has_params_);
    metadata_.add_to(hash);
  }

 private:
  bool is_sent(const ConnectorRequest& request, const BlocksByGroup& blocks) const;

  std::string engine_id_;
  std::optional<Seconds> deadline_;
  bool stopped_requests_are_sent_;
  Seconds now_ = 0;

  // Of the step under way.
  std::uint64_t step_ = 1;
  std::vector<std::uint64_t> named_in_;  ///< by RequestIndex: the step that has it in its batch
  ProducerMetadata metadata_;
  std::shared_ptr<const ProducerMetadata> nothing_to_tell_;

  std::vector<RemotePrefill> remote_prefills_;  ///< that nobody has taken
  bool has_params_ = false;  ///< the last of them is of the request that finished last
};

}  // namespace kvfence::optimized
