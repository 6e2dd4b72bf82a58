#pragma once

/// The worker's half of a KV connector: what the model runner of one rank asks of it in each step,
/// in the order in which the members stand.
/// Source: vLLM v0.19.0 distributed/kv_transfer/kv_connector/v1/base.py,
/// v1/worker/kv_connector_model_runner_mixin.py.

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "contract/connectors/kv_connector.h"
#include "contract/connectors/kv_connector_stats.h"
#include "contract/connectors/transfer_engine.h"
#include "contract/core/state_digest.h"

namespace kvfence {

/// What one rank reports with a step. Each list names a request, block or job once.
struct KVConnectorWorkerOutput {
  std::vector<std::string> finished_sending;
  std::vector<std::string> finished_recving;
  std::vector<BlockId> invalid_block_ids;
  std::vector<TransferResult> completed_jobs;  ///< whether they succeeded; not how long they took
  std::vector<TransferOperations> stats = {};  ///< OffloadingConnectorStats, of this step
  std::vector<TransferOperationsOfClass> stats_of_children = {};  ///< of a MultiConnector, instead
  void add_to(StateHash& hash) const {
    hash.add_all(finished_sending, finished_recving, invalid_block_ids, completed_jobs, stats,
                 stats_of_children);
  }
  friend bool operator==(const KVConnectorWorkerOutput&, const KVConnectorWorkerOutput&) = default;
};

/// A value behind an interface, as KVConnector. The engine is that of its rank, the same in each
/// call.
class KVConnectorWorker {
 public:
  virtual ~KVConnectorWorker() = default;
  virtual std::unique_ptr<KVConnectorWorker> clone() const = 0;

  /// Before anything of the step touches the KV cache.
  virtual void handle_preemptions(const KVConnectorMetadata& metadata, TransferEngine& engine) = 0;

  /// Before the forward pass.
  virtual void start_load_kv(const KVConnectorMetadata& metadata, TransferEngine& engine) = 0;

  /// Around each layer of the forward pass, ascending; not called in a step without tokens. Most
  /// connectors do their work for all layers at once.
  virtual void wait_for_layer_load(const KVConnectorMetadata& /*metadata*/, std::uint32_t /*layer*/,
                                   TransferEngine& /*engine*/) {}
  virtual void save_kv_layer(const KVConnectorMetadata& /*metadata*/, std::uint32_t /*layer*/,
                             TransferEngine& /*engine*/) {}

  /// Behind the forward pass; not called in a step without tokens.
  virtual void wait_for_save(const KVConnectorMetadata& metadata, TransferEngine& engine) = 0;

  /// Last, with the requests that the step told as finished. Replaces out.
  virtual void get_finished(const KVConnectorMetadata& metadata,
                            std::span<const std::string> finished_requests, TransferEngine& engine,
                            KVConnectorWorkerOutput& out) = 0;

  /// As KVConnector's.
  virtual void add_to(StateHash&) const { no_digest(); }
};

/// Owns a worker's half, and copies it.
class KVConnectorWorkerHandle {
 public:
  explicit KVConnectorWorkerHandle(std::unique_ptr<KVConnectorWorker> worker)
      : worker_(std::move(worker)) {}
  KVConnectorWorkerHandle(const KVConnectorWorkerHandle& other) : worker_(other.worker_->clone()) {}
  KVConnectorWorkerHandle& operator=(const KVConnectorWorkerHandle& other) {
    if (this != &other) worker_ = other.worker_->clone();
    return *this;
  }
  KVConnectorWorkerHandle(KVConnectorWorkerHandle&&) noexcept = default;
  KVConnectorWorkerHandle& operator=(KVConnectorWorkerHandle&&) noexcept = default;
  ~KVConnectorWorkerHandle() = default;

  KVConnectorWorker* operator->() const { return worker_.get(); }
  void add_to(StateHash& hash) const { hash.add(worker_); }

 private:
  std::unique_ptr<KVConnectorWorker> worker_;
};

}  // namespace kvfence
