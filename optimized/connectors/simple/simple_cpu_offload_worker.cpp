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
#include "optimized/base/request_list.h"
#include "optimized/base/slots.h"
#include "optimized/connectors/simple/simple_cpu_offload.h"

namespace kvfence::optimized {
namespace {

/// The copies of one direction that are not reported. Reuses the storage of those that were.
class Direction {
 public:
  struct Event {
    JobId event = 0;
    std::vector<std::string> requests;  ///< of a load
  };

  bool empty() const { return order_.empty(); }

  /// The new last one, with the former contents of its place.
  Event& push() {
    const std::uint32_t slot = events_.take();
    order_.push_back(slot);
    return events_[slot];
  }

  /// The oldest. Requires, here and below: not empty.
  const Event& front() const { return events_[order_.front()]; }
  void pop() {
    events_.give_back(order_.front());
    order_.erase(order_.front());
  }

  /// Whether the oldest is over: an event ends no later than those after it.
  bool has_ended() const { return !empty() && mark_ && front().event <= *mark_; }
  void note_end(JobId event) { mark_ = std::max(mark_.value_or(0), event); }

  /// Oldest first.
  template <class Visit>
  void for_each(Visit visit) const {
    for (std::uint32_t slot = order_.front(); slot != kNoRequest; slot = order_.next(slot)) {
      visit(events_[slot]);
    }
  }

  void add_to(StateHash& hash) const {
    hash.add_all(order_.size(), mark_);
    for_each([&hash](const Event& event) { hash.add_entry(event); });
  }

 private:
  SlotPool<Event> events_;
  RequestList order_;          ///< slots
  std::optional<JobId> mark_;  ///< the greatest event that ended
};

class SimpleCPUOffloadWorker final : public Cloning<SimpleCPUOffloadWorker, KVConnectorWorker> {
 public:
  void handle_preemptions(const KVConnectorMetadata& metadata) override {
    if (!metadata_of<SimpleCPUOffloadMetadata>(metadata).need_flush) return;
    under_way_.clear();
    for (const bool is_store : {false, true}) {
      directions_[is_store ? kStores : kLoads].for_each([&](const Direction::Event& event) {
        under_way_.push_back(transfer_number(event.event, is_store));
      });
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
      Direction::Event& load = loads.push();
      load.event = *step.load_event;
      load.requests = step.load_requests;
    }
    if (step.store_event) {
      submit(*step.store_event, /*is_store=*/true, step.store_gpu_blocks, step.store_cpu_blocks);
      stores.push().event = *step.store_event;
    }

    take_ended();
    for (; loads.has_ended(); loads.pop()) {
      const std::vector<std::string>& requests = loads.front().requests;
      out.finished_recving.insert(out.finished_recving.end(), requests.begin(), requests.end());
    }
    for (; stores.has_ended(); stores.pop()) {
      out.completed_jobs.push_back({stores.front().event, true});
    }
  }

  void add_to(StateHash& hash) const override { hash.add(directions_); }

 private:
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
      directions_[is_store ? kStores : kLoads].note_end(event_of(result.job));
    }
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
