#pragma once

/// The checks of target disaggregated, for whoever runs it.

#include "properties/core/checks.h"

namespace kvfence {

const Checks& disaggregated_checks();

}  // namespace kvfence
