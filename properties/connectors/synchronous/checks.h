#pragma once

/// The checks of target synchronous_connector, for whoever runs it.

#include "properties/core/checks.h"

namespace kvfence {

const Checks& synchronous_connector_checks();

}  // namespace kvfence
