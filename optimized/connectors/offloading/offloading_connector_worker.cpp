/// The worker's halves of an offloading connector. The rules are in
/// contract/connectors/offloading/offloading_connector.h. A step is O(its transfers + those that
/// ended + requests to flush + finished requests).

#include <algorithm>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "contract/connectors/kv_connector_worker.h"
#include "contract/connectors/offloading/offloading_connector.h"
#include "contract/core/cloned.h"
#include "contract/core/state_digest.h"
#include "optimized/base/slots.h"
#include "optimized/connectors/kv_connector_stats.h"
#include "optimized/connectors/offloading/offloading_connector.h"
#include "optimized/connectors/offloading/transfers_under_way.h"

namespace kvfence::optimized {
namespace {

constexpr auto& of_offloading = metadata_of<OffloadingConnectorMetadata>;

/// Clears all but the statistics: MeasuredTransfers replaces them and reuses their storage.
void clear(KVConnectorWorkerOutput& out) {
  std::vector<TransferOperations> stats = std::move(out.stats);
  out.clear();
  out.stats = std::move(stats);
}

/// The load is over, successfully or not.
void report_load(const TransferUnderWay& load, bool success, KVConnectorWorkerOutput& out) {
  out.finished_recving.push_back(load.request);
  if (success) return;
  std::ranges::copy_if(load.gpu_blocks, std::back_inserter(out.invalid_block_ids),
                       [](BlockId block) { return block != kNullBlockId; });
}

/// The statistics of a step.
class MeasuredTransfers {
 public:
  /// A transfer ended. One that failed, or has no known duration, does not count.
  void add(const TransferResult& result, bool is_store) {
    if (!result.success || result.seconds == 0) return;
    stats_.record_transfer(result.num_bytes, result.seconds,
                           is_store ? TransferType{"GPU", "CPU"} : TransferType{"CPU", "GPU"});
  }

  void report(KVConnectorWorkerOutput& out) { stats_.move_to(out.stats); }
  void add_to(StateHash& hash) const { hash.add(stats_.data()); }

 private:
  OffloadingConnectorStats stats_;
};

/// Without Rules::offload_fences_reuse: numbers its transfers itself.
class HoldingConnectorWorker final : public Cloning<HoldingConnectorWorker, KVConnectorWorker> {
 public:
  bool prefer_cross_layer_blocks() const override { return true; }

  void handle_preemptions(const KVConnectorMetadata& metadata) override {
    queue_.submit_all(copies());
    flush(of_offloading(metadata));
  }

  void start_load_kv() override {
    queue_.submit_all(copies());
    for (const TransferJob& load : of_offloading(bound_metadata()).loads) {
      numbered_ = load;
      numbered_.job = next_job_++;
      insert(transfers_, numbered_.job, load);
      forget_stores(load.request);
      copies().transfer_async(numbered_);
    }
  }

  void wait_for_save() override {
    for (const TransferJob& store : of_offloading(bound_metadata()).stores) {
      queue_.push(store);
      queue_.back().job = next_job_;
      const std::uint32_t owner = find_or_add_storing(store.request);
      const std::uint32_t slot = insert(transfers_, next_job_++, store);
      std::uint32_t& first = storing_[owner].first_store;
      transfers_[slot].owner = owner;
      transfers_[slot].previous = kNone;
      transfers_[slot].next = first;
      if (first != kNone) transfers_[first].previous = slot;
      first = slot;
    }
  }

  void get_finished(std::span<const std::string> finished_requests,
                    KVConnectorWorkerOutput& out) override {
    clear(out);
    copies().get_finished(results_);
    for (const TransferResult& result : results_) {
      const std::uint32_t slot = transfers_.find(result.job);
      if (slot == kNone) continue;
      measured_.add(result, transfers_[slot].is_store);
      if (transfers_[slot].is_store) {
        end_store(slot, out);
        continue;
      }
      transfers_.erase(result.job);
      report_load(transfers_[slot], result.success, out);
    }
    for (const std::string& id : finished_requests) {
      const std::optional<std::uint32_t> at = storing_.find(id);
      if (!at) continue;
      if (storing_[*at].first_store != kNone) {
        storing_[*at].is_finished = true;
        continue;
      }
      out.finished_sending.push_back(id);
      storing_.erase(*at);
    }
    measured_.report(out);
  }

  void add_to(StateHash& hash) const override {
    hash.add_all(measured_, next_job_, queue_, transfers_, storing_);
  }

 private:
  static constexpr std::uint32_t kNone = TransfersUnderWay::kNone;

  /// A request that stored something since it was last reported as sent.
  struct Storing {
    std::string id;
    std::uint32_t first_store = kNone;  ///< of those under way, the newest
    bool is_finished = false;           ///< it waits for the end of its stores
  };

