#include "properties/engine/nixl/facet.h"

#include <algorithm>
#include <cstddef>
#include <iterator>

#include "properties/engine/engines.h"

namespace kvfence::engine::nixl {
namespace {

ErrorCode known(bool is_known) { return is_known ? ErrorCode::kNone : ErrorCode::kUnknownJob; }

}  // namespace

std::vector<BlockId> blocks_of(const BlocksByGroup& table) {
  std::vector<BlockId> blocks;
  for (const std::vector<BlockId>& group : table) {
    std::ranges::copy_if(group, std::back_inserter(blocks),
                         [](BlockId block) { return block != kNullBlockId; });
  }
  return blocks;
}

void Facet::start(const Config& config, ConnectorPlace place, ReadCarrier* carrier) {
  place_ = place;
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

ErrorCode Facet::run(const AdvanceClock& command, Engine& producer, Engine& consumer) {
  if (!transport_.advance_clock(command.seconds)) return ErrorCode::kBadRange;
  place_.part_of<DisaggregatedProducer>(producer.connector()).set_time(transport_.now());
  place_.part_of<DisaggregatedConsumer>(consumer.connector()).set_time(transport_.now());
  return ErrorCode::kNone;
}

const KVTransferParams* Facet::finished_prefill(const std::string& request) const {
  const auto at = finished_prefills_.find(request);
  return at == finished_prefills_.end() ? nullptr : &at->second;
}

void Facet::take_finished_prefills(Engine& producer, Observed& observed) {
  remote_prefills_.clear();
  place_.part_of<DisaggregatedProducer>(producer.connector())
      .take_remote_prefills(remote_prefills_);
  std::vector<FinishedPrefill>& list = observed.finished_prefills.emplace();
  list.resize(remote_prefills_.size());
  for (std::size_t index = 0; index < list.size(); ++index) {
    const RemotePrefill& prefill = remote_prefills_[index];
    list[index].request = prefill.request;
    list[index].blocks = blocks_of(prefill.params.remote_block_ids);
    finished_prefills_[prefill.request] = prefill.params;
  }
}

void Facet::observe_plan(const KVConnectorMetadata& of_step, EngineRole role,
                         Observed& observed) const {
  if (role == EngineRole::kProducer) {
    const auto& metadata = place_.part_of<const ProducerMetadata>(of_step);
    observed.reqs_in_batch.emplace() = metadata.reqs_in_batch;
    observed.reqs_not_processed.emplace() = metadata.reqs_not_processed;
    observed.reqs_to_send.emplace() = metadata.reqs_to_send;
  } else {
    const auto& metadata = place_.part_of<const ConsumerMetadata>(of_step);
    observed.reqs_to_recv.emplace() = metadata.reqs_to_recv;
    observed.heartbeats.emplace() = metadata.heartbeats;
  }
}

void Facet::observe(bool has_state, Observed& observed) const {
  observed.now.emplace() = transport_.now();
  if (!has_state) return;
  observed.reads.emplace() = transport_.reads();
  observed.notices.emplace() = transport_.notices();
}

}  // namespace kvfence::engine::nixl
