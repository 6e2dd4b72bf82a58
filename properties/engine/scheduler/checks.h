#pragma once

/// The checks of engines without a connector or under the scripted one, for whoever runs them.

#include "properties/core/checks.h"

namespace kvfence {

const Checks& scheduler_checks();

}  // namespace kvfence
