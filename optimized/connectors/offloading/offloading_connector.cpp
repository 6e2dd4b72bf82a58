#include "optimized/connectors/offloading/offloading_connector.h"

#include "contract/core/check.h"

namespace kvfence::optimized {

std::unique_ptr<OffloadingConnectorScheduler> make_offloading_connector_scheduler(
    const OffloadingSpec& spec, std::vector<SecondaryTierHandle> tiers) {
  KVFENCE_CHECK(!check_spec(spec), "no connector can be built from the spec");
  if (spec.manager.rules.offload_fences_reuse) {
    return make_fencing_connector_scheduler(spec, std::move(tiers));
  }
  return make_holding_connector_scheduler(spec);
}

}  // namespace kvfence::optimized
