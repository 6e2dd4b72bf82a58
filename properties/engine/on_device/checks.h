#pragma once

/// The checks of engines with the OffloadingConnector over devices, for whoever runs them.

#include "properties/core/checks.h"

namespace kvfence {

const Checks& on_device_checks();

}  // namespace kvfence
