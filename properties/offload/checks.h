#pragma once

/// The checks of target offload, for whoever runs it.

#include "properties/core/checks.h"

namespace kvfence {

const Checks& offload_checks();

}  // namespace kvfence
