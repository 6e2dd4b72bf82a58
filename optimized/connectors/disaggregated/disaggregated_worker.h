#pragma once

/// The workers' halves of a disaggregated pair. The rules stand in
/// contract/connectors/disaggregated/disaggregated_connector.h. Neither allocates once it has seen
/// its largest load.

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "contract/connectors/disaggregated/disaggregated_connector.h"
#include "contract/core/state_digest.h"
#include "optimized/base/job_map.h"
#include "optimized/base/request_ids.h"
#include "optimized/scheduler/request_heap.h"

namespace kvfence::optimized {

/// The ranks of the other engine that a rank has to do with: a run of them.
struct PeerRanks {
  std::uint32_t first = 0;
  std::uint32_t count = 0;

  bool contains(std::uint32_t rank) const { return rank >= first && rank - first < count; }
};

/// Of a rank of an engine with world_size ranks. Requires: one size divides the other.
PeerRanks peer_ranks(std::uint32_t rank, std::uint32_t world_size, std::uint32_t other_world_size);

/// A step costs the requests that it names, the notices that came, and O(log n) for each deadline
/// that is set, renewed, dropped or passed, of the n that are waited for.
class DisaggregatedProducerWorker final : public DisaggregatedWorker {
 public:
  /// Requires: check_spec(spec) finds nothing, and rank is one of the producer.
  DisaggregatedProducerWorker(const DisaggregatedSpec& spec, std::uint32_t rank);

  std::unique_ptr<DisaggregatedWorker> clone() const override {
    return std::make_unique<DisaggregatedProducerWorker>(*this);
  }
  void start_load_kv(const KVConnectorMetadata& metadata, Transport& transport) override;
  void get_finished(Transport& transport, KVConnectorWorkerOutput& out) override;

  void add_to(StateHash& hash) const override {
    hash.add_all(renewed_for_, expected_, free_slots_, has_said_, deadlines_, num_deadlines_set_);
  }

 private:
  /// A request that is expected, in a slot that another one takes over later.
  struct Expected {
    std::string id;
    std::uint32_t num_missing = 0;  ///< readers that are not done with it
    Seconds expires = 0;            ///< if it is in the heap
    std::uint64_t number = 0;       ///< of its deadline, in the order in which they were set
    void add_to(StateHash& hash) const { hash.add_all(id, num_missing, expires, number); }
  };

  std::optional<std::uint32_t> find(std::string_view id) const;
  std::uint32_t find_or_add(const std::string& id);
  void forget(std::uint32_t slot);
  void expire_at(std::uint32_t slot, Seconds expires);
  void renew(std::uint32_t slot, Seconds now);
  bool is_last_word(std::uint32_t slot, std::uint32_t rank);
  void take_notice(const Notice& notice, Transport& transport, KVConnectorWorkerOutput& out);
  bool has_expired(std::uint32_t slot, Seconds now) const;

  /// The order of the heap.
  auto sooner() const {
    return [this](std::uint32_t left, std::uint32_t right) {
      const Expected& a = expected_[left];
      const Expected& b = expected_[right];
      if (a.expires != b.expires) return a.expires < b.expires;
      return a.number < b.number;
    };
  }

  std::uint32_t rank_;
  PeerRanks readers_;
  std::size_t num_words_;    ///< of has_said_, a request
  Seconds renewed_for_ = 0;  ///< by a heartbeat

  std::vector<Expected> expected_;
  std::vector<std::uint32_t> free_slots_;
  std::vector<std::uint64_t> has_said_;  ///< [slot][num_words_], a bit a reader
  RequestIds slot_of_id_;
  RequestHeap deadlines_;  ///< slots, the soonest on top
  std::uint64_t num_deadlines_set_ = 0;

  std::vector<Notice> notices_;  ///< of the call that runs
};

/// A step costs the reads that it starts and those that ended, with their blocks.
class DisaggregatedConsumerWorker final : public DisaggregatedWorker {
 public:
  /// Requires: check_spec(spec) finds nothing, and rank is one of the consumer.
  DisaggregatedConsumerWorker(const DisaggregatedSpec& spec, std::uint32_t rank);

  std::unique_ptr<DisaggregatedWorker> clone() const override {
    return std::make_unique<DisaggregatedConsumerWorker>(*this);
  }
  void start_load_kv(const KVConnectorMetadata& metadata, Transport& transport) override;
  void get_finished(Transport& transport, KVConnectorWorkerOutput& out) override;

  void add_to(StateHash& hash) const override {
    hash.add_all(receiving_, free_slots_, slot_of_read_);
  }

 private:
  /// A request that is read, in a slot that another one takes over later.
  struct Receiving {
    std::string request;
    std::vector<BlockId> local_blocks;
    std::uint32_t num_reads = 0;  ///< that have not ended
    void add_to(StateHash& hash) const { hash.add_all(request, local_blocks, num_reads); }
  };

  void start_reads(const ConsumerMetadata::Receive& receive, Transport& transport);
  void send_notices(const ConsumerMetadata::Receive& receive, Transport& transport);
  void send_heartbeats(const std::vector<std::string>& requests, Transport& transport);
  std::uint32_t add(const ConsumerMetadata::Receive& receive);
  void end_read(std::uint32_t slot, bool success, KVConnectorWorkerOutput& out);

  std::uint32_t rank_;
  PeerRanks producers_;

  std::vector<Receiving> receiving_;
  std::vector<std::uint32_t> free_slots_;
  JobMap slot_of_read_;

  // Storage of single calls, kept for the next one.
  ReadSpec read_;
  Notice notice_;
  std::vector<ReadResult> results_;
};

}  // namespace kvfence::optimized
