#include "optimized/connectors/disaggregated/disaggregated_connector.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "contract/connectors/disaggregated/disaggregated_connector.h"
#include "contract/core/check.h"
#include "contract/core/cloned.h"
#include "contract/core/state_digest.h"
#include "contract/scheduler/scheduler.h"
#include "optimized/base/request_list.h"
#include "optimized/base/slots.h"

namespace kvfence::optimized {
namespace {

/// The scheduler's half of the engine that computes prompts for another one. A step is O(requests
/// that got blocks or finished), and allocates only their metadata.
class DisaggregatedProducer final
    : public Cloning<DisaggregatedProducer, kvfence::DisaggregatedProducer> {
 public:
  /// Requires: check_spec(spec) finds nothing.
  explicit DisaggregatedProducer(const DisaggregatedSpec& spec)
      : engine_id_(spec.producer_engine_id),
        deadline_(spec.deadline),
        stopped_requests_are_sent_(spec.rules.stopped_requests_are_sent),
        empty_metadata_(std::make_shared<ProducerMetadata>()) {}

  void set_xfer_handshake_metadata(const HandshakesByRank& handshakes) override {
    std::uint32_t rank = 0;
    for (const auto& handshake : handshakes) {
      if (handshake) static_cast<const NixlHandshake&>(*handshake).transport.listen(rank);
      ++rank;
    }
  }

  MatchedTokens get_num_new_matched_tokens(const ConnectorRequest&, std::uint32_t) override {
    return {0, false};
  }

  void update_state_after_alloc(ConnectorHost&, const ConnectorRequest& request,
                                const BlocksByGroup&, std::uint32_t) override {
    if (!request.params.do_remote_decode) return;
    if (request.index >= named_in_.size()) named_in_.resize(std::size_t{request.index} + 1);
    if (std::exchange(named_in_[request.index], step_) == step_) return;
    metadata_.reqs_in_batch.emplace_back(request.id);
  }

  std::shared_ptr<const KVConnectorMetadata> build_connector_meta(ConnectorHost&,
                                                                  const SchedulerOutput&) override {
    ++step_;
    if (metadata_.reqs_in_batch.empty() && metadata_.reqs_not_processed.empty() &&
        metadata_.reqs_to_send.empty()) {
      return empty_metadata_;
    }
    return std::make_shared<ProducerMetadata>(std::exchange(metadata_, {}));
  }

  /// Cost: O(blocks) if they are held, O(1) if not.
  bool request_finished(ConnectorHost&, const ConnectorRequest& request,
                        const BlocksByGroup& blocks) override {
    has_params_ = false;
    if (!request.params.do_remote_decode) return false;
    // The index may be given to another request.
    if (request.index < named_in_.size()) named_in_[request.index] = 0;
    if (!is_sent(request, blocks)) {
      metadata_.reqs_not_processed.emplace_back(request.id);
      return false;
    }
    ProducerMetadata::Send& send = metadata_.reqs_to_send.emplace_back();
    send.request = request.id;
    if (deadline_) send.expires = now_ + *deadline_;
    RemotePrefill& prefill = remote_prefills_.emplace_back();
    prefill.request = request.id;
    prefill.params.do_remote_prefill = true;
    prefill.params.remote_engine_id = engine_id_;
    prefill.params.remote_request_id = request.id;
    prefill.params.remote_block_ids = blocks;
    has_params_ = true;
    return true;
  }

  void set_time(Seconds now) override { now_ = now; }

  void take_remote_prefills(std::vector<RemotePrefill>& out) override {
    std::move(remote_prefills_.begin(), remote_prefills_.end(), std::back_inserter(out));
    remote_prefills_.clear();
    has_params_ = false;
  }

  std::optional<std::string> take_client_params() override {
    if (!has_params_) return std::nullopt;
    has_params_ = false;
    return remote_prefills_.back().request;
  }

  void add_to(StateHash& hash) const override {
    hash.add_all(now_, step_, remote_prefills_, has_params_);
    hash.add_kept(named_in_);
    metadata_.add_to(hash);
  }

 private:
  /// Whether a consumer will read it.
  bool is_sent(const ConnectorRequest& request, const BlocksByGroup& blocks) const {
    if (!has_blocks(blocks)) return false;
    return request.status == RequestStatus::kFinishedLengthCapped ||
           (stopped_requests_are_sent_ && request.status == RequestStatus::kFinishedStopped);
  }

  std::string engine_id_;
  std::optional<Seconds> deadline_;
  bool stopped_requests_are_sent_;
  Seconds now_ = 0;

  // Of the step under way.
  std::uint64_t step_ = 1;
  std::vector<std::uint64_t> named_in_;  ///< by RequestIndex: the step that has it in its batch
  ProducerMetadata metadata_;
  std::shared_ptr<const ProducerMetadata> empty_metadata_;

  std::vector<RemotePrefill> remote_prefills_;  ///< not taken yet
  bool has_params_ = false;  ///< the last of them belongs to the request that finished last
};

/// The scheduler's half of the engine that reads prompts which another engine computed. As above;
/// heartbeats, when they are due, are O(requests with leases to renew).
class DisaggregatedConsumer final
    : public Cloning<DisaggregatedConsumer, kvfence::DisaggregatedConsumer> {
 public:
  /// Requires: check_spec(spec) finds nothing.
  explicit DisaggregatedConsumer(const DisaggregatedSpec& spec)
      : has_leases_(spec.rules.kv_lease_heartbeats && spec.deadline),
        heartbeat_interval_(spec.deadline.value_or(0) / 6),
        empty_metadata_(std::make_shared<ConsumerMetadata>()) {}

  void on_new_request(const ConnectorRequest& request) override {
    if (!has_leases_ || !wants_prompt(request)) return;
    const std::uint32_t lease = lease_of(request.params.remote_request_id);
    known(request.index).lease = lease;
    ++leases_[lease].num_requests;
    renewing_.push_back(request.index);
  }

  MatchedTokens get_num_new_matched_tokens(const ConnectorRequest& request,
                                           std::uint32_t num_local_tokens) override {
    // Asked only while nothing of the request is computed.
    if (!wants_prompt(request) || num_local_tokens >= request.num_prompt_tokens) return {0, false};
    if (request.num_prompt_tokens == 1) return {0, false};
    return {request.num_prompt_tokens - num_local_tokens, true};
  }

  /// Cost: O(blocks) if it wants its prompt, O(1) if not.
  void update_state_after_alloc(ConnectorHost& host, const ConnectorRequest& request,
                                const BlocksByGroup& blocks,
                                std::uint32_t num_external_tokens) override {
    if (!wants_prompt(request)) return;
    ConsumerMetadata::Receive& out = receive(request);
    if (num_external_tokens == 0) return;
    KVFENCE_CHECK(blocks.size() == request.params.remote_block_ids.size(),
                  "the remote request has another number of groups");
    for (std::size_t group = 0; group < blocks.size(); ++group) {
      read_group(host, blocks[group], request.params.remote_block_ids[group], out);
    }
  }

  std::shared_ptr<const KVConnectorMetadata> build_connector_meta(ConnectorHost&,
                                                                  const SchedulerOutput&) override {
    if (is_heartbeat_due()) {
      last_heartbeat_ = now_;
      ++num_heartbeats_;
      for (RequestIndex at = renewing_.front(); at != kNoRequest; at = renewing_.next(at)) {
        Lease& lease = leases_[known_[at].lease];
        if (std::exchange(lease.named_in, num_heartbeats_) == num_heartbeats_) continue;
        metadata_.heartbeats.push_back(lease.id);
      }
    }
    if (metadata_.reqs_to_recv.empty() && metadata_.heartbeats.empty()) return empty_metadata_;
    return std::make_shared<ConsumerMetadata>(std::exchange(metadata_, {}));
  }

  void update_connector_output(ConnectorHost&, const KVConnectorOutput& output) override {
    for (const RequestIndex request : output.finished_recving) {
      stop_renewing(request);
    }
  }

  bool request_finished(ConnectorHost&, const ConnectorRequest& request,
                        const BlocksByGroup&) override {
    if (wants_prompt(request)) receive(request);
    stop_renewing(request.index);
    // The index may be given to another request.
    if (request.index < known_.size()) known_[request.index].has_received = false;
    return false;
  }

  void set_time(Seconds now) override { now_ = now; }

  void add_to(StateHash& hash) const override {
    hash.add_all(now_, last_heartbeat_, renewing_, num_heartbeats_, leases_);
    hash.add_kept(known_);
    metadata_.add_to(hash);
  }

 private:
  /// The record of a request; as initialized if the request is not known.
  struct Known {
    bool has_received = false;
    std::uint32_t lease = 0;  ///< of one that is being renewed
  };

  /// A remote request, in a slot that another one reuses when no request needs this one.
  struct Lease {
    std::string id;                  ///< of the remote request
    std::uint32_t num_requests = 0;  ///< that asked for it and still need it
    std::uint64_t named_in = 0;      ///< the heartbeat that named it last
  };

  bool wants_prompt(const ConnectorRequest& request) const {
    const KVTransferParams& params = request.params;
    if (!params.do_remote_prefill || params.remote_request_id.empty()) return false;
    if (request.index < known_.size() && known_[request.index].has_received) return false;
    return has_blocks(params.remote_block_ids);
  }

  Known& known(RequestIndex request) {
    if (request >= known_.size()) known_.resize(std::size_t{request} + 1);
    return known_[request];
  }

  /// The request's entry in the metadata for the workers. Its prompt is no longer wanted.
  ConsumerMetadata::Receive& receive(const ConnectorRequest& request) {
    known(request.index).has_received = true;
    ConsumerMetadata::Receive& out = metadata_.reqs_to_recv.emplace_back();
    out.request = request.id;
    out.remote_request = request.params.remote_request_id;
    return out;
  }

  /// Maps each block to fill to its place at the producer.
  static void read_group(ConnectorHost& host, const std::vector<BlockId>& local,
                         const std::vector<BlockId>& remote, ConsumerMetadata::Receive& out) {
    for (std::size_t place = 0; place < local.size(); ++place) {
      // Null blocks stand before a window.
      if (local[place] == kNullBlockId || host.is_cached(local[place])) continue;
      KVFENCE_CHECK(place < remote.size() && remote[place] != kNullBlockId,
                    "the remote request has no block at this place");
      out.local_blocks.push_back(local[place]);
      out.remote_blocks.push_back(remote[place]);
    }
  }

  // ---- Leases ----

  /// Its slot, a new one if there was none.
  std::uint32_t lease_of(std::string_view remote_request) {
    if (const std::optional<std::uint32_t> found = leases_.find(remote_request)) return *found;
    const std::uint32_t lease = leases_.insert(remote_request);
    leases_[lease].named_in = 0;
    return lease;
  }

  /// Ends the renewal for this request; another request that needs the lease still renews it.
  void stop_renewing(RequestIndex request) {
    if (!renewing_.erase(request)) return;
    const std::uint32_t lease = known_[request].lease;
    if (--leases_[lease].num_requests == 0) leases_.erase(lease);
  }

  bool is_heartbeat_due() const {
    if (renewing_.empty()) return false;
    return !last_heartbeat_ || now_ - *last_heartbeat_ >= heartbeat_interval_;
  }

  bool has_leases_;
  Seconds heartbeat_interval_;
  Seconds now_ = 0;
  std::optional<Seconds> last_heartbeat_;

  std::vector<Known> known_;  ///< by RequestIndex

  NamedSlots<Lease> leases_;
  RequestList renewing_;  ///< requests whose lease is renewed, in the order in which they came
  std::uint64_t num_heartbeats_ = 0;

  // Of the step under way.
  ConsumerMetadata metadata_;
  std::shared_ptr<const ConsumerMetadata> empty_metadata_;
};

}  // namespace

std::unique_ptr<kvfence::DisaggregatedProducer> make_disaggregated_producer(
    const DisaggregatedSpec& spec) {
  KVFENCE_CHECK(!check_spec(spec), "no half can be built from the spec");
  return std::make_unique<DisaggregatedProducer>(spec);
}

std::unique_ptr<kvfence::DisaggregatedConsumer> make_disaggregated_consumer(
    const DisaggregatedSpec& spec) {
  KVFENCE_CHECK(!check_spec(spec), "no half can be built from the spec");
  return std::make_unique<DisaggregatedConsumer>(spec);
}

}  // namespace kvfence::optimized
