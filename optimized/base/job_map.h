#pragma once

#include "contract/connectors/kv_connector.h"
#include "optimized/base/open_table.h"

namespace kvfence::optimized {

/// Number of a transfer -> slot.
using JobMap = OpenTable<JobId>;

}  // namespace kvfence::optimized
