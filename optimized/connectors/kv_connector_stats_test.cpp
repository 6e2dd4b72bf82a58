// Goal: statistics allocate nothing in an interval like the last one. Method: compare the address
// of their operations. properties/engine/offloading/kv_connector_stats_unit_test.cpp checks the
// counts.

#include "optimized/connectors/kv_connector_stats.h"

#include <gtest/gtest.h>

namespace kvfence::optimized {
namespace {

TEST(OffloadingConnectorStats, AnIntervalLikeTheLastOneUsesItsMemory) {
  constexpr TransferType kStore{"GPU", "CPU"};
  OffloadingConnectorStats stats;
  stats.record_transfer(1, 0.5, kStore);
  const OffloadingOperationMetrics* const memory = stats.data().front().ops.data();
  stats.reset();
  stats.record_transfer(2, 0.5, kStore);
  EXPECT_EQ(stats.data().front().ops.data(), memory);
}

}  // namespace
}  // namespace kvfence::optimized
