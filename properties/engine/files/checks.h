#pragma once

/// The checks of engines with an ExampleConnector or a DecodeBenchConnector, for whoever runs them.

#include "properties/core/checks.h"

namespace kvfence {

const Checks& files_checks();

}  // namespace kvfence
