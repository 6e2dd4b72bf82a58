// Goal: the MultiConnectors of both sides obey each rule of
// contract/connectors/multi/multi_connector.h. Method: the tests of multi_connector_conformance.h.

#include "optimized/connectors/multi/multi_connector.h"
#include "optimized/connectors/multi/multi_connector_worker.h"
#include "properties/connectors/multi/conformance.h"
#include "reference/connectors/multi/multi_connector.h"
#include "reference/connectors/multi/multi_connector_worker.h"

namespace kvfence::multi_connector_conformance {

struct ReferenceTypes {
  using Scheduler = reference::MultiConnector<ScriptedChild>;
  using Worker = reference::MultiConnectorWorker<ScriptedWorkerChild>;
};
struct OptimizedTypes {
  using Scheduler = optimized::MultiConnector<ScriptedChild>;
  using Worker = optimized::MultiConnectorWorker<ScriptedWorkerChild>;
};
using BothTypes = ::testing::Types<ReferenceTypes, OptimizedTypes>;

INSTANTIATE_TYPED_TEST_SUITE_P(BothSides, MultiConnectorConformance, BothTypes, );

}  // namespace kvfence::multi_connector_conformance
