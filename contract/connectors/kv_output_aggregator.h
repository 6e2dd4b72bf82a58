#pragma once

/// Aggregates the reports of all ranks into one.
/// Source: vLLM v0.19.0 distributed/kv_transfer/kv_connector/utils.py KVOutputAggregator;
/// v1/.../offloading/common.py OffloadingWorkerMetadata.aggregate.

#include <span>
#include <string>
#include <vector>

#include "contract/connectors/kv_connector.h"
#include "contract/connectors/kv_connector_stats.h"
#include "contract/connectors/kv_connector_worker.h"
#include "contract/core/state_digest.h"

namespace kvfence {

/// Of all ranks: blocks ascending, jobs ascending by number.
using AggregatedOutput = WorkersReport<CompletedJob>;

/// KVOutputAggregator(num_workers).
///
/// aggregate(outputs, out)
///     outputs: one per rank, rank 0 first. A request is finished when num_workers ranks have
///     reported it, in this step and before; its place is that of the report that completes it.
///     Then it can be reported again. Invalid blocks: those of any rank. Completed jobs: summed
///     over this step. Statistics: aggregated, rank 0 first; those of children class by class, new
///     ones last.
class KVOutputAggregator {
 public:
  virtual ~KVOutputAggregator() = default;
  virtual void aggregate(std::span<const KVConnectorWorkerOutput> outputs,
                         AggregatedOutput& out) = 0;
  virtual void add_to(StateHash& hash) const = 0;
};

}  // namespace kvfence
