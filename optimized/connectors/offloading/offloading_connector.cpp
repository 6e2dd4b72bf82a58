#include "optimized/connectors/offloading/offloading_connector.h"

#include "contract/core/check.h"
#include "optimized/connectors/offloading/fencing_connector_scheduler.h"
#include "optimized/connectors/offloading/holding_connector_scheduler.h"
#include "optimized/connectors/offloading/offloading_connector_worker.h"

namespace kvfence::optimized {
namespace {

template <class Instrumentation>
std::unique_ptr<OffloadingConnectorScheduler> make_scheduler(const OffloadingSpec& spec,
                                                             std::vector<SecondaryTierHandle> tiers,
                                                             Instrumentation instrumentation) {
  KVFENCE_CHECK(!check_spec(spec), "no connector can be built from the spec");
  if (spec.manager.rules.offload_fences_reuse) {
    return std::make_unique<BasicFencingConnectorScheduler<Instrumentation>>(spec, std::move(tiers),
                                                                             instrumentation);
  }
  return std::make_unique<BasicHoldingConnectorScheduler<Instrumentation>>(spec, instrumentation);
}

template <class Instrumentation>
std::unique_ptr<KVConnectorWorker> make_worker(const OffloadingSpec& spec,
                                               Instrumentation instrumentation) {
  if (spec.manager.rules.offload_fences_reuse) {
    return std::make_unique<BasicFencingConnectorWorker<Instrumentation>>(instrumentation);
  }
  return std::make_unique<BasicHoldingConnectorWorker<Instrumentation>>(instrumentation);
}

}  // namespace

std::unique_ptr<OffloadingConnectorScheduler> make_offloading_connector_scheduler(
    const OffloadingSpec& spec, std::vector<SecondaryTierHandle> tiers) {
  return make_scheduler(spec, std::move(tiers), NoInstrumentation());
}

std::unique_ptr<KVConnectorWorker> make_offloading_connector_worker(const OffloadingSpec& spec) {
  return make_worker(spec, NoInstrumentation());
}

std::unique_ptr<OffloadingConnectorScheduler> make_planted_offloading_connector_scheduler(
    const OffloadingSpec& spec, PlantedInstrumentation instrumentation,
    std::vector<SecondaryTierHandle> tiers) {
  return make_scheduler(spec, std::move(tiers), instrumentation);
}

std::unique_ptr<KVConnectorWorker> make_planted_offloading_connector_worker(
    const OffloadingSpec& spec, PlantedInstrumentation instrumentation) {
  return make_worker(spec, instrumentation);
}

}  // namespace kvfence::optimized
