/// The worker's half of a simple CPU offload connector. The rules are in
/// contract/connectors/simple/simple_cpu_offload.h. A step is O(its blocks + transfers that ended +
/// requests of loads that ended); with a flush, O(transfers under way) more.

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
#include "contract/core/check.h"
#include "contract/core/cloned.h"
#include "contract/core/state_digest.h"
#include "optimized/connectors/simple/simple_cpu_offload.h"

namespace kvfence::optimized {
namespace {

/// Events of one direction, oldest first. Reuses the storage of events that have left.
class EventQueue {
 public:
  struct Event {
    JobId event = 0;
    std::vector<std::string> requests;  ///< of a load
  };

  bool empty() const { return size_ == 0; }
  std::size_t size() const { return size_; }

  /// The k-th oldest. Requires: k < size()
  const Event& operator[](std::size_t k) const { return events_[(first_ + k) % events_.size()]; }

  /// The new last one, with the former contents of its place.
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
    for (std::size_t k = 0; k < size_; ++k) hash.add_entry((*this)[k]);
  }

 private:
  static constexpr std::size_t kSizeMin = 4;

  std::vector<Event> events_;  ///< a ring
  std::size_t first_ = 0;
  std::size_t size_ = 0;
};

class SimpleCPUOffloadWorker final : public Cloning<SimpleCPUOffloadWorker, KVConnectorWorker> {
 public:
  void handle_preemptions(const KVConnectorMetadata& metadata) override {
    if (!metadata_of<SimpleCPUOffloadMetadata>(metadata).need_flush) return;
    under_way_.clear();
    for (const bool is_store : {false, true}) {
      const EventQueue& events = directions_[is_store ? kStores : kLoads].events;
      for (std::size_t k = 0; k < events.size(); ++k) {
        under_way_.push_back(transfer_number(events[k].event, is_store));
      }
    }
    if (!under_way_.empty()) copies().wait(under_way_);
  }

  void start_load_kv() override {}

  void get_finished(std::span<const std::string>, KVConnectorWorkerOutput& out) override {
    out.clear();

    Direction& loads = directions_[kLoads];
    Direction& stores = directions_[kStores];
    const SimpleCPUOffloadMetadata& step = metadata_of<SimpleCPUOffloadMetadata>(bound_metadata());
    if (step.load_event) {
      submit(*step.load_event, /*is_store=*/false, step.load_gpu_blocks, step.load_cpu_blocks);
      EventQueue::Event& load = loads.events.push();
      load.event = *step.load_event;
      load.requests = step.load_requests;
    }
    if (step.store_event) {
      submit(*step.store_event, /*is_store=*/true, step.store_gpu_blocks, step.store_cpu_blocks);
      stores.events.push().event = *step.store_event;
    }

    take_ended();
    for (; has_ended(loads); loads.events.pop()) {
      const std::vector<std::string>& requests = loads.events[0].requests;
      out.finished_recving.insert(out.finished_recving.end(), requests.begin(), requests.end());
    }
    for (; has_ended(stores); stores.events.pop()) {
      out.completed_jobs.push_back({stores.events[0].event, true});
    }
  }

  void add_to(StateHash& hash) const override { hash.add(directions_); }

 private:
  struct Direction {
    EventQueue events;          ///< submitted, not reported
    std::optional<JobId> mark;  ///< the greatest event that ended
  };
  static constexpr std::size_t kLoads = 0;
  static constexpr std::size_t kStores = 1;

  /// The lists by group stay empty: block k goes to slot k.
  void submit(JobId event, bool is_store, const std::vector<BlockId>& gpu_blocks,
              const std::vector<BlockId>& cpu_blocks) {
    job_.job = transfer_number(event, is_store);
    job_.spec.is_store = is_store;
    job_.spec.gpu_blocks = gpu_blocks;
    job_.spec.slots = cpu_blocks;
    copies().transfer_async(job_);
  }

  void take_ended() {
    copies().get_finished(results_);
    for (const TransferResult& result : results_) {
      const bool is_store = is_store_transfer(result.job);
      std::optional<JobId>& mark = directions_[is_store ? kStores : kLoads].mark;
      mark = std::max(mark.value_or(0), event_of(result.job));
    }
  }

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

}  // namespace

std::unique_ptr<KVConnectorWorker> make_simple_cpu_offload_worker(
    const SimpleCPUOffloadSpec& spec) {
  KVFENCE_CHECK(!check_spec(spec), "no connector can be built from the spec");
  return std::make_unique<SimpleCPUOffloadWorker>();
}

}  // namespace kvfence::optimized
