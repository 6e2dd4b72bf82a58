#pragma once

/// The checks of target tiering, for whoever runs it.

#include "properties/core/checks.h"

namespace kvfence {

const Checks& tiering_checks();

}  // namespace kvfence
