#pragma once

/// The worker's half of a simple CPU offload connector. The rules stand in
/// contract/connectors/simple/simple_cpu_offload.h. A step costs its blocks, the transfers that
/// ended, and the requests of the loads that did; with a flush, the transfers under way.

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "contract/connectors/kv_connector_worker.h"
#include "contract/connectors/simple/simple_cpu_offload.h"
#include "contract/core/state_digest.h"

namespace kvfence::optimized {

/// Events of one direction, the oldest first. What left has its storage used again.
class EventQueue {
 public:
  struct Event {
    JobId event = 0;
    std::vector<std::string> requests;  ///< of a load
    void add_to(StateHash& hash) const { hash.add_all(event, requests); }
  };

  bool empty() const { return size_ == 0; }
  std::size_t size() const { return size_; }

  /// The k-th oldest. Requires: k < size()
  const Event& operator[](std::size_t k) const { return events_[(first_ + k) % events_.size()]; }

  /// The new last one, with what its place had before.
  Event& push() {
    if (size_ == events_.size()) {
      std::rotate(events_.begin(), events_.begin() + static_cast<std::ptrdiff_t>(first_),
                  events_.end());
      first_ = 0;
      events_.resize(size_ == 0 ? kSizeMin : 2 * size_);
    }
    return events_[(first_ + size_++) % events_.size()];
  }

  /// Requires: not empty.
  void pop() {
    first_ = (first_ + 1) % events_.size();
    --size_;
  }

  void add_to(StateHash& hash) const {
    hash.add(size_);
    for (std::size_t k = 0; k < size_; ++k) hash.add((*this)[k]);
  }

 private:
  static constexpr std::size_t kSizeMin = 4;

  std::vector<Event> events_;  ///< a ring
  std::size_t first_ = 0;
  std::size_t size_ = 0;
};

class SimpleCPUOffloadWorker final : public KVConnectorWorker {
 public:
  std::unique_ptr<KVConnectorWorker> clone() const override {
    return std::make_unique<SimpleCPUOffloadWorker>(*this);
  }
  void handle_preemptions(const KVConnectorMetadata& metadata) override;
  void start_load_kv() override {}
  void wait_for_save() override {}
  void get_finished(std::span<const std::string> finished_requests,
                    KVConnectorWorkerOutput& out) override;
  void add_to(StateHash& hash) const override { hash.add(directions_); }

 private:
  struct Direction {
    EventQueue events;          ///< submitted, not reported
    std::optional<JobId> mark;  ///< the greatest event that ended
    void add_to(StateHash& hash) const { hash.add_all(events, mark); }
  };
  static constexpr std::size_t kLoads = 0;
  static constexpr std::size_t kStores = 1;

  void submit(JobId event, bool is_store, const std::vector<BlockId>& gpu_blocks,
              const std::vector<BlockId>& cpu_blocks);
  void take_ended();
  bool has_ended(const Direction& direction) const {
    return !direction.events.empty() && direction.mark &&
           direction.events[0].event <= *direction.mark;
  }

  std::array<Direction, 2> directions_;

  // Storage of single calls, kept for the next one.
  TransferJob job_;
  std::vector<JobId> under_way_;
  std::vector<TransferResult> results_;
};

/// Requires: check_spec(spec) finds nothing.
std::unique_ptr<KVConnectorWorker> make_simple_cpu_offload_worker(const SimpleCPUOffloadSpec& spec);

}  // namespace kvfence::optimized
