#pragma once

/// The checks of target scheduler, for whoever runs it.

#include "properties/core/checks.h"

namespace kvfence {

const Checks& scheduler_checks();

}  // namespace kvfence
