#pragma once

/// One check of an implementation against another, from the first command to the report: runs a
/// random campaign or a scenario, and shrinks a failure.

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "contract/core/implementation.h"
#include "contract/core/line.h"
#include "contract/core/scenario.h"
#include "properties/core/checks.h"
#include "properties/core/oracles.h"
#include "properties/core/run_position.h"
#include "properties/report/report.h"

namespace kvfence {

/// Called with the progress after every episode of a campaign and every try of the shrinker. If it
/// returns false, a campaign ends. total is 0 if no bound is known.
using ProgressCallback = std::function<bool(std::uint64_t done, std::uint64_t total)>;

struct CheckOptions {
  std::uint64_t seed = 1;  ///< decides every configuration and command
  /// Unless set, 100,000 for a campaign and all for a scenario.
  std::optional<std::uint64_t> commands_max;
  std::optional<std::uint64_t> episode;  ///< this one alone
  std::uint32_t episode_commands = 200;
  std::uint64_t share = 0;  ///< of a campaign in num_shares processes, each with its own episodes
  std::uint64_t num_shares = 1;
  /// Members that every drawn configuration has to have (fields_of reads them); `word.member` is a
  /// member of its (word ...) records.
  std::vector<Field> config_overrides;
  /// A campaign of at least this many commands fails if it does not reach every coverage goal.
  std::uint64_t goals_from_commands = UINT64_MAX;

  /// These commands instead of random ones; parse_document reads them.
  std::optional<Document> scenario;
  std::string scenario_file;  ///< its name, for messages

  Oracles oracles;  ///< that judge
  bool shrink = true;
  std::size_t shrink_tries_max = 20'000;
  double shrink_seconds_max = 60;

  ProgressCallback keep_going;      ///< may be empty
  RunPosition* position = nullptr;  ///< receives where the run is; may be null
};

/// `key=value ...`, as on the config line of a scenario.
Parsed<std::vector<Field>> fields_of(std::string_view text, std::string_view file = {});

/// Runs the check; each episode and each try resets both sides.
///
/// Errors: an override or a scenario that does not fit the target, with its place.
Parsed<Report> check(const Checks& checks, Implementation& expected, Implementation& actual,
                     const CheckOptions& options);

/// Runs a scenario; returns the failure, if any.
using RunScenario = std::function<std::optional<Divergence>(const Scenario&, const Setup&)>;

/// Makes a failing scenario as small as the options allow, while the same oracle still reports it.
/// `divergence` becomes that of the result. Returns false if it did not fail when run again.
bool shrink_failure(const RunScenario& run, Scenario& scenario, Divergence& divergence,
                    const CheckOptions& options);
bool shrink_failure(const Checks& checks, Implementation& expected, Implementation& actual,
                    Scenario& scenario, Divergence& divergence, const CheckOptions& options);

/// The scenario of a failing report, with its findings at the top, as written to a file.
Document failing_document(const Report& report);

}  // namespace kvfence
