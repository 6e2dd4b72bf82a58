#pragma once

/// The list of targets. What is done for each of them goes through here.

#include <type_traits>

#include "contract/block_pool_target.h"
#include "contract/connector_target.h"
#include "contract/disaggregated_target.h"
#include "contract/engine_target.h"
#include "contract/eviction_target.h"
#include "contract/kv_cache_target.h"
#include "contract/multi_connector_target.h"
#include "contract/offload_target.h"
#include "contract/scheduler_target.h"
#include "contract/simple_offload_target.h"
#include "contract/synchronous_connector_target.h"
#include "contract/tiering_target.h"
#include "contract/worker_target.h"

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
