#pragma once

/// The checks of engines with a SimpleCPUOffloadConnector, for whoever runs them.

#include "properties/core/checks.h"

namespace kvfence {

const Checks& simple_checks();

}  // namespace kvfence
