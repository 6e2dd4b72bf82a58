#pragma once

/// A function out of a shared library, by the name of its symbol.

#include <string>

#include "contract/core/line.h"

namespace kvfence {

/// Opens the library, which stays open, and finds the symbol in it. Never null.
///
/// Errors: (file: the path) it cannot be opened; it has no such symbol.
Parsed<void*> open_symbol(const std::string& path, const std::string& symbol);

}  // namespace kvfence
