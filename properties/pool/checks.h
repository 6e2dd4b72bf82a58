#pragma once

/// The checks of target block_pool, for whoever runs it.

#include "properties/core/checks.h"

namespace kvfence {

const Checks& block_pool_checks();

}  // namespace kvfence
