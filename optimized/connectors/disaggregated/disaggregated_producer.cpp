/// DisaggregatedProducer: the scheduler's half of the engine that computes prompts for another one.
/// The rules are in contract/connectors/disaggregated/disaggregated_connector.h. A step is
/// O(requests that got blocks or finished), and allocates only their metadata.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "contract/connectors/disaggregated/disaggregated_connector.h"
#include "contract/core/check.h"
#include "contract/core/cloned.h"
#include "contract/core/state_digest.h"
#include "contract/scheduler/scheduler.h"
#include "optimized/connectors/disaggregated/disaggregated_connector.h"

namespace kvfence::optimized {
namespace {

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

}  // namespace

std::unique_ptr<kvfence::DisaggregatedProducer> make_disaggregated_producer(
    const DisaggregatedSpec& spec) {
  KVFENCE_CHECK(!check_spec(spec), "no half can be built from the spec");
  return std::make_unique<DisaggregatedProducer>(spec);
}

}  // namespace kvfence::optimized
