#pragma once

/// The connectors that kvfence has and that copy through TransferEngine, by name. Another one comes
/// from a shared library: scenarios/examples/my_connector/.

#include "contract/connectors/kv_connector_registry.h"

namespace kvfence {

/// All are built from one setup:
///   "offloading"                the OffloadingConnector
///   "simple_cpu_offload"        the SimpleCPUOffloadConnector, eager, with as many CPU blocks as
///                               the setup has slots, one of which is its null block
///   "simple_cpu_offload_lazy"   the same, lazy (upstream says it in its extra configuration)
///   "multi_connector(NAME ...)" the MultiConnector over connectors of these names
/// The target `engine` makes the first alone, for `(offloading ...)`, and shows of it what the
/// others do not have.
/// Requires of a setup: check_spec(SimpleCPUOffloadSpec) finds nothing; MultiConnector: one group,
/// unless Rules::multi_connector_hma.
KVConnectorRegistry built_in_connectors_reference();
KVConnectorRegistry built_in_connectors_optimized();

}  // namespace kvfence
