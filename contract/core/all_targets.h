#pragma once

/// The list of targets. What is done for each of them goes through here.

#include <type_traits>

#include "contract/pool/block_pool_target.h"
#include "contract/connectors/offloading/connector_target.h"
#include "contract/connectors/disaggregated/disaggregated_target.h"
#include "contract/engine/engine_target.h"
#include "contract/eviction/eviction_target.h"
#include "contract/kv_cache/kv_cache_target.h"
#include "contract/connectors/multi/multi_connector_target.h"
#include "contract/offload/offload_target.h"
#include "contract/scheduler/scheduler_target.h"
#include "contract/connectors/simple/simple_offload_target.h"
#include "contract/connectors/synchronous/synchronous_connector_target.h"
#include "contract/tiering/tiering_target.h"
#include "contract/worker/worker_target.h"

namespace kvfence {

template <class... Targets>
struct TargetList {
  /// Template<Targets...>, e.g. a gtest type list.
  template <template <class...> class Template>
  using Apply = Template<Targets...>;

  /// Calls visit(std::type_identity<Target>{}) for each, in order.
  template <class Visit>
  static void for_each(Visit&& visit) {
    (visit(std::type_identity<Targets>{}), ...);
  }
};

using AllTargets =
    TargetList<BlockPoolTarget, KVCacheTarget, SchedulerTarget, EvictionTarget, OffloadTarget,
               TieringTarget, ConnectorTarget, SimpleOffloadTarget, SynchronousConnectorTarget,
               MultiConnectorTarget, DisaggregatedTarget, WorkerTarget, EngineTarget>;

}  // namespace kvfence
