#include "optimized/connectors/offloading/offloading_connector.h"

#include "contract/core/check.h"
#include "optimized/connectors/offloading/fencing_connector_scheduler.h"
#include "optimized/connectors/offloading/holding_connector_scheduler.h"
#include "optimized/connectors/offloading/offloading_connector_worker.h"

namespace kvfence::optimized {

std::unique_ptr<OffloadingConnectorScheduler> make_offloading_connector_scheduler(
    const OffloadingSpec& spec, std::vector<SecondaryTierHandle> tiers) {
  KVFENCE_CHECK(!check_spec(spec), "no connector can be built from the spec");
  if (spec.manager.rules.offload_fences_reuse) {
    return std::make_unique<FencingConnectorScheduler>(spec, std::move(tiers));
  }
  return std::make_unique<HoldingConnectorScheduler>(spec);
}

std::unique_ptr<KVConnectorWorker> make_offloading_connector_worker(const OffloadingSpec& spec) {
  if (spec.manager.rules.offload_fences_reuse) return std::make_unique<FencingConnectorWorker>();
  return std::make_unique<HoldingConnectorWorker>();
}

}  // namespace kvfence::optimized
