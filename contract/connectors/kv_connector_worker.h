#pragma once

/// The worker's half of a KV connector: the calls that the engine and the model runner of one rank
/// make, in the order of the members.
/// Source: vLLM v0.19.0 and v0.23.0 distributed/kv_transfer/kv_connector/v1/base.py,
/// v1/engine/core.py EngineCore.__init__, shutdown; v1/worker/gpu_model_runner.py
/// initialize_kv_cache, v1/worker/kv_connector_model_runner_mixin.py.

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "contract/connectors/kv_connector.h"
#include "contract/connectors/kv_connector_stats.h"
#include "contract/connectors/transfer_engine.h"
#include "contract/core/check.h"
#include "contract/core/cloned.h"
#include "contract/core/state_digest.h"

namespace kvfence {

/// What ranks report with a step. Each list names a request, block or job once.
template <class Job>
struct WorkersReport {
  std::vector<std::string> finished_sending;
  std::vector<std::string> finished_recving;
  std::vector<BlockId> invalid_block_ids;
  std::vector<Job> completed_jobs;
  std::vector<TransferOperations> stats = {};  ///< OffloadingConnectorStats, of this step
  std::vector<TransferOperationsOfClass> stats_of_children = {};  ///< of a MultiConnector, instead
  /// Empties the report. The lists keep their storage, their elements do not.
  void clear() {
    finished_sending.clear();
    finished_recving.clear();
    invalid_block_ids.clear();
    completed_jobs.clear();
    stats.clear();
    stats_of_children.clear();
  }
  friend bool operator==(const WorkersReport&, const WorkersReport&) = default;
};

/// Of one rank. Its jobs say whether they succeeded, not how long they took.
using KVConnectorWorkerOutput = WorkersReport<TransferResult>;

/// A polymorphic value, as KVConnector; a copy has the original's KV caches until others are
/// registered.
class KVConnectorWorker {
 public:
  virtual ~KVConnectorWorker() = default;
  virtual std::unique_ptr<KVConnectorWorker> clone() const = 0;

  // ---- When the engine starts; the scheduler's half comes after all workers' ----

  /// Whether the blocks of all layers are to lie together, where they can: one group of attention.
  virtual bool prefer_cross_layer_blocks() const { return false; }

  /// One of these two, once: the KV caches of the rank are what its copy engine copies, from now
  /// on. The second where cross-layer blocks are preferred and possible. copies: outlives it.
  virtual void register_kv_caches(TransferEngine& copies) { copies_ = &copies; }
  virtual void register_cross_layers_kv_cache(TransferEngine& copies) {
    register_kv_caches(copies);
  }

  /// What others need to reach this rank; null: nothing.
  virtual std::shared_ptr<const KVConnectorHandshakeMetadata> get_handshake_metadata() {
    return nullptr;
  }

  // ---- In each step ----

  /// Before anything of the step touches the KV cache.
  virtual void handle_preemptions(const KVConnectorMetadata& /*metadata*/) {}

  /// The metadata of the calls up to clear_connector_metadata; they outlive them.
  virtual void bind_connector_metadata(const KVConnectorMetadata& metadata) {
    metadata_ = &metadata;
  }

  /// Before the forward pass.
  virtual void start_load_kv() = 0;

  /// Around each layer of the forward pass, ascending; not called in a step without tokens. Most
  /// connectors do their work for all layers at once.
  virtual void wait_for_layer_load(std::uint32_t /*layer*/) {}
  virtual void save_kv_layer(std::uint32_t /*layer*/) {}

  /// After the forward pass; not called in a step without tokens.
  virtual void wait_for_save() {}

  /// Called with the requests that the step named as finished. Replaces out, which also has what
  /// upstream asks for next: get_block_ids_with_load_errors, get_kv_connector_stats and
  /// build_connector_worker_meta.
  virtual void get_finished(std::span<const std::string> finished_requests,
                            KVConnectorWorkerOutput& out) = 0;

  /// Last.
  virtual void clear_connector_metadata() { metadata_ = nullptr; }

  // ---- When the engine ends ----

  /// As KVConnector's.
  virtual bool shutdown() { return true; }

  /// As KVConnector's.
  virtual void add_to(StateHash& hash) const { hash.add_unknown(); }

 protected:
  /// Requires: KV caches are registered.
  TransferEngine& copies() const {
    KVFENCE_CHECK(copies_, "KV caches are registered before the first step");
    return *copies_;
  }
  /// Requires: a step is under way.
  const KVConnectorMetadata& bound_metadata() const {
    KVFENCE_CHECK(metadata_, "metadata are bound around a step");
    return *metadata_;
  }

 private:
  TransferEngine* copies_ = nullptr;
  const KVConnectorMetadata* metadata_ = nullptr;
};

using KVConnectorWorkerHandle = Cloned<KVConnectorWorker>;

}  // namespace kvfence
