#include "contract/connectors/multi/multi_connector.h"

#include "contract/core/check.h"

namespace kvfence {

const MultiConnectorMetadata& multi_connector_metadata(const KVConnectorMetadata& metadata) {
  const auto& multi = metadata_of<MultiConnectorMetadata>(metadata);
  for (const auto& of_child : multi.metadata) {
    KVFENCE_CHECK(of_child != nullptr, "such children always have metadata");
  }
  return multi;
}

}  // namespace kvfence
