/// The workers' halves of a disaggregated pair. The rules are in
/// contract/connectors/disaggregated/disaggregated_connector.h. Neither half allocates once it has
/// seen its largest load.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "contract/connectors/disaggregated/disaggregated_connector.h"
#include "contract/core/check.h"
#include "contract/core/cloned.h"
#include "contract/core/lists.h"
#include "contract/core/state_digest.h"
#include "optimized/base/open_table.h"
#include "optimized/base/slots.h"
#include "optimized/connectors/disaggregated/disaggregated_connector.h"
#include "optimized/scheduler/request_heap.h"

namespace kvfence::optimized {
namespace {

constexpr std::uint32_t kBitsPerWord = 64;

/// The consecutive ranks of the other engine with which a rank communicates.
struct PeerRanks {
  std::uint32_t first = 0;
  std::uint32_t count = 0;

  bool contains(std::uint32_t rank) const { return rank >= first && rank - first < count; }
};

/// Of a rank of an engine with world_size ranks. Requires: one size divides the other.
PeerRanks peer_ranks(std::uint32_t rank, std::uint32_t world_size, std::uint32_t other_world_size) {
  if (world_size >= other_world_size) return {rank / (world_size / other_world_size), 1};
  const std::uint32_t count = other_world_size / world_size;
  return {rank * count, count};
}

// ---- Producer ----

/// A step is O(requests that it names + notices that came), and O(log n) per deadline that is set,
/// renewed, dropped or passed, of the n pending ones.
class DisaggregatedProducerWorker final
    : public Cloning<DisaggregatedProducerWorker, DisaggregatedWorker> {
 public:
  /// Requires: check_spec(spec) finds nothing, and rank is one of the producer.
  DisaggregatedProducerWorker(const DisaggregatedSpec& spec, std::uint32_t rank,
                              Transport& transport)
      : Cloning(transport),
        rank_(rank),
        readers_(peer_ranks(rank, spec.producer_world_size, spec.consumer_world_size)),
        num_words_((readers_.count + kBitsPerWord - 1) / kBitsPerWord) {
    // Twice the longest deadline still fits.
    if (spec.deadline) renewed_for_ = *spec.deadline * 2 / 3;
  }

  void start_load_kv() override {
    const auto& metadata = metadata_of<ProducerMetadata>(bound_metadata());
    for (const std::string& id : metadata.reqs_in_batch) find_or_add(id);
    for (const std::string& id : metadata.reqs_not_processed) {
      if (const std::optional<std::uint32_t> slot = expected_.find(id)) forget(*slot);
    }
    for (const ProducerMetadata::Send& send : metadata.reqs_to_send) {
      if (!send.expires) continue;
      const std::optional<std::uint32_t> slot = expected_.find(send.request);
      if (slot) expire_at(*slot, *send.expires);
    }
  }

  void get_finished(std::span<const std::string>, KVConnectorWorkerOutput& out) override {
    out.clear();
    transport().get_new_notices(rank_, notices_);
    for (const Notice& notice : notices_) take_notice(notice, out);
    while (!deadlines_.empty() && has_expired(deadlines_.top(), transport().now())) {
      const std::uint32_t slot = deadlines_.top();
      forget(slot);
      const std::string& id = expected_[slot].id;
      out.finished_sending.push_back(id);
      transport().close(rank_, id);
    }
  }

  void add_to(StateHash& hash) const override {
    hash.add_all(renewed_for_, deadlines_, num_deadlines_set_, expected_);
    hash.add_kept(has_said_);
  }

 private:
  /// An expected request, in a slot that another one reuses later.
  struct Expected {
    std::string id;
    std::uint32_t num_missing = 0;  ///< readers that are not done with it
    Seconds expires = 0;            ///< if it is in the heap
    std::uint64_t number = 0;       ///< of its deadline, in the order of setting
  };

  /// The order of the heap.
  auto sooner() const {
    return [this](std::uint32_t left, std::uint32_t right) {
      const Expected& a = expected_[left];
      const Expected& b = expected_[right];
      if (a.expires != b.expires) return a.expires < b.expires;
      return a.number < b.number;
    };
  }

  std::uint32_t find_or_add(const std::string& id) {
    if (const std::optional<std::uint32_t> found = expected_.find(id)) return *found;
    const std::uint32_t slot = expected_.insert(id);
    expected_[slot].num_missing = readers_.count;
    has_said_.resize(expected_.size() * num_words_);
    std::fill_n(&has_said_[slot * num_words_], num_words_, 0);
    return slot;
  }

  /// Ends the expectation. The name stays readable until the next request is expected.
  void forget(std::uint32_t slot) {
    if (deadlines_.contains(slot)) deadlines_.erase(slot, sooner());
    expected_.erase(slot);
  }

  void expire_at(std::uint32_t slot, Seconds expires) {
    if (deadlines_.contains(slot)) deadlines_.erase(slot, sooner());
    expected_[slot].expires = expires;
    expected_[slot].number = num_deadlines_set_++;
    deadlines_.push(slot, sooner());
  }

  void renew(std::uint32_t slot, Seconds now) {
    if (!deadlines_.contains(slot)) return;
    const Seconds expires = now + renewed_for_;
    if (expires <= expected_[slot].expires) return;
    deadlines_.erase(slot, sooner());
    expected_[slot].expires = expires;
    deadlines_.push(slot, sooner());
  }

  /// The rank no longer needs the request. Returns whether no rank does.
  bool is_last_word(std::uint32_t slot, std::uint32_t rank) {
    if (!readers_.contains(rank)) return false;
    const std::uint32_t reader = rank - readers_.first;
    std::uint64_t& word = has_said_[slot * num_words_ + reader / kBitsPerWord];
    const std::uint64_t bit = std::uint64_t{1} << (reader % kBitsPerWord);
    if ((word & bit) != 0) return false;
    word |= bit;
    return --expected_[slot].num_missing == 0;
  }

  void take_notice(const Notice& notice, KVConnectorWorkerOutput& out) {
    for (const std::string& id : notice.requests) {
      const std::optional<std::uint32_t> slot = expected_.find(id);
      if (notice.is_heartbeat) {
        if (slot) renew(*slot, transport().now());
        continue;
      }
      if (!slot || !is_last_word(*slot, notice.rank)) continue;
      out.finished_sending.push_back(id);
      transport().close(rank_, id);
      forget(*slot);
    }
  }

  bool has_expired(std::uint32_t slot, Seconds now) const { return expected_[slot].expires <= now; }

  std::uint32_t rank_;
  PeerRanks readers_;
  std::size_t num_words_;    ///< of has_said_, a request
  Seconds renewed_for_ = 0;  ///< by a heartbeat

  NamedSlots<Expected> expected_;
  std::vector<std::uint64_t> has_said_;  ///< [slot][num_words_], a bit per reader
  RequestHeap deadlines_;                ///< slots, the soonest on top
  std::uint64_t num_deadlines_set_ = 0;

  std::vector<Notice> notices_;  ///< of the call that runs
};

// ---- Consumer ----

/// A step is O(blocks of the reads that it starts and of those that ended).
class DisaggregatedConsumerWorker final
    : public Cloning<DisaggregatedConsumerWorker, DisaggregatedWorker> {
 public:
  /// Requires: check_spec(spec) finds nothing, and rank is one of the consumer.
  DisaggregatedConsumerWorker(const DisaggregatedSpec& spec, std::uint32_t rank,
                              Transport& transport)
      : Cloning(transport),
        rank_(rank),
        producers_(peer_ranks(rank, spec.consumer_world_size, spec.producer_world_size)) {
    read_.rank = rank;
    notice_.rank = rank;
  }

  void start_load_kv() override {
    const auto& metadata = metadata_of<ConsumerMetadata>(bound_metadata());
    for (const ConsumerMetadata::Receive& receive : metadata.reqs_to_recv) {
      if (receive.local_blocks.empty()) {
        notice_.requests.resize(1);
        notice_.requests.front() = receive.remote_request;
        send_notices(/*is_heartbeat=*/false);
      } else {
        start_reads(receive);
      }
    }
    if (metadata.heartbeats.empty()) return;
    notice_.requests = metadata.heartbeats;
    send_notices(/*is_heartbeat=*/true);
  }

  void get_finished(std::span<const std::string>, KVConnectorWorkerOutput& out) override {
    out.clear();
    transport().get_finished_reads(rank_, results_);
    for (const ReadResult& result : results_) {
      const std::uint32_t slot = slot_of_read_.find(result.read);
      KVFENCE_CHECK(slot != slot_of_read_.kNone, "the end of a read that was not started");
      slot_of_read_.erase(result.read);
      end_read(slot, result.success, out);
    }
    // Several reads of one request may have failed.
    keep_each_once(out.invalid_block_ids);
  }

  void add_to(StateHash& hash) const override { hash.add_all(receiving_, slot_of_read_); }

 private:
  /// A request that is being read, in a slot that another one reuses later.
  struct Receiving {
    std::string request;
    std::vector<BlockId> local_blocks;
    std::uint32_t num_reads = 0;  ///< that have not ended
  };

  void start_reads(const ConsumerMetadata::Receive& receive) {
    const std::uint32_t slot = add(receive);
    read_.request = receive.request;
    read_.remote_request = receive.remote_request;
    read_.local_blocks = receive.local_blocks;
    read_.remote_blocks = receive.remote_blocks;
    for (std::uint32_t index = 0; index < producers_.count; ++index) {
      read_.remote_rank = producers_.first + index;
      slot_of_read_.insert(transport().read(read_), slot);
    }
  }

  /// Sends notice_ to each producer.
  void send_notices(bool is_heartbeat) {
    notice_.is_heartbeat = is_heartbeat;
    for (std::uint32_t index = 0; index < producers_.count; ++index) {
      notice_.remote_rank = producers_.first + index;
      transport().send_notice(notice_);
    }
  }

  std::uint32_t add(const ConsumerMetadata::Receive& receive) {
    const std::uint32_t slot = receiving_.take();
    Receiving& entry = receiving_[slot];
    entry.request = receive.request;
    entry.local_blocks = receive.local_blocks;
    entry.num_reads = producers_.count;
    return slot;
  }

  void end_read(std::uint32_t slot, bool success, KVConnectorWorkerOutput& out) {
    Receiving& entry = receiving_[slot];
    --entry.num_reads;
    if (!success) {
      out.invalid_block_ids.insert(out.invalid_block_ids.end(), entry.local_blocks.begin(),
                                   entry.local_blocks.end());
    }
    if (entry.num_reads > 0) return;
    receiving_.give_back(slot);
    out.finished_recving.push_back(entry.request);
  }

  std::uint32_t rank_;
  PeerRanks producers_;

  SlotPool<Receiving> receiving_;
  OpenTable<ReadId> slot_of_read_;

  // Storage of single calls, kept for the next one.
  ReadSpec read_;
  Notice notice_;
  std::vector<ReadResult> results_;
};

template <class Worker>
std::unique_ptr<KVConnectorWorker> make_worker(const DisaggregatedSpec& spec, std::uint32_t rank,
                                               std::uint32_t world_size, Transport& transport) {
  KVFENCE_CHECK(!check_spec(spec), "no half can be built from the spec");
  KVFENCE_CHECK(rank < world_size, "a rank beyond those of the engine");
  return std::make_unique<Worker>(spec, rank, transport);
}

}  // namespace

std::unique_ptr<KVConnectorWorker> make_disaggregated_producer_worker(const DisaggregatedSpec& spec,
                                                                      std::uint32_t rank,
                                                                      Transport& transport) {
  return make_worker<DisaggregatedProducerWorker>(spec, rank, spec.producer_world_size, transport);
}

std::unique_ptr<KVConnectorWorker> make_disaggregated_consumer_worker(const DisaggregatedSpec& spec,
                                                                      std::uint32_t rank,
                                                                      Transport& transport) {
  return make_worker<DisaggregatedConsumerWorker>(spec, rank, spec.consumer_world_size, transport);
}

}  // namespace kvfence::optimized
