#pragma once

/// The checks of target kv_cache, for whoever runs it.

#include "properties/core/checks.h"

namespace kvfence {

const Checks& kv_cache_checks();

}  // namespace kvfence
