#pragma once

/// What the `kvfence` command can do with a target, whatever its types: the seam between the
/// command line and the templates. target_tools_of.cpp instantiates it for a target; all_targets()
/// lists them.

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "contract/core/line.h"
#include "properties/core/report.h"
#include "scenarios/targets/implementations.h"

namespace kvfence {

/// Who stands on the actual side, against the reference.
struct Subject {
  std::string planted_bug;        ///< the optimized implementation with this mistake
  std::string connector_library;  ///< the optimized scheduler with the connector of this library
  std::string sut_command;        ///< a child process that speaks the line protocol
  double timeout_seconds = 10;    ///< silence of a child that counts as death

  /// As it stands on a command line that reproduces: "", "--planted-bug X", "--sut 'Y'",
  /// "--connector-library 'Z'".
  std::string arguments() const;
};

/// Told how far a run is; returns false to stop it.
using ProgressCallback = std::function<bool(std::uint64_t done, std::uint64_t total)>;

/// How a run ended. A report is there for exit codes 0 and 1, a message for the others.
struct Outcome {
  int exit_code = 0;
  Report report;
  std::string message;
  std::string case_name;  ///< of a random failure: "block_pool-seed1-episode7"
};

struct CheckOptions {
  Subject subject;
  std::uint64_t seed = 1;
  std::uint64_t commands_max = UINT64_MAX;
  std::optional<std::uint64_t> episode;  ///< this one alone
  std::vector<Field> config_overrides;   ///< what every drawn configuration has to have
  std::uint32_t episode_commands = 200;
  bool shrink = true;
  /// A run of at least this many commands fails if it left a goal unreached, unless configurations
  /// are pinned.
  std::uint64_t goals_from_commands = 500'000;
};

struct RecordOptions {
  Subject subject;
  std::uint64_t seed = 1;
  std::uint64_t episodes = 1;
  std::uint32_t episode_commands = 200;
  std::vector<Field> config_overrides;
};

/// One line of the table of planted bugs.
struct PlantedBugRow {
  PlantedBugInfo info;
  /// Commands until it was caught, median over the seeds; nothing if some seed did not catch it.
  std::optional<std::uint64_t> lockstep_commands;
  std::string lockstep_field;  ///< the member in which it showed, most often
  std::optional<std::uint64_t> invariant_commands;
  std::string invariant;  ///< the one that fired, most often
  std::size_t shrunk_commands = 0;
  Document shrunk;
};

class TargetTools {
 public:
  virtual ~TargetTools() = default;

  virtual std::string_view name() const = 0;
  virtual std::string_view doc() const = 0;

  /// The commands, arguments, configuration and observation, as declared.
  virtual std::string reference_text() const = 0;
  /// (name, what it says) of each invariant and each reachability goal.
  virtual std::vector<std::pair<std::string, std::string>> invariants() const = 0;
  virtual std::vector<std::pair<std::string, std::string>> goals() const = 0;
  virtual std::vector<PlantedBugInfo> planted_bugs() const = 0;

  /// Runs a scenario or trace. until: stop behind that many commands.
  virtual Outcome run(const Document& document, const std::string& file, const Subject& subject,
                      std::optional<std::size_t> until, bool shrink) const = 0;

  /// A random campaign against the reference.
  virtual Outcome check(const CheckOptions& options, const ProgressCallback& keep_going) const = 0;

  /// Makes a failing scenario small; the report's scenario is the result.
  virtual Outcome shrink(const Document& document, const std::string& file, const Subject& subject,
                         const ProgressCallback& keep_going) const = 0;

  /// Writes down what the subject answers: random episodes, or the commands of a document. Each
  /// recorded scenario goes to `sink`.
  using Sink = std::function<void(const std::string& name, const Document& document)>;
  virtual Outcome record_random(const RecordOptions& options, const Sink& sink) const = 0;
  virtual Outcome record_document(const Document& document, const std::string& file,
                                  const Subject& subject, const Sink& sink) const = 0;

  /// The story of a scenario, command by command; the report's text is the message.
  virtual Outcome explain(const Document& document, const std::string& file,
                          const Subject& subject) const = 0;

  /// The child's side of the line protocol, on stdin and stdout.
  virtual int serve(const std::string& planted_bug, bool use_reference) const = 0;

  virtual PlantedBugRow measure_planted_bug(const PlantedBugInfo& info, std::uint64_t seed,
                                            int num_seeds, std::uint64_t commands_max) const = 0;
};

/// Those of a target of contract/core/all_targets.h.
template <class Target>
const TargetTools& target_tools();

/// Every target, in the order in which the documentation lists them.
const std::vector<const TargetTools*>& all_targets();

/// The target of that name, or null.
const TargetTools* find_target(std::string_view name);

}  // namespace kvfence
