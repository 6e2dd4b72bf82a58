#pragma once

/// A step that was planned and has not come back.

#include <memory>
#include <string>
#include <vector>

#include "contract/connectors/kv_output_aggregator.h"
#include "contract/core/flat_lists.h"
#include "contract/core/state_digest.h"
#include "contract/engine/engine_target.h"
#include "contract/scheduler/scheduler.h"
#include "properties/engine/files/facet.h"

namespace kvfence {

/// What a rank's forward returns to its step.
struct Sampled {
  FlatLists<TokenId> tokens;  ///< by part
  bool is_there = false;
};

struct PlannedStep {
  SchedulerOutput output;

  // With workers. Keeps the names of finished requests, since their indices may be reused.
  std::vector<std::string> finished;
  AggregatedOutput report;

  std::vector<engine::files::Computed> computed;  ///< in the order of output.scheduled; with files

  // On devices.
  std::vector<engine::ScheduledRequest> scheduled;
  std::vector<engine::ScheduledNew> new_reqs;
  std::vector<engine::ScheduledCached> cached_reqs;
  std::vector<KVConnectorWorkerOutput> worker_outputs;  ///< by rank, of those that were polled
  bool is_polled = false;                               ///< by all ranks
  std::vector<std::shared_ptr<Sampled>> sampled;        ///< by rank; empty: a step without tokens

  /// For the next step, which reuses the storage.
  void clear() {
    finished.clear();
    computed.clear();
    worker_outputs.clear();
    is_polled = false;
    sampled.clear();
  }
  /// The report is valid only after the poll.
  void add_to(StateHash& hash) const {
    hash.add_all(output, finished, computed, worker_outputs, is_polled, sampled);
    if (is_polled) hash.add(report);
  }
};

}  // namespace kvfence
