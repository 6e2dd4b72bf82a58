#pragma once

/// What the sides of targets with a scheduler and workers have in common.

#include <cstdint>
#include <utility>

#include "contract/connectors/kv_connector.h"
#include "contract/scheduler/scheduler.h"

namespace kvfence {

/// A scheduler and an aggregator without planted bugs.
template <class SchedulerType, class AggregatorType>
struct EngineSide {
  using Scheduler = SchedulerType;
  using Aggregator = AggregatorType;

  Scheduler make_scheduler(const SchedulerConfig& config, KVConnectorHandle connector) const {
    return Scheduler(config, std::move(connector));
  }
  Aggregator make_aggregator(std::uint32_t num_workers) const { return Aggregator(num_workers); }
};

}  // namespace kvfence
