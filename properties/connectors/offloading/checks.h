#pragma once

/// The checks of target connector, for whoever runs it.

#include "properties/core/checks.h"

namespace kvfence {

const Checks& connector_checks();

}  // namespace kvfence
