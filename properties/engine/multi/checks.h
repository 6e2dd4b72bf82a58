#pragma once

/// The checks of engines with a MultiConnector over real connectors, for whoever runs them.

#include "properties/core/checks.h"

namespace kvfence {

const Checks& multi_checks();

}  // namespace kvfence
