#include "reference/connectors/disaggregated/disaggregated_connector.h"

#include <algorithm>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "contract/connectors/disaggregated/disaggregated_connector.h"
#include "contract/core/check.h"
#include "contract/core/lists.h"
#include "contract/core/state_digest.h"
#include "contract/scheduler/scheduler.h"

namespace kvfence::reference {
namespace {

// A request is known by its id, since its index may name another one by the time a worker acts.

/// Source: vLLM v0.19.0 distributed/kv_transfer/kv_connector/v1/nixl_connector.py
/// NixlConnectorScheduler, for requests with do_remote_decode.
class DisaggregatedProducer final
    : public Cloning<DisaggregatedProducer, kvfence::DisaggregatedProducer> {
 public:
  /// Requires: check_spec(spec) finds nothing wrong
  explicit DisaggregatedProducer(const DisaggregatedSpec& spec) : spec_(spec) {
    KVFENCE_CHECK(!check_spec(spec), "a spec that check_spec refuses");
  }

  // Source: vLLM v0.19.0 nixl_connector.py NixlConnectorScheduler.set_xfer_handshake_metadata,
  // _nixl_handshake_listener
  void set_xfer_handshake_metadata(const HandshakesByRank& handshakes) override {
    for (std::uint32_t rank = 0; rank < handshakes.size(); ++rank) {
      if (!handshakes[rank]) continue;
      const auto* const nixl = dynamic_cast<const NixlHandshake*>(handshakes[rank].get());
      KVFENCE_CHECK(nixl != nullptr, "the handshake of another connector");
      nixl->transport.listen(rank);
    }
  }

  MatchedTokens get_num_new_matched_tokens(const ConnectorRequest& /*request*/,
                                           std::uint32_t /*num_local*/) override {
    return {.num_tokens = 0, .load_async = false};
  }

  // Source: vLLM v0.19.0 v1/nixl_connector.py NixlConnectorScheduler.update_state_after_alloc
  void update_state_after_alloc(ConnectorHost& /*host*/, const ConnectorRequest& request,
                                const BlocksByGroup& /*blocks*/,
                                std::uint32_t /*num_external_tokens*/) override {
    if (!request.params.do_remote_decode) return;
    std::vector<std::string>& batch = next_.reqs_in_batch;
    if (!contains(batch, request.id)) batch.emplace_back(request.id);
  }

  // Source: vLLM v0.19.0 v1/nixl_connector.py NixlConnectorScheduler.build_connector_meta
  std::shared_ptr<const KVConnectorMetadata> build_connector_meta(
      ConnectorHost& /*host*/, const SchedulerOutput& /*output*/) override {
    return std::make_shared<ProducerMetadata>(std::exchange(next_, {}));
  }

  // Source: vLLM v0.19.0 v1/nixl_connector.py NixlConnectorScheduler.request_finished
  bool request_finished(ConnectorHost& /*host*/, const ConnectorRequest& request,
                        const BlocksByGroup& blocks) override {
    client_params_.reset();
    if (!request.params.do_remote_decode) return false;
    const std::string id(request.id);
    if (!is_sent(request) || !has_blocks(blocks)) {
      next_.reqs_not_processed.push_back(id);
      return false;
    }
    ProducerMetadata::Send& send = next_.reqs_to_send.emplace_back();
    send.request = id;
    if (spec_.deadline) send.expires = now_ + *spec_.deadline;
    RemotePrefill& prefill = remote_prefills_.emplace_back();
    prefill.request = id;
    prefill.params.do_remote_prefill = true;
    prefill.params.remote_engine_id = spec_.producer_engine_id;
    prefill.params.remote_request_id = id;
    prefill.params.remote_block_ids = blocks;
    client_params_ = id;
    return true;
  }

  void set_time(Seconds now) override { now_ = now; }

  void take_remote_prefills(std::vector<RemotePrefill>& out) override {
    out.insert(out.end(), remote_prefills_.begin(), remote_prefills_.end());
    remote_prefills_.clear();
    client_params_.reset();
  }

  std::optional<std::string> take_client_params() override {
    return std::exchange(client_params_, std::nullopt);
  }
  void add_to(StateHash& hash) const override {
    hash.add_all(now_, next_, remote_prefills_, client_params_);
  }

 private:
  // Source: vLLM v0.19.0 v1/nixl_connector.py and v0.23.0 v1/nixl/scheduler.py request_finished
  bool is_sent(const ConnectorRequest& request) const {
    return request.status == RequestStatus::kFinishedLengthCapped ||
           (spec_.rules.stopped_requests_are_sent &&
            request.status == RequestStatus::kFinishedStopped);
  }

  DisaggregatedSpec spec_;
  Seconds now_ = 0;
  ProducerMetadata next_;  ///< for the workers, since the last metadata
  std::vector<RemotePrefill> remote_prefills_;
  std::optional<std::string> client_params_;  ///< of the request that finished last
};

/// Source: vLLM v0.19.0 distributed/kv_transfer/kv_connector/v1/nixl_connector.py
/// NixlConnectorScheduler, for requests with do_remote_prefill; leases: v0.23.0
/// v1/nixl/scheduler.py.
class DisaggregatedConsumer final
    : public Cloning<DisaggregatedConsumer, kvfence::DisaggregatedConsumer> {
 public:
  /// Requires: check_spec(spec) finds nothing wrong
  explicit DisaggregatedConsumer(const DisaggregatedSpec& spec) : spec_(spec) {
    KVFENCE_CHECK(!check_spec(spec), "a spec that check_spec refuses");
  }

  // Source: vLLM v0.23.0 v1/nixl/scheduler.py on_new_request
  void on_new_request(const ConnectorRequest& request) override {
    if (!spec_.rules.kv_lease_heartbeats || !spec_.deadline || !wants_prompt(request)) return;
    leases_.push_back({std::string(request.id), request.params.remote_request_id});
  }

  // Source: vLLM v0.19.0 v1/nixl_connector.py get_num_new_matched_tokens; one token: ours
  MatchedTokens get_num_new_matched_tokens(const ConnectorRequest& request,
                                           std::uint32_t num_local_tokens) override {
    const std::uint32_t num_prompt_tokens = request.num_prompt_tokens;
    if (!wants_prompt(request) || num_prompt_tokens == 1 || num_prompt_tokens <= num_local_tokens) {
      return {.num_tokens = 0, .load_async = false};
    }
    return {.num_tokens = num_prompt_tokens - num_local_tokens, .load_async = true};
  }

  // Source: vLLM v0.19.0 v1/nixl_connector.py update_state_after_alloc, and v1/core/
  // kv_cache_manager.py get_unhashed_block_ids_all_groups; which remote blocks belong to the local
  // ones: v1/nixl_connector.py _read_blocks, and ours
  void update_state_after_alloc(ConnectorHost& host, const ConnectorRequest& request,
                                const BlocksByGroup& blocks,
                                std::uint32_t num_external_tokens) override {
    if (!wants_prompt(request)) return;
    ConsumerMetadata::Receive& receive = reqs_need_recv_.emplace_back();
    receive.request = request.id;
    receive.remote_request = request.params.remote_request_id;
    received_.insert(receive.request);
    if (num_external_tokens == 0) return;
    for (std::size_t group = 0; group < blocks.size(); ++group) {
      const std::vector<BlockId>& remote = request.params.remote_block_ids[group];
      for (std::size_t place = 0; place < blocks[group].size(); ++place) {
        const BlockId local = blocks[group][place];
        if (local == kNullBlockId || host.is_cached(local)) continue;
        KVFENCE_CHECK(place < remote.size() && remote[place] != kNullBlockId,
                      "the remote request has a block at each place");
        receive.local_blocks.push_back(local);
        receive.remote_blocks.push_back(remote[place]);
      }
    }
  }

  // Source: vLLM v0.19.0 v1/nixl_connector.py and v0.23.0 v1/nixl/scheduler.py build_connector_meta
  std::shared_ptr<const KVConnectorMetadata> build_connector_meta(
      ConnectorHost& /*host*/, const SchedulerOutput& /*output*/) override {
    auto metadata = std::make_shared<ConsumerMetadata>();
    metadata->reqs_to_recv = std::exchange(reqs_need_recv_, {});
    // Leases are there only with a deadline.
    if (!leases_.empty() && (!last_heartbeat_ || now_ - *last_heartbeat_ >= *spec_.deadline / 6)) {
      last_heartbeat_ = now_;
      for (const Lease& lease : leases_) {
        std::vector<std::string>& all = metadata->heartbeats;
        if (!contains(all, lease.remote_request)) all.push_back(lease.remote_request);
      }
    }
    return metadata;
  }

  // Source: vLLM v0.23.0 v1/nixl/scheduler.py update_connector_output
  void update_connector_output(ConnectorHost& host, const KVConnectorOutput& output) override {
    for (const RequestIndex index : output.finished_recving) stop_heartbeat(host.request(index).id);
  }

  // Source: vLLM v0.19.0 v1/nixl_connector.py and v0.23.0 v1/nixl/scheduler.py request_finished
  bool request_finished(ConnectorHost& /*host*/, const ConnectorRequest& request,
                        const BlocksByGroup& /*blocks*/) override {
    stop_heartbeat(request.id);
    if (wants_prompt(request)) {
      ConsumerMetadata::Receive& receive = reqs_need_recv_.emplace_back();
      receive.request = request.id;
      receive.remote_request = request.params.remote_request_id;
    }
    received_.erase(std::string(request.id));
    return false;
  }

  void set_time(Seconds now) override { now_ = now; }
  void add_to(StateHash& hash) const override {
    hash.add_all(now_, received_, reqs_need_recv_, leases_, last_heartbeat_);
  }

 private:
  struct Lease {
    std::string request;
    std::string remote_request;
  };

  // Upstream notes that a transfer was triggered in the request's own params.
  // Source: vLLM v0.19.0 v1/nixl_connector.py NixlConnectorScheduler; incomplete params: ours
  bool wants_prompt(const ConnectorRequest& request) const {
    const KVTransferParams& params = request.params;
    return params.do_remote_prefill && !params.remote_request_id.empty() &&
           has_blocks(params.remote_block_ids) && received_.count(request.id) == 0;
  }

  // Source: vLLM v0.23.0 v1/nixl/scheduler.py _stop_heartbeat
  void stop_heartbeat(std::string_view request) {
    std::erase_if(leases_, [request](const Lease& lease) { return lease.request == request; });
  }

  DisaggregatedSpec spec_;
  Seconds now_ = 0;
  std::set<std::string, std::less<>> received_;  ///< unfinished ones that had their transfer
  std::vector<ConsumerMetadata::Receive> reqs_need_recv_;
  std::vector<Lease> leases_;  ///< renewed, in the order in which they came
  std::optional<Seconds> last_heartbeat_;
};

}  // namespace

std::unique_ptr<kvfence::DisaggregatedProducer> make_disaggregated_producer(
    const DisaggregatedSpec& spec) {
  return std::make_unique<DisaggregatedProducer>(spec);
}

std::unique_ptr<kvfence::DisaggregatedConsumer> make_disaggregated_consumer(
    const DisaggregatedSpec& spec) {
  return std::make_unique<DisaggregatedConsumer>(spec);
}

}  // namespace kvfence::reference
