#pragma once

/// What the generators of the assemblies leave out on purpose, with reasons.

#include <string_view>
#include <vector>

#include "properties/core/checks.h"

namespace kvfence {

/// Rows of "engine.offloading" and so on.
std::vector<NeverTogether> never_together(std::string_view part);
/// Every name that a row has.
std::vector<std::string_view> parts_with_rows();

}  // namespace kvfence
