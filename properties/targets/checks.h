#pragma once

/// The checks of each component target. Those of engine are in properties/engine/checks.h.

#include "properties/core/checks.h"

namespace kvfence {

const Checks& block_pool_checks();
const Checks& kv_cache_checks();
const Checks& eviction_checks();
const Checks& offload_checks();
const Checks& tiering_checks();
const Checks& worker_checks();

}  // namespace kvfence
