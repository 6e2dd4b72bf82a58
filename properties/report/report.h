#pragma once

/// What a run found, as data, and its renderings. The report decides nothing and prints nothing. In
/// every rendering `expected` is the reference's side, or what a rule demands, and comes before
/// `actual`.

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "contract/core/line.h"
#include "properties/core/divergence.h"
#include "properties/core/oracles.h"
#include "properties/core/refusals.h"

namespace kvfence {

/// How often a coverage goal was reached, and how often it had to be.
struct ReachCount {
  std::string name;
  std::uint64_t count = 0;
  std::uint64_t goal = 0;  ///< 0: none

  bool is_met() const { return count >= goal; }
};

/// One run of `check`, `run` or `replay`.
struct Report {
  std::string target;
  std::string source;         ///< "random, seed 1", "fuzz", or a file's name
  std::string expected_name;  ///< "reference"
  std::string actual_name;    ///< "optimized"; empty where only one side ran
  Oracles oracles;            ///< that judged
  std::uint64_t seed = 0;
  std::uint64_t episode = 0;  ///< of the seed, if a random one failed
  std::uint64_t commands = 0;
  double seconds = 0;
  std::size_t disagreements = 0;

  std::optional<Divergence> divergence;       ///< its step counts the commands of `scenario`
  Document scenario;                          ///< reproduces the divergence; shrunk if possible
  std::size_t commands_before_shrinking = 0;  ///< 0: not shrunk
  std::string reproduce;                      ///< one command line; empty for none

  std::vector<ReachCount> reach;
  // For an outside actual side:
  std::vector<std::string> compared;    ///< members of the observation
  std::vector<std::string> unreported;  ///< members that it never reports: not compared
  std::vector<std::string> unjudged;    ///< rules that need those
  std::uint32_t corrections = 0;        ///< of faults of the engine that it drives
  Refusals refusals;                    ///< by the actual side
  std::vector<std::pair<std::string, double>> numbers;  ///< anything else worth a figure, in order

  /// No divergence, no disagreement, and every goal met.
  bool passed() const;
  /// 0 where no time passed.
  double commands_per_second() const;
};

/// For people: the verdict first, the line that reproduces it last. Ends with a newline.
std::string to_text(const Report& report);

/// One JSON object on one line, without a newline. `divergence`, `scenario` and `reproduce` are
/// present only if there is one, `oracles` only if one was left out. Bytes that are not UTF-8
/// become U+FFFD.
std::string to_json(const Report& report);

/// What could not be run, and why.
struct NotRun {
  std::string source;
  std::string why;
};

/// A JUnit XML file: one suite, one test case per report and per source that was not run, which is
/// an error. Bytes outside printable ASCII become `\xHH`.
std::string to_junit(const std::vector<Report>& reports, const std::vector<NotRun>& not_run = {});

}  // namespace kvfence
