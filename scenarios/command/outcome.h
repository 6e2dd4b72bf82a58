#pragma once

/// How a run of the `kvfence` command ended.

#include <string>

#include "properties/report/report.h"

namespace kvfence {

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
