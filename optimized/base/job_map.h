#pragma once

/// JobMap: number of a transfer -> slot.

#include "contract/connectors/kv_connector.h"
#include "optimized/base/open_table.h"

namespace kvfence::optimized {

using JobMap = OpenTable<JobId>;

}  // namespace kvfence::optimized
