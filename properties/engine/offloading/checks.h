#pragma once

/// The checks of engines with an OffloadingConnector over scripted copies, for whoever runs them.

#include "properties/core/checks.h"

namespace kvfence {

const Checks& offloading_checks();

}  // namespace kvfence
