#include "optimized/connectors/disaggregated/disaggregated_worker.h"

#include <algorithm>

#include "contract/core/check.h"

namespace kvfence::optimized {
namespace {

constexpr std::uint32_t kBitsPerWord = 64;

void clear(KVConnectorWorkerOutput& out) {
  out.finished_sending.clear();
  out.finished_recving.clear();
  out.invalid_block_ids.clear();
  out.completed_jobs.clear();
}

}  // namespace

PeerRanks peer_ranks(std::uint32_t rank, std::uint32_t world_size, std::uint32_t other_world_size) {
  if (world_size >= other_world_size) return {rank / (world_size / other_world_size), 1};
  const std::uint32_t count = other_world_size / world_size;
  return {rank * count, count};
}

// ---- Producer ----

DisaggregatedProducerWorker::DisaggregatedProducerWorker(const DisaggregatedSpec& spec,
                                                         std::uint32_t rank)
    : rank_(rank),
      readers_(peer_ranks(rank, spec.producer_world_size, spec.consumer_world_size)),
      num_words_((readers_.count + kBitsPerWord - 1) / kBitsPerWord) {
  // Twice the longest deadline still fits.
  if (spec.deadline) renewed_for_ = *spec.deadline * 2 / 3;
}

std::optional<std::uint32_t> DisaggregatedProducerWorker::find(std::string_view id) const {
  return slot_of_id_.find(
      id, [this](std::uint32_t slot) { return std::string_view(expected_[slot].id); });
}

std::uint32_t DisaggregatedProducerWorker::find_or_add(const std::string& id) {
  if (const std::optional<std::uint32_t> found = find(id)) return *found;
  std::uint32_t slot = static_cast<std::uint32_t>(expected_.size());
  if (free_slots_.empty()) {
    expected_.emplace_back();
    has_said_.resize(has_said_.size() + num_words_);
  } else {
    slot = free_slots_.back();
    free_slots_.pop_back();
  }
  expected_[slot].id = id;
  expected_[slot].num_missing = readers_.count;
  std::fill_n(&has_said_[slot * num_words_], num_words_, 0);
  slot_of_id_.insert(id, slot);
  return slot;
}

/// Not expected any more. Its name stays readable until the next one is.
void DisaggregatedProducerWorker::forget(std::uint32_t slot) {
  if (deadlines_.contains(slot)) deadlines_.erase(slot, sooner());
  slot_of_id_.erase(expected_[slot].id, slot);
  free_slots_.push_back(slot);
}

void DisaggregatedProducerWorker::expire_at(std::uint32_t slot, Seconds expires) {
  if (deadlines_.contains(slot)) deadlines_.erase(slot, sooner());
  expected_[slot].expires = expires;
  expected_[slot].number = num_deadlines_set_++;
  deadlines_.push(slot, sooner());
}

void DisaggregatedProducerWorker::renew(std::uint32_t slot, Seconds now) {
  if (!deadlines_.contains(slot)) return;
  const Seconds expires = now + renewed_for_;
  if (expires <= expected_[slot].expires) return;
  deadlines_.erase(slot, sooner());
  expected_[slot].expires = expires;
  deadlines_.push(slot, sooner());
}

void DisaggregatedProducerWorker::start_load_kv(const KVConnectorMetadata& metadata, Transport&) {
  const auto& told = static_cast<const ProducerMetadata&>(metadata);
  for (const std::string& id : told.reqs_in_batch) find_or_add(id);
  for (const std::string& id : told.reqs_not_processed) {
    if (const std::optional<std::uint32_t> slot = find(id)) forget(*slot);
  }
  for (const ProducerMetadata::Send& send : told.reqs_to_send) {
    if (!send.expires) continue;
    const std::optional<std::uint32_t> slot = find(send.request);
    if (slot) expire_at(*slot, *send.expires);
  }
}

/// That rank does not need the request any more. Whether none does.
bool DisaggregatedProducerWorker::is_last_word(std::uint32_t slot, std::uint32_t rank) {
  if (!readers_.contains(rank)) return false;
  const std::uint32_t reader = rank - readers_.first;
  std::uint64_t& word = has_said_[slot * num_words_ + reader / kBitsPerWord];
  const std::uint64_t bit = std::uint64_t{1} << (reader % kBitsPerWord);
  if ((word & bit) != 0) return false;
  word |= bit;
  return --expected_[slot].num_missing == 0;
}

void DisaggregatedProducerWorker::take_notice(const Notice& notice, Transport& transport,
                                              KVConnectorWorkerOutput& out) {
  for (const std::string& id : notice.requests) {
    const std::optional<std::uint32_t> slot = find(id);
    if (notice.is_heartbeat) {
      if (slot) renew(*slot, transport.now());
      continue;
    }
    if (!slot || !is_last_word(*slot, notice.rank)) continue;
    out.finished_sending.push_back(id);
    transport.close(rank_, id);
    forget(*slot);
  }
}

bool DisaggregatedProducerWorker::has_expired(std::uint32_t slot, Seconds now) const {
  return expected_[slot].expires <= now;
}

void DisaggregatedProducerWorker::get_finished(Transport& transport, KVConnectorWorkerOutput& out) {
  clear(out);
  transport.get_new_notices(rank_, notices_);
  for (const Notice& notice : notices_) take_notice(notice, transport, out);
  while (!deadlines_.empty() && has_expired(deadlines_.top(), transport.now())) {
    const std::uint32_t slot = deadlines_.top();
    forget(slot);
    const std::string& id = expected_[slot].id;
    out.finished_sending.push_back(id);
    transport.close(rank_, id);
  }
}

// ---- Consumer ----

DisaggregatedConsumerWorker::DisaggregatedConsumerWorker(const DisaggregatedSpec& spec,
                                                         std::uint32_t rank)
    : rank_(rank),
      producers_(peer_ranks(rank, spec.consumer_world_size, spec.producer_world_size)) {
  read_.rank = rank;
  notice_.rank = rank;
}

void DisaggregatedConsumerWorker::start_load_kv(const KVConnectorMetadata& metadata,
                                                Transport& transport) {
  const auto& told = static_cast<const ConsumerMetadata&>(metadata);
  for (const ConsumerMetadata::Receive& receive : told.reqs_to_recv) {
    if (receive.local_blocks.empty()) {
      send_notices(receive, transport);
    } else {
      start_reads(receive, transport);
    }
  }
  if (!told.heartbeats.empty()) send_heartbeats(told.heartbeats, transport);
}

std::uint32_t DisaggregatedConsumerWorker::add(const ConsumerMetadata::Receive& receive) {
  std::uint32_t slot = static_cast<std::uint32_t>(receiving_.size());
  if (free_slots_.empty()) {
    receiving_.emplace_back();
  } else {
    slot = free_slots_.back();
    free_slots_.pop_back();
  }
  Receiving& entry = receiving_[slot];
  entry.request = receive.request;
  entry.local_blocks = receive.local_blocks;
  entry.num_reads = producers_.count;
  return slot;
}

void DisaggregatedConsumerWorker::start_reads(const ConsumerMetadata::Receive& receive,
                                              Transport& transport) {
  const std::uint32_t slot = add(receive);
  read_.request = receive.request;
  read_.remote_request = receive.remote_request;
  read_.local_blocks = receive.local_blocks;
  read_.remote_blocks = receive.remote_blocks;
  for (std::uint32_t index = 0; index < producers_.count; ++index) {
    read_.remote_rank = producers_.first + index;
    slot_of_read_.insert(transport.read(read_), slot);
  }
}

void DisaggregatedConsumerWorker::send_notices(const ConsumerMetadata::Receive& receive,
                                               Transport& transport) {
  notice_.is_heartbeat = false;
  notice_.requests.resize(1);
  notice_.requests.front() = receive.remote_request;
  for (std::uint32_t index = 0; index < producers_.count; ++index) {
    notice_.remote_rank = producers_.first + index;
    transport.send_notice(notice_);
  }
}

void DisaggregatedConsumerWorker::send_heartbeats(const std::vector<std::string>& requests,
                                                  Transport& transport) {
  notice_.is_heartbeat = true;
  notice_.requests = requests;
  for (std::uint32_t index = 0; index < producers_.count; ++index) {
    notice_.remote_rank = producers_.first + index;
    transport.send_notice(notice_);
  }
}

void DisaggregatedConsumerWorker::end_read(std::uint32_t slot, bool success,
                                           KVConnectorWorkerOutput& out) {
  Receiving& entry = receiving_[slot];
  --entry.num_reads;
  if (!success) {
    out.invalid_block_ids.insert(out.invalid_block_ids.end(), entry.local_blocks.begin(),
                                 entry.local_blocks.end());
  }
  if (entry.num_reads > 0) return;
  free_slots_.push_back(slot);
  out.finished_recving.push_back(entry.request);
}

void DisaggregatedConsumerWorker::get_finished(Transport& transport, KVConnectorWorkerOutput& out) {
  clear(out);
  transport.get_finished_reads(rank_, results_);
  for (const ReadResult& result : results_) {
    const std::uint32_t slot = slot_of_read_.find(result.read);
    KVFENCE_CHECK(slot != JobMap::kNone, "the end of a read that was not started");
    slot_of_read_.erase(result.read);
    end_read(slot, result.success, out);
  }
  // Several reads of one request may have failed.
  std::vector<BlockId>& invalid = out.invalid_block_ids;
  std::sort(invalid.begin(), invalid.end());
  invalid.erase(std::unique(invalid.begin(), invalid.end()), invalid.end());
}

}  // namespace kvfence::optimized
