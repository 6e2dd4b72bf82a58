#include "properties/engine/nixl/facet.h"

#include <cstddef>

namespace kvfence::engine::nixl {
namespace {

ErrorCode known(bool is_known) { return is_known ? ErrorCode::kNone : ErrorCode::kUnknownJob; }

}  // namespace

void Facet::start(const Config& config, ReadCarrier* carrier) {
  carrier_ = carrier;
  transport_may_fail_ = config.connector<Record>()->transport_may_fail;
  restart();
}

void Facet::restart() {
  transport_ = ScriptedTransport(carrier_);
  finished_prefills_.clear();
}

ErrorCode Facet::run(const AdvanceRead& command) {
  if (command.progress == TransferProgress::kSubmitted) return ErrorCode::kBadRange;
  if (command.progress == TransferProgress::kFailed && !transport_may_fail_) {
    return ErrorCode::kNotInConfig;
  }
  return known(transport_.advance(command.read, command.progress));
}

ErrorCode Facet::run(const DeliverNotice& command) {
  return known(transport_.deliver(command.notice));
}

ErrorCode Facet::run(const LoseNotice& command) {
  if (!transport_may_fail_) return ErrorCode::kNotInConfig;
  return known(transport_.lose(command.notice));
}

ErrorCode Facet::run(const RepeatNotice& command) {
  if (!transport_may_fail_) return ErrorCode::kNotInConfig;
  return known(transport_.repeat(command.notice));
}

ErrorCode Facet::run(const AdvanceClock& command, DisaggregatedProducer& producer,
                     DisaggregatedConsumer& consumer) {
  if (!transport_.advance_clock(command.seconds)) return ErrorCode::kBadRange;
  producer.tell_time(transport_.now());
  consumer.tell_time(transport_.now());
  return ErrorCode::kNone;
}

const KVTransferParams* Facet::finished_prefill(const std::string& request) const {
  const auto at = finished_prefills_.find(request);
  return at == finished_prefills_.end() ? nullptr : &at->second;
}

void Facet::take_finished_prefills(DisaggregatedProducer& producer, Observed& observed) {
  remote_prefills_.clear();
  producer.take_remote_prefills(remote_prefills_);
  std::vector<FinishedPrefill>& list = observed.finished_prefills.emplace();
  list.resize(remote_prefills_.size());
  for (std::size_t index = 0; index < list.size(); ++index) {
    const RemotePrefill& told = remote_prefills_[index];
    list[index].request = told.request;
    list[index].blocks = told.params.remote_block_ids.front();
    finished_prefills_[told.request] = told.params;
  }
}

void Facet::observe_plan(const ProducerMetadata& metadata, Observed& observed) {
  observed.reqs_in_batch.emplace() = metadata.reqs_in_batch;
  observed.reqs_not_processed.emplace() = metadata.reqs_not_processed;
  std::vector<Send>& sends = observed.reqs_to_send.emplace();
  sends.resize(metadata.reqs_to_send.size());
  for (std::size_t index = 0; index < sends.size(); ++index) {
    sends[index].request = metadata.reqs_to_send[index].request;
    sends[index].expires = metadata.reqs_to_send[index].expires;
  }
}

void Facet::observe_plan(const ConsumerMetadata& metadata, Observed& observed) {
  std::vector<Receive>& receives = observed.reqs_to_recv.emplace();
  receives.resize(metadata.reqs_to_recv.size());
  for (std::size_t index = 0; index < receives.size(); ++index) {
    receives[index].request = metadata.reqs_to_recv[index].request;
    receives[index].remote_request = metadata.reqs_to_recv[index].remote_request;
    receives[index].local_blocks = metadata.reqs_to_recv[index].local_blocks;
    receives[index].remote_blocks = metadata.reqs_to_recv[index].remote_blocks;
  }
  observed.heartbeats.emplace() = metadata.heartbeats;
}

void Facet::observe_state(Observed& observed) const {
  std::vector<ReadState>& reads = observed.reads.emplace();
  reads.resize(transport_.reads().size());
  for (std::size_t index = 0; index < reads.size(); ++index) {
    const ScriptedTransport::Read& read = transport_.reads()[index];
    reads[index].read = read.read;
    reads[index].rank = read.spec.rank;
    reads[index].remote_rank = read.spec.remote_rank;
    reads[index].request = read.spec.request;
    reads[index].remote_request = read.spec.remote_request;
    reads[index].local_blocks = read.spec.local_blocks;
    reads[index].remote_blocks = read.spec.remote_blocks;
    reads[index].progress = read.progress;
  }
  std::vector<NoticeState>& notices = observed.notices.emplace();
  notices.resize(transport_.notices().size());
  for (std::size_t index = 0; index < notices.size(); ++index) {
    const ScriptedTransport::SentNotice& sent = transport_.notices()[index];
    notices[index].notice = sent.number;
    notices[index].rank = sent.notice.rank;
    notices[index].remote_rank = sent.notice.remote_rank;
    notices[index].heartbeat = sent.notice.is_heartbeat;
    notices[index].requests = sent.notice.requests;
    notices[index].delivered = sent.is_delivered;
  }
}

}  // namespace kvfence::engine::nixl
