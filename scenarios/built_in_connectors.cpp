#include "scenarios/built_in_connectors.h"

#include "contract/check.h"
#include "contract/connector_target.h"
#include "optimized/offloading_connector.h"
#include "reference/offloading_connector.h"

namespace kvfence {
namespace {

KVConnectorRegistry registry_with(const KVConnectorClass& offloading) {
  KVConnectorRegistry registry;
  const auto error = registry.register_connector(
      "offloading", [offloading] { return Parsed<KVConnectorClass>(offloading); });
  KVFENCE_CHECK(!error, "the first name is free");
  return registry;
}

}  // namespace

KVConnectorRegistry built_in_connectors_reference() {
  KVConnectorClass offloading;
  offloading.make_scheduler = [](const ConnectorSetup& setup) {
    return reference::make_offloading_connector_scheduler(setup.spec, setup.tiers);
  };
  offloading.make_worker = [](const ConnectorSetup& setup, std::uint32_t) {
    return reference::make_offloading_connector_worker(setup.spec);
  };
  return registry_with(offloading);
}

KVConnectorRegistry built_in_connectors_optimized() {
  KVConnectorClass offloading;
  offloading.make_scheduler = [](const ConnectorSetup& setup) {
    return optimized::make_offloading_connector_scheduler(setup.spec, setup.tiers);
  };
  offloading.make_worker = [](const ConnectorSetup& setup, std::uint32_t) {
    return optimized::make_offloading_connector_worker(setup.spec);
  };
  return registry_with(offloading);
}

}  // namespace kvfence
