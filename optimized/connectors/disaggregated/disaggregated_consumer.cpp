#include "optimized/connectors/disaggregated/disaggregated_consumer.h"

#include <algorithm>
#include <cstddef>
#include <utility>

#include "contract/core/check.h"

namespace kvfence::optimized {

DisaggregatedConsumer::DisaggregatedConsumer(const DisaggregatedSpec& spec)
    : has_leases_(spec.rules.kv_lease_heartbeats && spec.deadline),
      heartbeat_interval_(spec.deadline.value_or(0) / 6),
      nothing_to_tell_(std::make_shared<ConsumerMetadata>()) {}

bool DisaggregatedConsumer::wants_prompt(const ConnectorRequest& request) const {
  const KVTransferParams& params = request.params;
  if (!params.do_remote_prefill || params.remote_request_id.empty()) return false;
  if (is_received(request.index)) return false;
  return std::any_of(params.remote_block_ids.begin(), params.remote_block_ids.end(),
                     [](const auto& ids) { return !ids.empty(); });
}

DisaggregatedConsumer::Known& DisaggregatedConsumer::known(RequestIndex request) {
  if (request >= known_.size()) known_.resize(std::size_t{request} + 1);
  return known_[request];
}

MatchedTokens DisaggregatedConsumer::get_num_new_matched_tokens(const ConnectorRequest& request,
                                                                std::uint32_t num_local_tokens) {
  // Asked only while nothing of the request is computed.
  if (!wants_prompt(request) || num_local_tokens >= request.num_prompt_tokens) return {0, false};
  if (request.num_prompt_tokens == 1) return {0, false};
  return {request.num_prompt_tokens - num_local_tokens, true};
}

/// What the workers are to be told of it. It does not want its prompt any more.
ConsumerMetadata::Receive& DisaggregatedConsumer::receive(const ConnectorRequest& request) {
  known(request.index).has_received = true;
  ConsumerMetadata::Receive& out = metadata_.reqs_to_recv.emplace_back();
  out.request = request.id;
  out.remote_request = request.params.remote_request_id;
  return out;
}

void DisaggregatedConsumer::update_state_after_alloc(ConnectorHost& host,
                                                     const ConnectorRequest& request,
                                                     const BlocksByGroup& blocks,
                                                     std::uint32_t num_external_tokens) {
  if (!wants_prompt(request)) return;
  ConsumerMetadata::Receive& out = receive(request);
  if (num_external_tokens == 0) return;
  const std::vector<BlockId>& local = blocks.front();
  const std::vector<BlockId>& remote = request.params.remote_block_ids.front();
  for (std::size_t place = 0; place < local.size(); ++place) {
    if (host.is_cached(local[place])) continue;
    KVFENCE_CHECK(place < remote.size(), "the remote request has no block at this place");
    out.local_blocks.push_back(local[place]);
    out.remote_blocks.push_back(remote[place]);
  }
}

bool DisaggregatedConsumer::is_heartbeat_due() const {
  if (renewing_.empty()) return false;
  return !last_heartbeat_ || now_ - *last_heartbeat_ >= heartbeat_interval_;
}

std::shared_ptr<const KVConnectorMetadata> DisaggregatedConsumer::build_connector_meta(
    ConnectorHost&, const SchedulerOutput&) {
  if (is_heartbeat_due()) {
    last_heartbeat_ = now_;
    ++num_heartbeats_;
    for (RequestIndex at = renewing_.front(); at != kNoRequest; at = renewing_.next(at)) {
      Lease& lease = leases_[known_[at].lease];
      if (std::exchange(lease.named_in, num_heartbeats_) == num_heartbeats_) continue;
      metadata_.heartbeats.push_back(lease.remote_request);
    }
  }
  if (metadata_.reqs_to_recv.empty() && metadata_.heartbeats.empty()) return nothing_to_tell_;
  return std::make_shared<ConsumerMetadata>(std::exchange(metadata_, {}));
}

void DisaggregatedConsumer::update_connector_output(ConnectorHost&,
                                                    const KVConnectorOutput& output) {
  for (const RequestIndex request : output.finished_recving) {
    stop_renewing(request);
  }
}

bool DisaggregatedConsumer::request_finished(ConnectorHost&, const ConnectorRequest& request,
                                             const BlocksByGroup&) {
  if (wants_prompt(request)) receive(request);
  stop_renewing(request.index);
  // The next request of this index is another one.
  if (request.index < known_.size()) known_[request.index].has_received = false;
  return false;
}

// ---- Leases ----

void DisaggregatedConsumer::on_new_request(const ConnectorRequest& request) {
  if (!has_leases_ || !wants_prompt(request)) return;
  const std::uint32_t lease = lease_of(request.params.remote_request_id);
  known(request.index).lease = lease;
  ++leases_[lease].num_requests;
  renewing_.push_back(request.index);
}

/// Its slot, a new one if there was none.
std::uint32_t DisaggregatedConsumer::lease_of(std::string_view remote_request) {
  const auto found = lease_of_id_.find(remote_request, [this](std::uint32_t lease) {
    return std::string_view(leases_[lease].remote_request);
  });
  if (found) return *found;
  std::uint32_t lease = static_cast<std::uint32_t>(leases_.size());
  if (free_leases_.empty()) {
    leases_.emplace_back();
  } else {
    lease = free_leases_.back();
    free_leases_.pop_back();
  }
  leases_[lease].remote_request = remote_request;
  leases_[lease].named_in = 0;
  lease_of_id_.insert(remote_request, lease);
  return lease;
}

/// For this request; the lease is renewed as long as another one needs it.
void DisaggregatedConsumer::stop_renewing(RequestIndex request) {
  if (!renewing_.contains(request)) return;
  renewing_.erase(request);
  const std::uint32_t lease = known_[request].lease;
  if (--leases_[lease].num_requests > 0) return;
  lease_of_id_.erase(leases_[lease].remote_request, lease);
  free_leases_.push_back(lease);
}

}  // namespace kvfence::optimized
