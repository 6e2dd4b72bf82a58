#pragma once

/// A row of a room's table by its name. A name that is not in the table does not compile.

#include <cstddef>
#include <iterator>

namespace kvfence {

/// The index of the row in kTable, found at compile time.
template <const auto& kTable>
class NamedPlace {
 public:
  // NOLINTNEXTLINE(google-explicit-constructor): callers write a literal
  consteval NamedPlace(const char* name) {
    while (place_ < std::size(kTable) && kTable[place_].name != name) ++place_;
    if (place_ == std::size(kTable)) no_row_has_that_name();
  }
  constexpr std::size_t place() const { return place_; }

 private:
  static void no_row_has_that_name() {}  // not constexpr: so the compiler stops here

  std::size_t place_ = 0;
};

}  // namespace kvfence
