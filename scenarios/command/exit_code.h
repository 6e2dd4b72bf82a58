#pragma once

/// What `kvfence` exits with. Scripts and ctest read it, so a number keeps its meaning.

namespace kvfence::exit_code {

inline constexpr int kAgree = 0;         ///< everything agreed
inline constexpr int kDisagreement = 1;  ///< a divergence, a broken rule, a goal not reached
inline constexpr int kBadInput = 2;      ///< a malformed file, flag or value
inline constexpr int kCannotRun = 77;    ///< not here: no such release, no such interpreter

}  // namespace kvfence::exit_code
