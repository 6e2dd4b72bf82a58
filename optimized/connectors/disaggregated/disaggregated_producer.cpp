#include "optimized/connectors/disaggregated/disaggregated_producer.h"

#include <algorithm>
#include <cstddef>
#include <iterator>
#include <utility>

#include "contract/scheduler/scheduler.h"

namespace kvfence::optimized {

DisaggregatedProducer::DisaggregatedProducer(const DisaggregatedSpec& spec)
    : engine_id_(spec.producer_engine_id),
      deadline_(spec.deadline),
      stopped_requests_are_sent_(spec.rules.stopped_requests_are_sent),
      nothing_to_tell_(std::make_shared<ProducerMetadata>()) {}

void DisaggregatedProducer::set_xfer_handshake_metadata(const HandshakesByRank& handshakes) {
  std::uint32_t rank = 0;
  for (const auto& handshake : handshakes) {
    if (handshake) static_cast<const NixlHandshake&>(*handshake).transport.listen(rank);
    ++rank;
  }
}

void DisaggregatedProducer::update_state_after_alloc(ConnectorHost&,
                                                     const ConnectorRequest& request,
                                                     const BlocksByGroup&, std::uint32_t) {
  if (!request.params.do_remote_decode) return;
  if (request.index >= named_in_.size()) named_in_.resize(std::size_t{request.index} + 1);
  if (std::exchange(named_in_[request.index], step_) == step_) return;
  metadata_.reqs_in_batch.emplace_back(request.id);
}

std::shared_ptr<const KVConnectorMetadata> DisaggregatedProducer::build_connector_meta(
    ConnectorHost&, const SchedulerOutput&) {
  ++step_;
  if (metadata_.reqs_in_batch.empty() && metadata_.reqs_not_processed.empty() &&
      metadata_.reqs_to_send.empty()) {
    return nothing_to_tell_;
  }
  return std::make_shared<ProducerMetadata>(std::exchange(metadata_, {}));
}

/// Whether a consumer will read it.
bool DisaggregatedProducer::is_sent(const ConnectorRequest& request,
                                    const BlocksByGroup& blocks) const {
  const bool has_blocks =
      std::any_of(blocks.begin(), blocks.end(), [](const auto& ids) { return !ids.empty(); });
  if (!has_blocks) return false;
  return request.status == RequestStatus::kFinishedLengthCapped ||
         (stopped_requests_are_sent_ && request.status == RequestStatus::kFinishedStopped);
}

bool DisaggregatedProducer::request_finished(ConnectorHost&, const ConnectorRequest& request,
                                             const BlocksByGroup& blocks) {
  has_params_ = false;
  if (!request.params.do_remote_decode) return false;
  // The next request of this index is another one.
  if (request.index < named_in_.size()) named_in_[request.index] = 0;
  if (!is_sent(request, blocks)) {
    metadata_.reqs_not_processed.emplace_back(request.id);
    return false;
  }
  ProducerMetadata::Send& send = metadata_.reqs_to_send.emplace_back();
  send.request = request.id;
  if (deadline_) send.expires = now_ + *deadline_;
  RemotePrefill& told = remote_prefills_.emplace_back();
  told.request = request.id;
  told.params.do_remote_prefill = true;
  told.params.remote_engine_id = engine_id_;
  told.params.remote_request_id = request.id;
  told.params.remote_block_ids = blocks;
  has_params_ = true;
  return true;
}

void DisaggregatedProducer::take_remote_prefills(std::vector<RemotePrefill>& out) {
  std::move(remote_prefills_.begin(), remote_prefills_.end(), std::back_inserter(out));
  remote_prefills_.clear();
  has_params_ = false;
}

std::optional<std::string> DisaggregatedProducer::take_client_params() {
  if (!has_params_) return std::nullopt;
  has_params_ = false;
  return remote_prefills_.back().request;
}

}  // namespace kvfence::optimized
