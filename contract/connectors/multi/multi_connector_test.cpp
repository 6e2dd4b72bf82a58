#include "contract/connectors/multi/multi_connector.h"

#include <gtest/gtest.h>

#include <memory>

namespace kvfence {
namespace {

TEST(MultiConnectorMetadata, HasThePartsOfItsChildrenAndNoMore) {
  MultiConnectorMetadata metadata;
  metadata.metadata = {std::make_shared<KVConnectorMetadata>(),
                       std::make_shared<KVConnectorMetadata>()};
  EXPECT_EQ(metadata.child(1), metadata.metadata[1].get());
  EXPECT_EQ(metadata.child(2), nullptr);
}

}  // namespace
}  // namespace kvfence
