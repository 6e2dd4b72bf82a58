#pragma once

/// The exit codes of `kvfence`. Scripts and ctest read them, so a number keeps its meaning.

namespace kvfence::exit_code {

inline constexpr int kAgree = 0;         ///< everything agreed
inline constexpr int kDisagreement = 1;  ///< a divergence, a broken rule, a goal not reached
inline constexpr int kBadInput = 2;      ///< a malformed file, flag or value
inline constexpr int kCannotRun = 77;    ///< cannot run here: no such release, no such interpreter

}  // namespace kvfence::exit_code
