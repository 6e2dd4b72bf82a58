#include "scenarios/targets/built_in_connectors.h"

#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "contract/connectors/multi/multi_kv_connector.h"
#include "contract/connectors/simple/simple_cpu_offload.h"
#include "contract/core/check.h"
#include "contract/engine/engine_target.h"
#include "optimized/connectors/kv_connector_stats.h"
#include "optimized/connectors/multi/multi_connector.h"
#include "optimized/connectors/multi/multi_connector_worker.h"
#include "optimized/connectors/offloading/offloading_connector.h"
#include "optimized/connectors/simple/simple_cpu_offload_scheduler.h"
#include "optimized/connectors/simple/simple_cpu_offload_worker.h"
#include "reference/connectors/kv_connector_stats.h"
#include "reference/connectors/multi/multi_connector.h"
#include "reference/connectors/multi/multi_connector_worker.h"
#include "reference/connectors/offloading/offloading_connector.h"
#include "reference/connectors/simple/simple_cpu_offload.h"
#include "reference/connectors/simple/simple_cpu_offload_worker.h"

namespace kvfence {
namespace {

/// What one implementation makes of a setup.
struct Reference {
  static auto make_offloading_scheduler(const ConnectorSetup& setup) {
    return reference::make_offloading_connector_scheduler(setup.spec, make_secondary_tiers(setup));
  }
  static auto make_offloading_worker(const OffloadingSpec& spec) {
    return reference::make_offloading_connector_worker(spec);
  }
  static auto make_simple_scheduler(const SimpleCPUOffloadSpec& spec) {
    return reference::make_simple_cpu_offload_scheduler(spec);
  }
  static auto make_simple_worker(const SimpleCPUOffloadSpec& spec) {
    return reference::make_simple_cpu_offload_worker(spec);
  }
  using Stats = reference::OffloadingConnectorStats;
  using Multi = reference::MultiConnector<KVConnectorChild>;
  using MultiWorker = reference::MultiConnectorWorker<KVConnectorWorkerChild<Stats>>;
};

struct Optimized {
  static auto make_offloading_scheduler(const ConnectorSetup& setup) {
    return optimized::make_offloading_connector_scheduler(setup.spec, make_secondary_tiers(setup));
  }
  static auto make_offloading_worker(const OffloadingSpec& spec) {
    return optimized::make_offloading_connector_worker(spec);
  }
  static auto make_simple_scheduler(const SimpleCPUOffloadSpec& spec) {
    return optimized::make_simple_cpu_offload_scheduler(spec);
  }
  static auto make_simple_worker(const SimpleCPUOffloadSpec& spec) {
    return optimized::make_simple_cpu_offload_worker(spec);
  }
  using Stats = optimized::OffloadingConnectorStats;
  using Multi = optimized::MultiConnector<KVConnectorChild>;
  using MultiWorker = optimized::MultiConnectorWorker<KVConnectorWorkerChild<Stats>>;
};

SimpleCPUOffloadSpec simple_spec(const ConnectorSetup& setup, bool lazy_offload) {
  SimpleCPUOffloadSpec spec;
  spec.kv_cache = setup.spec.kv_cache;
  spec.num_cpu_blocks = setup.spec.manager.cache.capacity;
  spec.lazy_offload = lazy_offload;
  spec.num_workers = setup.spec.num_workers;
  return spec;
}

template <class Made>
KVConnectorClass offloading() {
  KVConnectorClass connector;
  connector.make_scheduler = [](const ConnectorSetup& setup) {
    return Made::make_offloading_scheduler(setup);
  };
  connector.make_worker = [](const ConnectorSetup& setup, std::uint32_t) {
    return Made::make_offloading_worker(setup.spec);
  };
  return connector;
}

template <class Made>
KVConnectorClass simple_cpu_offload(bool lazy_offload) {
  KVConnectorClass connector;
  connector.make_scheduler = [lazy_offload](const ConnectorSetup& setup) {
    return Made::make_simple_scheduler(simple_spec(setup, lazy_offload));
  };
  connector.make_worker = [lazy_offload](const ConnectorSetup& setup, std::uint32_t) {
    return Made::make_simple_worker(simple_spec(setup, lazy_offload));
  };
  return connector;
}

template <class Made>
KVConnectorClass multi_connector(const std::vector<KVConnectorChildClass>& children) {
  KVConnectorClass connector;
  connector.make_scheduler = [children](const ConnectorSetup& setup) {
    std::vector<KVConnectorChild> made;
    for (const auto& child : children) made.emplace_back(child.connector.make_scheduler(setup));
    return std::make_unique<MultiKVConnector<typename Made::Multi>>(
        setup.scheduler.kv_cache.pool.rules, std::move(made));
  };
  connector.make_worker = [children](const ConnectorSetup& setup, std::uint32_t rank) {
    std::vector<KVConnectorWorkerChild<typename Made::Stats>> made;
    for (const auto& child : children) {
      made.emplace_back(child.name, child.connector.make_worker(setup, rank));
    }
    return std::make_unique<
        MultiKVConnectorWorker<typename Made::MultiWorker, typename Made::Stats>>(std::move(made));
  };
  return connector;
}

template <class Made>
KVConnectorRegistry registry_of() {
  KVConnectorRegistry registry;
  const auto add = [&](const char* name, const KVConnectorClass& connector) {
    const auto error = registry.register_connector(
        name, [connector] { return Parsed<KVConnectorClass>(connector); });
    KVFENCE_CHECK(!error, "each built-in connector has a name of its own");
  };
  add("offloading", offloading<Made>());
  add("simple_cpu_offload", simple_cpu_offload<Made>(/*lazy_offload=*/false));
  add("simple_cpu_offload_lazy", simple_cpu_offload<Made>(/*lazy_offload=*/true));
  const auto error = registry.register_combiner("multi_connector", &multi_connector<Made>);
  KVFENCE_CHECK(!error, "each built-in connector has a name of its own");
  return registry;
}

}  // namespace

KVConnectorRegistry built_in_connectors_reference() { return registry_of<Reference>(); }

KVConnectorRegistry built_in_connectors_optimized() { return registry_of<Optimized>(); }

}  // namespace kvfence
