#pragma once

/// KVFENCE_CHECK: an assertion about kvfence itself, on in every build.
///
/// Plain assert vanishes under NDEBUG, which RelWithDebInfo (the sanitizer builds) defines: exactly
/// where it is needed. A failed check is a bug of the harness or a broken precondition of a caller,
/// never a verdict about the implementation under test, so it aborts (which is also what libFuzzer
/// has to see). Keep conditions O(1).

#include <string_view>

namespace kvfence {

/// Prints `file:line: check failed: condition (message)` to stderr and aborts.
[[noreturn]] void check_failed(const char* file, int line, const char* condition,
                               std::string_view message);

}  // namespace kvfence

#define KVFENCE_CHECK(condition, message)                                 \
  do {                                                                    \
    if (!(condition)) [[unlikely]]                                        \
      ::kvfence::check_failed(__FILE__, __LINE__, #condition, (message)); \
  } while (false)
