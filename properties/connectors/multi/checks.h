#pragma once

/// The checks of target multi_connector, for whoever runs it.

#include "properties/core/checks.h"

namespace kvfence {

const Checks& multi_connector_checks();

}  // namespace kvfence
