/// The worker's halves of an offloading connector. The rules are in
/// contract/connectors/offloading/offloading_connector.h. A step is O(its transfers + those that
/// ended + requests to flush + finished requests).

#include <algorithm>
#include <cstddef>
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
#include "contract/connectors/transfer_engine.h"
#include "contract/core/cloned.h"
#include "contract/core/state_digest.h"
#include "optimized/base/slots.h"
#include "optimized/connectors/kv_connector_stats.h"
#include "optimized/connectors/offloading/offloading_connector.h"

namespace kvfence::optimized {
namespace {

constexpr auto& of_offloading = metadata_of<OffloadingConnectorMetadata>;

/// The record of a transfer under way.
struct TransferUnderWay {
  JobId job = 0;
  bool is_store = false;
  std::string request;
  std::vector<BlockId> gpu_blocks;  ///< of a load: invalid if it fails
  // Hold: links the stores of one request.
  std::uint32_t owner = 0;
  std::uint32_t previous = 0;
  std::uint32_t next = 0;
};

/// Clears all but the statistics: the report replaces them and reuses their storage.
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

/// What both forms share: transfers that wait to be submitted, a table of those under way, and the
/// statistics of a step.
class OffloadingConnectorWorker : public KVConnectorWorker {
 public:
  bool prefer_cross_layer_blocks() const override { return true; }

  void add_to(StateHash& hash) const override {
    hash.add_all(stats_.data(), std::span(queue_).first(num_queued_), transfers_);
  }

 protected:
  static constexpr std::uint32_t kNone = NumberedSlots<JobId, TransferUnderWay>::kNone;

  /// The slot of a new record. Requires: no transfer of that number is there.
  std::uint32_t insert(JobId job, const TransferJob& transfer) {
    const std::uint32_t slot = transfers_.insert(job);
    TransferUnderWay& entry = transfers_[slot];
    entry.job = job;
    entry.is_store = transfer.spec.is_store;
    entry.request = transfer.request;
    entry.gpu_blocks.clear();
    if (!entry.is_store) entry.gpu_blocks = transfer.spec.gpu_blocks;
    return slot;
  }

  /// Submits it later, with what comes in between. Valid until the next one.
  TransferJob& enqueue(const TransferJob& store) {
    if (num_queued_ == queue_.size()) queue_.emplace_back();
    return queue_[num_queued_++] = store;
  }

  void submit_queued() {
    for (const TransferJob& job : std::span(queue_).first(num_queued_))
      copies().transfer_async(job);
    num_queued_ = 0;
  }

  /// A transfer ended. One that failed, or has no known duration, does not count.
  void measure(const TransferResult& result, bool is_store) {
    if (!result.success || result.seconds == 0) return;
    stats_.record_transfer(result.num_bytes, result.seconds,
                           is_store ? TransferType{"GPU", "CPU"} : TransferType{"CPU", "GPU"});
  }

  void report_stats(KVConnectorWorkerOutput& out) { stats_.move_to(out.stats); }

  NumberedSlots<JobId, TransferUnderWay> transfers_;
  std::vector<TransferJob> queue_;  ///< in order; those from num_queued_ on are storage
  std::size_t num_queued_ = 0;
  OffloadingConnectorStats stats_;
  std::vector<TransferResult> results_;  ///< of the call that runs
};

/// Without Rules::offload_fences_reuse: numbers its transfers itself.
class HoldingConnectorWorker final
    : public Cloning<HoldingConnectorWorker, OffloadingConnectorWorker> {
 public:
  void handle_preemptions(const KVConnectorMetadata& metadata) override {
    submit_queued();
    flush(of_offloading(metadata));
  }

  void start_load_kv() override {
    submit_queued();
    for (const TransferJob& load : of_offloading(bound_metadata()).loads) {
      numbered_ = load;
      numbered_.job = next_job_++;
      insert(numbered_.job, load);
      forget_stores(load.request);
      copies().transfer_async(numbered_);
    }
  }

  void wait_for_save() override {
    for (const TransferJob& store : of_offloading(bound_metadata()).stores) {
      enqueue(store).job = next_job_;
      const std::uint32_t owner = find_or_add_storing(store.request);
      const std::uint32_t slot = insert(next_job_++, store);
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
      measure(result, transfers_[slot].is_store);
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
    report_stats(out);
  }

  void add_to(StateHash& hash) const override {
    OffloadingConnectorWorker::add_to(hash);
    hash.add_all(next_job_, storing_);
  }

 private:
  /// A request that stored something since it was last reported as sent.
  struct Storing {
    std::string id;
    std::uint32_t first_store = kNone;  ///< of those under way, the newest
    bool is_finished = false;           ///< it waits for the end of its stores
  };

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

  JobId next_job_ = 0;
  NamedSlots<Storing> storing_;

  // Storage of single calls, kept for the next one.
  TransferJob numbered_;
  std::vector<JobId> to_flush_;
};

/// With Rules::offload_fences_reuse: transfers have the scheduler's numbers.
class FencingConnectorWorker final
    : public Cloning<FencingConnectorWorker, OffloadingConnectorWorker> {
 public:
  void handle_preemptions(const KVConnectorMetadata& metadata) override {
    const std::vector<JobId>& jobs_to_flush = of_offloading(metadata).jobs_to_flush;
    submit_queued();
    if (!jobs_to_flush.empty()) copies().wait(jobs_to_flush);
  }

  void start_load_kv() override {
    submit_queued();
    for (const TransferJob& load : of_offloading(bound_metadata()).loads) {
      insert(load.job, load);
      copies().transfer_async(load);
    }
  }

  void wait_for_save() override {}

  void get_finished(std::span<const std::string>, KVConnectorWorkerOutput& out) override {
    clear(out);
    for (const TransferJob& store : of_offloading(bound_metadata()).stores) {
      enqueue(store);
      insert(store.job, store);
    }
    copies().get_finished(results_);
    for (const TransferResult& result : results_) {
      const std::uint32_t slot = transfers_.find(result.job);
      if (slot == kNone) continue;
      out.completed_jobs.push_back({result.job, result.success});
      measure(result, transfers_[slot].is_store);
      transfers_.erase(result.job);
      if (transfers_[slot].is_store) continue;
      report_load(transfers_[slot], result.success, out);
    }
    report_stats(out);
  }
};

}  // namespace

std::unique_ptr<KVConnectorWorker> make_offloading_connector_worker(const OffloadingSpec& spec) {
  if (spec.manager.rules.offload_fences_reuse) return std::make_unique<FencingConnectorWorker>();
  return std::make_unique<HoldingConnectorWorker>();
}

}  // namespace kvfence::optimized
