#pragma once

/// The checks of a pair over NIXL.

#include "properties/core/checks.h"

namespace kvfence {

const Checks& nixl_checks();

}  // namespace kvfence
