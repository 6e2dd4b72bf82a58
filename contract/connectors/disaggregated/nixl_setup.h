#pragma once

/// What NIXL's halves are built from, by their record
/// (contract/connectors/disaggregated/nixl_facet.h).

#include <cstdint>
#include <string_view>

#include "contract/connectors/disaggregated/disaggregated_connector.h"
#include "contract/connectors/disaggregated/nixl_facet.h"
#include "contract/core/line.h"
#include "contract/scheduler/scheduler.h"

namespace kvfence {

/// What both halves of a record are built from, or what is wrong with it: what check_spec says, and
/// one group of full attention.
Parsed<DisaggregatedSpec> make_nixl_spec(const engine::nixl::Record& record,
                                         const SchedulerConfig& scheduler,
                                         std::uint32_t num_producer_ranks,
                                         std::uint32_t num_consumer_ranks,
                                         std::string_view file = {}, Position position = {});

}  // namespace kvfence
