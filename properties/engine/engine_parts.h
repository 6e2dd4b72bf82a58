#pragma once

/// The parts that an engine is made of. A planted variant replaces them by parts with a bug.

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

/// For the statistics of transfers (properties/engine/offloading/stat_loggers.h).
class StatLoggers;

/// Makes the parts of an engine. Only parts that the configuration names are made.
struct EngineParts : KVConnectorFactories {
  std::function<std::unique_ptr<Scheduler>(const SchedulerConfig& config,
                                           KVConnectorHandle connector)>
      make_scheduler;

  /// To test a library's connectors: the kinds that it has. An engine with none of them is refused,
  /// unless it has a MultiConnector.
  std::vector<std::string> judged_kinds;

  /// The storage of connectors of kind files: the ExampleConnector keeps its files there. It is
  /// made first, is empty, and outlives all other parts. A restarted engine has new halves over the
  /// same storage.
  std::function<std::unique_ptr<StorageWorld>(const SynchronousConnectorSpec& spec)> make_storage;

  /// The MultiConnector over the given connectors.
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
