#pragma once

/// How a run of the `kvfence` command ended.

#include <string>

#include "properties/report/report.h"

namespace kvfence {

/// The exit codes of `kvfence`. Scripts and ctest read them, so a number keeps its meaning.
namespace exit_code {

inline constexpr int kAgree = 0;         ///< everything agreed
inline constexpr int kDisagreement = 1;  ///< a divergence, a broken rule, a goal not reached
inline constexpr int kBadInput = 2;      ///< a malformed file, flag or value
inline constexpr int kCannotRun = 77;    ///< cannot run here: no such release, no such interpreter

}  // namespace exit_code

/// Exit codes 0 and 1 come with a report, the others with a message.
struct Outcome {
  int exit_code = 0;
  Report report;
  std::string message;
  std::string case_name;  ///< of a random failure: "block_pool-seed1-episode7"
};

/// As bytes and back, to pass it between processes.
std::string to_bytes(const Outcome& outcome);
/// Requires: to_bytes() made them.
Outcome outcome_from_bytes(const std::string& bytes);

}  // namespace kvfence
