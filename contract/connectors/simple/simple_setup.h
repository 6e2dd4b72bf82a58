#pragma once

/// What a SimpleCPUOffloadConnector is built from, by its record
/// (contract/connectors/simple/simple_facet.h).

#include <cstdint>
#include <string_view>

#include "contract/connectors/simple/simple_cpu_offload.h"
#include "contract/connectors/simple/simple_facet.h"
#include "contract/core/line.h"
#include "contract/core/rules.h"
#include "contract/scheduler/scheduler.h"

namespace kvfence {

/// What the connector of a record is built from, or what is wrong with it. The overrides of rules
/// are the scheduler's as well (override_rules).
Parsed<SimpleCPUOffloadSpec> make_simple_spec(const engine::simple::Record& record,
                                              const SchedulerConfig& scheduler,
                                              std::uint32_t num_ranks, std::string_view file = {},
                                              Position position = {});

/// What a record says of the profile's rules.
void override_rules(const engine::simple::Record& record, Rules& rules);

}  // namespace kvfence
