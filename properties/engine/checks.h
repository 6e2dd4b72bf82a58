#pragma once

/// The checks of target engine, for whoever runs it.

#include "properties/core/checks.h"

namespace kvfence {

const Checks& engine_checks();

}  // namespace kvfence
