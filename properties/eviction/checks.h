#pragma once

/// The checks of target eviction, for whoever runs it.

#include "properties/core/checks.h"

namespace kvfence {

const Checks& eviction_checks();

}  // namespace kvfence