  // ---- Hold ----

  std::uint32_t find_or_add_storing(const std::string& id) {
    if (const std::optional<std::uint32_t> found = storing_.find(id)) return *found;
    const std::uint32_t at = storing_.insert(id);
    storing_[at].first_store = kNone;
    storing_[at].is_finished = false;
    return at;
  }

  /// From now on only the request's load decides when its blocks are given back.
  void forget_stores(std::string_view id) {
    const std::optional<std::uint32_t> at = storing_.find(id);
    if (!at) return;
    disown(*at);
    storing_.erase(*at);
  }

  /// The request's stores end without a report.
  void disown(std::uint32_t at) {
    for (std::uint32_t slot = storing_[at].first_store; slot != kNone;
         slot = transfers_[slot].next) {
      transfers_[slot].owner = kNone;
    }
  }

  void flush(const OffloadingConnectorMetadata& metadata) {
    for (const std::string& id : metadata.requests_to_flush) {
      const std::optional<std::uint32_t> at = storing_.find(id);
      if (!at || storing_[*at].first_store == kNone) continue;
      to_flush_.clear();
      for (std::uint32_t slot = storing_[*at].first_store; slot != kNone;
           slot = transfers_[slot].next) {
        to_flush_.push_back(transfers_[slot].job);
      }
      std::reverse(to_flush_.begin(), to_flush_.end());
      copies().wait(to_flush_);
    }
  }

  void end_store(std::uint32_t slot, KVConnectorWorkerOutput& out) {
    const TransferUnderWay& store = transfers_[slot];
    transfers_.erase(store.job);
    if (store.owner == kNone) return;
    Storing& owner = storing_[store.owner];
    (store.previous == kNone ? owner.first_store : transfers_[store.previous].next) = store.next;
    if (store.next != kNone) transfers_[store.next].previous = store.previous;
    if (!owner.is_finished || owner.first_store != kNone) return;
    out.finished_sending.push_back(owner.id);
    storing_.erase(store.owner);
  }

  MeasuredTransfers measured_;
  JobId next_job_ = 0;
  TransferQueue queue_;
  TransfersUnderWay transfers_;
  NamedSlots<Storing> storing_;

  // Storage of single calls, kept for the next one.
  TransferJob numbered_;
  std::vector<JobId> to_flush_;
  std::vector<TransferResult> results_;
};

/// With Rules::offload_fences_reuse: transfers have the scheduler's numbers.
class FencingConnectorWorker final : public Cloning<FencingConnectorWorker, KVConnectorWorker> {
 public:
  bool prefer_cross_layer_blocks() const override { return true; }

  // ---- Fence ----

  void handle_preemptions(const KVConnectorMetadata& metadata) override {
    const std::vector<JobId>& jobs_to_flush = of_offloading(metadata).jobs_to_flush;
    queue_.submit_all(copies());
    if (!jobs_to_flush.empty()) copies().wait(jobs_to_flush);
  }

  void start_load_kv() override {
    queue_.submit_all(copies());
    for (const TransferJob& load : of_offloading(bound_metadata()).loads) {
      insert(transfers_, load.job, load);
      copies().transfer_async(load);
    }
  }

  void wait_for_save() override {}

  void get_finished(std::span<const std::string>, KVConnectorWorkerOutput& out) override {
    clear(out);
    queue_stores(of_offloading(bound_metadata()));
    copies().get_finished(results_);
    for (const TransferResult& result : results_) {
      const std::uint32_t slot = transfers_.find(result.job);
      if (slot == TransfersUnderWay::kNone) continue;
      out.completed_jobs.push_back({result.job, result.success});
      measured_.add(result, transfers_[slot].is_store);
      transfers_.erase(result.job);
      if (transfers_[slot].is_store) continue;
      report_load(transfers_[slot], result.success, out);
    }
    measured_.report(out);
  }

  void add_to(StateHash& hash) const override { hash.add_all(measured_, queue_, transfers_); }

 private:
  void queue_stores(const OffloadingConnectorMetadata& metadata) {
    for (const TransferJob& store : metadata.stores) {
      queue_.push(store);
      insert(transfers_, store.job, store);
    }
  }

  MeasuredTransfers measured_;
  TransferQueue queue_;
  TransfersUnderWay transfers_;
  std::vector<TransferResult> results_;  ///< of the call that runs
};

}  // namespace

std::unique_ptr<KVConnectorWorker> make_offloading_connector_worker(const OffloadingSpec& spec) {
  if (spec.manager.rules.offload_fences_reuse) return std::make_unique<FencingConnectorWorker>();
  return std::make_unique<HoldingConnectorWorker>();
}

}  // namespace kvfence::optimized
