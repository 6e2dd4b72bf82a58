#pragma once

/// The scheduler's halves of a disaggregated pair. The rules stand in
/// contract/connectors/disaggregated/disaggregated_connector.h; the workers' halves are in
/// disaggregated_worker.h.
///
/// A request is known by its id, since its index may name another one by the time a worker acts.

#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "contract/connectors/disaggregated/disaggregated_connector.h"
#include "contract/core/state_digest.h"

namespace kvfence::reference {

/// Source: vLLM v0.19.0 distributed/kv_transfer/kv_connector/v1/nixl_connector.py
/// NixlConnectorScheduler, for requests with do_remote_decode.
class DisaggregatedProducer final : public kvfence::DisaggregatedProducer {
 public:
  /// Requires: check_spec(spec) finds nothing wrong
  explicit DisaggregatedProducer(const DisaggregatedSpec& spec);

  std::unique_ptr<KVConnector> clone() const override;
  void set_xfer_handshake_metadata(const HandshakesByRank& handshakes) override;
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

  void tell_time(Seconds now) override { now_ = now; }
  void take_remote_prefills(std::vector<RemotePrefill>& out) override;
  std::optional<std::string> take_client_params() override {
    return std::exchange(client_params_, std::nullopt);
  }
  void add_to(StateHash& hash) const override {
    hash.add_all(now_, next_, remote_prefills_, client_params_);
  }

 private:
  bool is_sent(const ConnectorRequest& request) const;

  DisaggregatedSpec spec_;
  Seconds now_ = 0;
  ProducerMetadata next_;  ///< what the workers have not been told
  std::vector<RemotePrefill> remote_prefills_;
  std::optional<std::string> client_params_;  ///< of the request that finished last
};

/// Source: vLLM v0.19.0 distributed/kv_transfer/kv_connector/v1/nixl_connector.py
/// NixlConnectorScheduler, for requests with do_remote_prefill; leases: v0.23.0
/// v1/nixl/scheduler.py.
class DisaggregatedConsumer final : public kvfence::DisaggregatedConsumer {
 public:
  /// Requires: check_spec(spec) finds nothing wrong
  explicit DisaggregatedConsumer(const DisaggregatedSpec& spec);

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

  void tell_time(Seconds now) override { now_ = now; }
  void add_to(StateHash& hash) const override {
    hash.add_all(now_, received_, reqs_need_recv_, leases_, last_heartbeat_);
  }

 private:
  struct Lease {
    std::string request;
    std::string remote_request;
    void add_to(StateHash& hash) const { hash.add_all(request, remote_request); }
  };

  bool wants_prompt(const ConnectorRequest& request) const;
  bool heartbeat_is_due() const;
  void stop_heartbeat(std::string_view request);

  DisaggregatedSpec spec_;
  Seconds now_ = 0;
  std::set<std::string, std::less<>> received_;  ///< unfinished ones that had their transfer
  std::vector<ConsumerMetadata::Receive> reqs_need_recv_;
  std::vector<Lease> leases_;  ///< renewed, in the order in which they came
  std::optional<Seconds> last_heartbeat_;
};

}  // namespace kvfence::reference
