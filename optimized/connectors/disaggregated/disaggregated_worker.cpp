#include "optimized/connectors/disaggregated/disaggregated_worker.h"

#include <algorithm>

#include "contract/core/check.h"

namespace kvfence::optimized {
namespace {

using Bug = PlantedDisaggregatedBug;

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

template <class Instrumentation>
BasicDisaggregatedProducerWorker<Instrumentation>::BasicDisaggregatedProducerWorker(
    const DisaggregatedSpec& spec, std::uint32_t rank, Instrumentation instrumentation)
    : instrumentation_(instrumentation),
      rank_(rank),
      readers_(peer_ranks(rank, spec.producer_world_size, spec.consumer_world_size)),
      num_words_((readers_.count + kBitsPerWord - 1) / kBitsPerWord) {
  // Twice the longest deadline still fits.
  if (spec.deadline) renewed_for_ = *spec.deadline * 2 / 3;
}

template <class Instrumentation>
std::optional<std::uint32_t> BasicDisaggregatedProducerWorker<Instrumentation>::find(
    std::string_view id) const {
  instrumentation_.on_requests(1);
  return slot_of_id_.find(
      id, [this](std::uint32_t slot) { return std::string_view(expected_[slot].id); });
}

template <class Instrumentation>
std::uint32_t BasicDisaggregatedProducerWorker<Instrumentation>::find_or_add(
    const std::string& id) {
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
template <class Instrumentation>
void BasicDisaggregatedProducerWorker<Instrumentation>::forget(std::uint32_t slot) {
  if (deadlines_.contains(slot)) deadlines_.erase(slot, sooner());
  slot_of_id_.erase(expected_[slot].id, slot);
  free_slots_.push_back(slot);
}

template <class Instrumentation>
void BasicDisaggregatedProducerWorker<Instrumentation>::expire_at(std::uint32_t slot,
                                                                  Seconds expires) {
  if (planted(Bug::kDeadlineIgnored)) return;
  if (deadlines_.contains(slot)) deadlines_.erase(slot, sooner());
  expected_[slot].expires = expires;
  expected_[slot].number = num_deadlines_set_++;
  deadlines_.push(slot, sooner());
}

template <class Instrumentation>
void BasicDisaggregatedProducerWorker<Instrumentation>::renew(std::uint32_t slot, Seconds now) {
  if (!deadlines_.contains(slot)) return;
  const Seconds expires = now + renewed_for_;
  if (expires <= expected_[slot].expires && !planted(Bug::kHeartbeatShortensLease)) return;
  deadlines_.erase(slot, sooner());
  expected_[slot].expires = expires;
  deadlines_.push(slot, sooner());
}

template <class Instrumentation>
void BasicDisaggregatedProducerWorker<Instrumentation>::start_load_kv(
    const KVConnectorMetadata& metadata, Transport&) {
  const auto& told = static_cast<const ProducerMetadata&>(metadata);
  for (const std::string& id : told.reqs_in_batch) find_or_add(id);
  for (const std::string& id : told.reqs_not_processed) {
    if (const std::optional<std::uint32_t> slot = find(id)) forget(*slot);
  }
  for (const ProducerMetadata::Send& send : told.reqs_to_send) {
    if (!send.expires) continue;
    std::optional<std::uint32_t> slot = find(send.request);
    if (!slot && planted(Bug::kNoticeBeforeSendForgotten)) slot = find_or_add(send.request);
    if (slot) expire_at(*slot, *send.expires);
  }
}

/// That rank does not need the request any more. Whether none does.
template <class Instrumentation>
bool BasicDisaggregatedProducerWorker<Instrumentation>::is_last_word(std::uint32_t slot,
                                                                     std::uint32_t rank) {
  if (!readers_.contains(rank)) return false;
  const std::uint32_t reader = rank - readers_.first;
  std::uint64_t& word = has_said_[slot * num_words_ + reader / kBitsPerWord];
  const std::uint64_t bit = std::uint64_t{1} << (reader % kBitsPerWord);
  if ((word & bit) != 0 && !planted(Bug::kRepeatedNoticeCounts)) return false;
  word |= bit;
  return --expected_[slot].num_missing == 0 || planted(Bug::kOneReaderIsEnough);
}

template <class Instrumentation>
void BasicDisaggregatedProducerWorker<Instrumentation>::take_notice(const Notice& notice,
                                                                    Transport& transport,
                                                                    KVConnectorWorkerOutput& out) {
  for (const std::string& id : notice.requests) {
    const std::optional<std::uint32_t> slot = find(id);
    if (notice.is_heartbeat && !planted(Bug::kHeartbeatFrees)) {
      if (slot) renew(*slot, transport.now());
      continue;
    }
    if (!slot && planted(Bug::kLateNoticeReportedAgain)) out.finished_sending.push_back(id);
    if (!slot || !is_last_word(*slot, notice.rank)) continue;
    out.finished_sending.push_back(id);
    transport.close(rank_, id);
    if (!planted(Bug::kNoticeAndDeadlineBothFree)) forget(*slot);
  }
}

template <class Instrumentation>
bool BasicDisaggregatedProducerWorker<Instrumentation>::has_expired(std::uint32_t slot,
                                                                    Seconds now) const {
  const Seconds expires = expected_[slot].expires;
  return planted(Bug::kExpiresASecondLate) ? expires < now : expires <= now;
}

template <class Instrumentation>
void BasicDisaggregatedProducerWorker<Instrumentation>::get_finished(Transport& transport,
                                                                     KVConnectorWorkerOutput& out) {
  clear(out);
  transport.get_new_notices(rank_, notices_);
  for (const Notice& notice : notices_) take_notice(notice, transport, out);
  while (!deadlines_.empty() && has_expired(deadlines_.top(), transport.now())) {
    const std::uint32_t slot = deadlines_.top();
    forget(slot);
    const std::string& id = expected_[slot].id;
    out.finished_sending.push_back(id);
    if (!planted(Bug::kReadNotClosedAtExpiry)) transport.close(rank_, id);
  }
}

// ---- Consumer ----

template <class Instrumentation>
BasicDisaggregatedConsumerWorker<Instrumentation>::BasicDisaggregatedConsumerWorker(
    const DisaggregatedSpec& spec, std::uint32_t rank, Instrumentation instrumentation)
    : instrumentation_(instrumentation),
      rank_(rank),
      producers_(peer_ranks(rank, spec.consumer_world_size, spec.producer_world_size)) {
  read_.rank = rank;
  notice_.rank = rank;
}

template <class Instrumentation>
void BasicDisaggregatedConsumerWorker<Instrumentation>::start_load_kv(
    const KVConnectorMetadata& metadata, Transport& transport) {
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

template <class Instrumentation>
std::uint32_t BasicDisaggregatedConsumerWorker<Instrumentation>::add(
    const ConsumerMetadata::Receive& receive) {
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
  entry.has_failed = false;
  entry.is_reported = false;
  return slot;
}

template <class Instrumentation>
void BasicDisaggregatedConsumerWorker<Instrumentation>::start_reads(
    const ConsumerMetadata::Receive& receive, Transport& transport) {
  const std::uint32_t slot = add(receive);
  read_.request = receive.request;
  read_.remote_request = receive.remote_request;
  read_.local_blocks = receive.local_blocks;
  read_.remote_blocks = receive.remote_blocks;
  for (std::uint32_t index = 0; index < producers_.count; ++index) {
    instrumentation_.on_requests(1);
    read_.remote_rank = producers_.first + index;
    slot_of_read_.insert(transport.read(read_), slot);
  }
}

template <class Instrumentation>
void BasicDisaggregatedConsumerWorker<Instrumentation>::send_notices(
    const ConsumerMetadata::Receive& receive, Transport& transport) {
  notice_.is_heartbeat = false;
  notice_.requests.resize(1);
  notice_.requests.front() =
      planted(Bug::kNoticeNamesConsumer) ? receive.request : receive.remote_request;
  const std::uint32_t count = planted(Bug::kNoticeToOneRank) ? 1 : producers_.count;
  for (std::uint32_t index = 0; index < count; ++index) {
    instrumentation_.on_requests(1);
    notice_.remote_rank = producers_.first + index;
    transport.send_notice(notice_);
  }
}

template <class Instrumentation>
void BasicDisaggregatedConsumerWorker<Instrumentation>::send_heartbeats(
    const std::vector<std::string>& requests, Transport& transport) {
  notice_.is_heartbeat = true;
  notice_.requests = requests;
  for (std::uint32_t index = 0; index < producers_.count; ++index) {
    notice_.remote_rank = producers_.first + index;
    transport.send_notice(notice_);
  }
}

template <class Instrumentation>
void BasicDisaggregatedConsumerWorker<Instrumentation>::end_read(std::uint32_t slot, bool success,
                                                                 KVConnectorWorkerOutput& out) {
  instrumentation_.on_requests(1);
  Receiving& entry = receiving_[slot];
  --entry.num_reads;
  if (!success) {
    entry.has_failed = true;
    if (!planted(Bug::kInvalidBlocksLeftOut)) {
      out.invalid_block_ids.insert(out.invalid_block_ids.end(), entry.local_blocks.begin(),
                                   entry.local_blocks.end());
    }
  }
  if (entry.num_reads > 0) {
    const bool reports_early =
        planted(Bug::kReportedAtFirstFailedRead) || planted(Bug::kFailedRequestReportedTwice);
    if (success || entry.is_reported || !reports_early) return;
    entry.is_reported = true;
    out.finished_recving.push_back(entry.request);
    return;
  }
  free_slots_.push_back(slot);
  if (entry.is_reported && !planted(Bug::kFailedRequestReportedTwice)) return;
  if (entry.has_failed && planted(Bug::kFailedReadNotReported)) return;
  out.finished_recving.push_back(entry.request);
}

template <class Instrumentation>
void BasicDisaggregatedConsumerWorker<Instrumentation>::get_finished(Transport& transport,
                                                                     KVConnectorWorkerOutput& out) {
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

template class BasicDisaggregatedProducerWorker<NoInstrumentation>;
template class BasicDisaggregatedProducerWorker<CountingInstrumentation>;
template class BasicDisaggregatedProducerWorker<PlantedInstrumentation>;
template class BasicDisaggregatedConsumerWorker<NoInstrumentation>;
template class BasicDisaggregatedConsumerWorker<CountingInstrumentation>;
template class BasicDisaggregatedConsumerWorker<PlantedInstrumentation>;

}  // namespace kvfence::optimized
