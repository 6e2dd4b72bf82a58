#pragma once

/// What an engine is put together from: the place where a planted variant gets its bug.

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "contract/connectors/disaggregated/disaggregated_connector.h"
#include "contract/connectors/kv_connector.h"
#include "contract/connectors/kv_connector_registry.h"
#include "contract/connectors/kv_connector_worker.h"
#include "contract/connectors/kv_output_aggregator.h"
#include "contract/connectors/multi/multi_connector.h"
#include "contract/connectors/synchronous/shared_storage.h"
#include "contract/connectors/synchronous/synchronous_connector.h"
#include "contract/engine/engine_device.h"
#include "contract/engine/engine_target.h"
#include "contract/scheduler/scheduler.h"
#include "contract/tiering/tier_files.h"

namespace kvfence {

/// Of the statistics of transfers (properties/engine/offloading/stat_loggers.h).
class StatLoggers;

/// Makes the parts of an engine. What a configuration does not name is not asked for.
struct EngineParts : KVConnectorFactories {
  std::function<std::unique_ptr<Scheduler>(const SchedulerConfig& config,
                                           KVConnectorHandle connector)>
      make_scheduler;

  /// Where a library's connectors are to be judged: the kinds that it has. An engine with none of
  /// them is refused, unless it has a MultiConnector.
  std::vector<std::string> judged_kinds;

  /// Over which connectors of kind files are: in what the ExampleConnector keeps its files. Made
  /// first, and empty; outlives all others, whose halves see it as it is. An engine that starts anew
  /// has new halves over the same.
  std::function<std::unique_ptr<StorageWorld>(const SynchronousConnectorSpec& spec)> make_storage;

  /// The MultiConnector over connectors that were made.
  std::function<std::unique_ptr<KVConnector>(const Rules& rules,
                                             std::vector<KVConnectorHandle> children)>
      make_multi;
  std::function<std::unique_ptr<KVConnectorWorker>(std::vector<MultiConnectorChildWorker> children)>
      make_multi_worker;

  std::function<std::unique_ptr<KVOutputAggregator>(std::uint32_t num_ranks)> make_aggregator;
  std::function<std::unique_ptr<engine::EngineDevice>(const EngineSetup& setup, EngineRole role)>
      make_device;
  MakeTierFiles make_tier_files;
  std::function<std::unique_ptr<StatLoggers>(const OffloadPromMetricsConfig& config)>
      make_stat_loggers;
};

}  // namespace kvfence
