#pragma once

/// The checks of target simple_offload, for whoever runs it.

#include "properties/core/checks.h"

namespace kvfence {

const Checks& simple_offload_checks();

}  // namespace kvfence
