#pragma once

/// What the `kvfence` command can do with a target.

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "contract/core/line.h"
#include "contract/core/scenario.h"
#include "properties/core/run_check.h"
#include "properties/report/report.h"
#include "scenarios/command/outcome.h"
#include "scenarios/targets/targets.h"

namespace kvfence {

/// The implementation on the actual side, which is compared with the reference.
struct Subject {
  std::string planted_bug;        ///< the optimized implementation with this mistake
  std::string connector_library;  ///< the optimized engine with the connector of this library
  std::string sut_command;        ///< a child process that speaks the line protocol
  double timeout_seconds = 10;  ///< limit of a child's time to answer, or of one command's CPU time
  std::uint64_t memory_mib = 4096;  ///< of a process that checks; 0: no limit

  /// Likewise. A child has a limit of its own.
  std::uint64_t memory_bytes() const { return sut_command.empty() ? memory_mib << 20 : 0; }

  /// The option that names the implementation: "", "--planted-bug X", "--sut 'Y'",
  /// "--connector-library 'Z'".
  std::string option() const;
  /// All options of a line that reproduces: that one, and limits that are not the defaults. A
  /// timeout, or memory that ran out, is found again under the same limit alone.
  std::string arguments() const;
};

struct RecordOptions {
  Subject subject;
  std::uint64_t seed = 1;
  std::uint64_t episodes = 1;
  std::optional<std::uint64_t> episode;  ///< this one alone
  std::uint32_t episode_commands = 200;
  std::vector<Field> config_overrides;
  /// One digest of that many observations instead of their texts.
  std::optional<std::uint32_t> digest_every;
  bool sparse_state = false;  ///< with digests: the state is observed only at a digest

  std::uint64_t end_episode() const { return episode ? *episode + 1 : episodes; }
};

/// One line of the table of planted bugs.
struct PlantedBugRow {
  PlantedBugInfo info;
  /// Commands until it was caught, median over the seeds; nothing if some seed did not catch it.
  std::optional<std::uint64_t> lockstep_commands;
  std::string lockstep_field;  ///< the member that differed most often
  std::optional<std::uint64_t> rule_commands;
  std::string rule;  ///< the rule that was broken most often
  std::size_t shrunk_commands = 0;
  Document shrunk;
};

class TargetTools {
 public:
  explicit TargetTools(const TargetSides& sides) : sides_(sides) {}

  std::string_view name() const { return sides_.target().name; }
  std::string_view doc() const { return sides_.target().doc; }

  /// The commands, arguments, configuration and observation, as declared.
  std::string reference_text() const;
  /// (name, description) of each rule and each coverage goal.
  std::vector<std::pair<std::string, std::string>> rules() const;
  std::vector<std::pair<std::string, std::string>> goals() const;
  const std::vector<PlantedBugInfo>& planted_bugs() const { return sides_.planted_bugs; }

  /// The parts that are checked separately: the target, or each assembly of target engine.
  std::vector<const CheckedPart*> parts() const;
  /// The assembly that overrides of the configuration pin; null if they pin none.
  const CheckedPart* pinned_part(const std::vector<Field>& overrides) const;
  /// "block_pool"; "engine.offloading" where that assembly is pinned.
  std::string_view name_under(const std::vector<Field>& overrides) const;

  /// The scenario of a document, or its error.
  Parsed<Scenario> scenario(const Document& document, const std::string& file) const {
    return scenario_from_document(sides_.target(), document, file);
  }

  /// Runs a scenario or trace, which the options need not have.
  Outcome run(const Document& document, const std::string& file, const Subject& subject,
              CheckOptions options) const;

  /// A random campaign against the reference. If it is long enough, it fails if it left a goal
  /// unreached, unless configurations are pinned. A pinned assembly is the only part that counts.
  /// The findings do not depend on the number of processes.
  Outcome check(const Subject& subject, CheckOptions options, std::uint32_t jobs = 1) const;

  /// Makes a failing scenario small; the report's scenario is the result.
  Outcome shrink(const Document& document, const std::string& file, const Subject& subject,
                 const ProgressCallback& keep_going, const Oracles& oracles = {}) const;

  /// Records the subject's answers to random episodes or to the commands of a document. Each
  /// recorded scenario goes to `sink`. If the subject does not have a configuration, another one is
  /// drawn.
  using Sink = std::function<void(const std::string& name, const Document& document)>;
  Outcome record_random(const RecordOptions& options, const Sink& sink) const;
  Outcome record_document(const Document& document, const std::string& file,
                          const RecordOptions& options, const Sink& sink) const;

  /// Explains a scenario command by command; the report's text is the message. A scenario that
  /// crashes the subject is cut before the command that crashes it.
  Outcome explain(Scenario& scenario, const std::string& file, const Subject& subject,
                  const Oracles& oracles = {}) const;

  /// The child's side of the line protocol, on stdin and stdout.
  int serve(const std::string& planted_bug, bool use_reference) const;

  /// Runs campaigns, of the bug's assembly if it belongs to one.
  PlantedBugRow measure_planted_bug(const PlantedBugInfo& info, std::uint64_t seed, int num_seeds,
                                    std::uint64_t commands_max) const;

 private:
  /// The two sides of a run.
  class Pair;
  /// Runs commands on the actual side alone and records its answers as expectations.
  class Recorder;

  /// The goals of the pinned assembly, or of the whole target.
  const Checks& checks_under(const std::vector<Field>& overrides) const;
  /// In processes of their own.
  Outcome checked(const Checks& checks, const Subject& subject, const CheckOptions& options,
                  std::uint32_t jobs) const;
  /// In this process.
  Outcome checked_here(const Checks& checks, const Subject& subject, CheckOptions options) const;
  /// The report of a child that failed before it had a configuration.
  Outcome never_started(const Implementation& expected, const Implementation& actual,
                        const ImplementationFailure& failure, const CheckOptions& options) const;

  const TargetSides& sides_;
};

/// The tools of every target, in the order in which the documentation lists them.
const std::vector<TargetTools>& all_tools();

/// The tools of the target of that name. `file` and position are those of the name.
/// Errors: no such target.
Parsed<const TargetTools*> tools_of(std::string_view name, std::string_view file,
                                    Position position = {});

}  // namespace kvfence
