#pragma once

/// DisaggregatedConsumer: the scheduler's half of the engine that reads prompts that another one
/// computed. The rules stand in contract/connectors/disaggregated/disaggregated_connector.h. A step
/// costs the requests that got blocks or finished, and allocates nothing but the metadata that tell
/// of them; heartbeats, when they are due, cost the requests whose leases are renewed.

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "contract/connectors/disaggregated/disaggregated_connector.h"
#include "contract/core/state_digest.h"
#include "optimized/base/request_ids.h"
#include "optimized/base/request_list.h"

namespace kvfence::optimized {

class DisaggregatedConsumer final : public kvfence::DisaggregatedConsumer {
 public:
  /// Requires: check_spec(spec) finds nothing.
  explicit DisaggregatedConsumer(const DisaggregatedSpec& spec);

  std::unique_ptr<KVConnector> clone() const override {
    return std::make_unique<DisaggregatedConsumer>(*this);
  }
  void on_new_request(const ConnectorRequest& request) override;
  MatchedTokens get_num_new_matched_tokens(const ConnectorRequest& request,
                                           std::uint32_t num_local_tokens) override;

  /// Cost: O(blocks) if it wants its prompt, O(1) if not.
  void update_state_after_alloc(ConnectorHost& host, const ConnectorRequest& request,
                                const BlocksByGroup& blocks,
                                std::uint32_t num_external_tokens) override;
  std::shared_ptr<const KVConnectorMetadata> build_connector_meta(
      ConnectorHost& host, const SchedulerOutput& output) override;
  void update_connector_output(ConnectorHost& host, const KVConnectorOutput& output) override;
  bool request_finished(ConnectorHost& host, const ConnectorRequest& request,
                        const BlocksByGroup& blocks) override;
  void take_events(std::vector<KVCacheEvent>&) override {}
  bool reset_cache() override { return true; }

  void tell_time(Seconds now) override { now_ = now; }

  void add_to(StateHash& hash) const override {
    hash.add_all(now_, last_heartbeat_, known_, leases_, free_leases_, renewing_, num_heartbeats_);
    metadata_.add_to(hash);
  }

 private:
  /// What is kept of a request; of one that is not known, this.
  struct Known {
    bool has_received = false;
    std::uint32_t lease = 0;  ///< of one that is being renewed
    void add_to(StateHash& hash) const { hash.add_all(has_received, lease); }
  };

  /// A remote request, in a slot that another one takes over when nobody needs it.
  struct Lease {
    std::string remote_request;
    std::uint32_t num_requests = 0;  ///< that asked for it and still need it
    std::uint64_t named_in = 0;      ///< the heartbeat that named it last
    void add_to(StateHash& hash) const { hash.add_all(remote_request, num_requests, named_in); }
  };

  bool is_received(RequestIndex request) const {
    return request < known_.size() && known_[request].has_received;
  }
  bool wants_prompt(const ConnectorRequest& request) const;
  Known& known(RequestIndex request);
  ConsumerMetadata::Receive& receive(const ConnectorRequest& request);

  // Leases
  std::uint32_t lease_of(std::string_view remote_request);
  void stop_renewing(RequestIndex request);
  bool is_heartbeat_due() const;

  bool has_leases_;
  Seconds heartbeat_interval_;
  Seconds now_ = 0;
  std::optional<Seconds> last_heartbeat_;

  std::vector<Known> known_;  ///< by RequestIndex

  std::vector<Lease> leases_;
  std::vector<std::uint32_t> free_leases_;
  RequestIds lease_of_id_;
  RequestList renewing_;  ///< requests whose lease is renewed, in the order in which they came
  std::uint64_t num_heartbeats_ = 0;

  // Of the step under way.
  ConsumerMetadata metadata_;
  std::shared_ptr<const ConsumerMetadata> nothing_to_tell_;
};

}  // namespace kvfence::optimized
