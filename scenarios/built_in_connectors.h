#pragma once

/// The connectors that kvfence has, by the names that `kv_connector` takes. Another one comes from
/// a shared library: scenarios/examples/my_connector/.

#include "contract/kv_connector_registry.h"

namespace kvfence {

/// "offloading".
KVConnectorRegistry built_in_connectors_reference();
KVConnectorRegistry built_in_connectors_optimized();

}  // namespace kvfence
