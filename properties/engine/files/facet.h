#pragma once

/// A synchronous connector in an engine: the storage that the engine shares with others, its
/// workers' part of a step, its commands and its observations.

#include <cstdint>
#include <memory>
#include <vector>

#include "contract/connectors/synchronous/synchronous_connector.h"
#include "contract/core/state_digest.h"
#include "contract/core/status.h"
#include "contract/engine/engine_target.h"
#include "properties/engine/rank.h"

namespace kvfence::engine::files {

/// The model's computation for one request in a step.
struct Computed {
  std::uint32_t first_token = 0;
  std::vector<TokenId> tokens;
  BlocksByGroup table;
};

class Facet {
 public:
  /// False: there is no storage. Sets num_engine_starts to 0.
  bool start(const SynchronousConnectorSpec& spec, ConnectorPlace place,
             std::unique_ptr<StorageWorld> storage);
  SharedStorage& storage() { return *storage_; }
  void count_engine_start() { ++num_engine_starts_; }

  /// The workers record here what they do in a step.
  SynchronousWorkerReport& report() { return report_; }
  /// Computes one layer of a step.
  static void compute(const std::vector<Computed>& computed, std::uint32_t layer,
                      ScriptedKVCache& kv_cache);
  /// Whether the last step ended the engine.
  bool has_failed() const { return report_.failed.has_value(); }

  ErrorCode run(const WriteEntry& command);
  ErrorCode run(const RemoveEntry& command);
  ErrorCode run(const RemoveFile& command);
  ErrorCode run(const TruncateFile& command);
  ErrorCode run(const FailNextFile& command);

  void observe_plan(const KVConnectorMetadata& of_step, Observed& observed) const;
  void observe_report(Observed& observed) const;
  /// The producer's observation has the storage.
  void observe(Engine& engine, bool has_state, Observed& observed);
  void add_to(StateHash& hash) const { hash.add_all(storage_, num_engine_starts_); }

 private:
  bool keeps_files() const { return spec_.kind == SynchronousConnectorKind::kExample; }
  bool has_layer(std::uint32_t layer) const {
    return keeps_files() && layer < spec_.num_all_layers();
  }

  SynchronousConnectorSpec spec_;
  ConnectorPlace place_;
  std::unique_ptr<StorageWorld> storage_;  ///< outlives every engine
  std::uint32_t num_engine_starts_ = 0;
  SynchronousWorkerReport report_;  ///< of all ranks, in order
  std::vector<RequestIndex> filled_requests_;
};

}  // namespace kvfence::engine::files
