#pragma once

/// The checks of target worker, for whoever runs it.

#include "properties/core/checks.h"

namespace kvfence {

const Checks& worker_checks();

}  // namespace kvfence
