#pragma once

/// What a synchronous connector is built from, by its record
/// (contract/connectors/synchronous/files_facet.h).

#include <cstdint>
#include <string_view>

#include "contract/connectors/synchronous/files_facet.h"
#include "contract/connectors/synchronous/synchronous_connector.h"
#include "contract/core/line.h"
#include "contract/core/rules.h"
#include "contract/scheduler/scheduler.h"

namespace kvfence {

/// What the connector of a record is built from, or what is wrong with it.
Parsed<SynchronousConnectorSpec> make_files_spec(const engine::files::ExampleRecord& record,
                                                 const SchedulerConfig& scheduler,
                                                 std::uint32_t num_ranks,
                                                 std::string_view file = {},
                                                 Position position = {});
Parsed<SynchronousConnectorSpec> make_files_spec(const engine::files::DecodeBenchRecord& record,
                                                 const SchedulerConfig& scheduler,
                                                 std::uint32_t num_ranks,
                                                 std::string_view file = {},
                                                 Position position = {});

/// What a record says of the profile's rules.
void override_rules(const engine::files::DecodeBenchRecord& record, Rules& rules);

}  // namespace kvfence
