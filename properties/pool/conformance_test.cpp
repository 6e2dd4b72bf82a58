#include "properties/pool/conformance_suite.h"

#include "scenarios/targets/targets.h"

namespace kvfence {

INSTANTIATE_TEST_SUITE_P(Reference, BlockPoolConformance,
                         ::testing::Values(block_pool_sides().make_reference));
INSTANTIATE_TEST_SUITE_P(Optimized, BlockPoolConformance,
                         ::testing::Values(block_pool_sides().make_optimized));

}  // namespace kvfence
