#pragma once

/// A function out of a shared library, by the name of its symbol.

#include <string>

#include "contract/core/line.h"

namespace kvfence {

/// Opens the library, which stays open, and finds the symbol in it. Never null.
///
/// Errors: (file: the path) it cannot be opened; it has no such symbol.
Parsed<void*> open_symbol(const std::string& path, const std::string& symbol);

/// The same as a function of that type; the caller guarantees the type.
template <class Function>
Parsed<Function*> open_function(const std::string& path, const std::string& symbol) {
  Parsed<void*> address = open_symbol(path, symbol);
  if (!address) return address.error();
  return reinterpret_cast<Function*>(*address);
}

}  // namespace kvfence
