#include "properties/pool/conformance_suite.h"
#include "properties/core/prop_test_support.h"

namespace kvfence {

INSTANTIATE_TYPED_TEST_SUITE_P(BothSides, BlockPoolConformance, BothSides<BlockPoolTarget>, );

}  // namespace kvfence
