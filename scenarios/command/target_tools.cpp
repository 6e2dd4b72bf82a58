#include "scenarios/command/target_tools.h"

#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <map>
#include <memory>
#include <sstream>

#include "contract/core/joined.h"
#include "contract/engine/engine_target.h"
#include "properties/core/campaign.h"
#include "properties/core/lockstep.h"
#include "properties/core/observation_digest.h"
#include "scenarios/command/contained_check.h"
#include "scenarios/command/output.h"
#include "scenarios/command/shell_word.h"
#include "scenarios/protocol/child_process.h"
#include "scenarios/protocol/outside_implementation.h"
#include "scenarios/protocol/serve.h"
#include "scenarios/story/explain.h"

namespace kvfence {
namespace {

/// Tries of the shrinker over a pipe, where a run takes milliseconds and not microseconds.
constexpr std::size_t kShrinkTriesOutsideMax = 1'000;
/// A run of at least this many commands per part (TargetTools::parts) fails if it left a goal
/// unreached.
constexpr std::uint64_t kGoalsFromCommands = 500'000;

Outcome bad_input_outcome(std::string message) {
  return {exit_code::kBadInput, {}, std::move(message), {}};
}

std::string no_such_bug(const TargetSides& sides, const std::string& name) {
  return "--planted-bug: found '" + name + "', expected one of " +
         joined(sides.planted_bugs, ", ", &PlantedBugInfo::name);
}

Outcome cannot_run(std::string message) {
  return {exit_code::kCannotRun, {}, std::move(message), {}};
}

template <class Value>
Value median(std::vector<Value> values) {
  std::nth_element(values.begin(), values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2),
                   values.end());
  return values[values.size() / 2];
}

template <class Key>
Key most_frequent(const std::map<Key, int>& counts) {
  Key best{};
  int most = 0;
  for (const auto& [key, count] : counts) {
    if (count > most) best = key;
    most = std::max(most, count);
  }
  return best;
}

/// "free_queue" of "free_queue[2]".
std::string member_of(const std::string& field) {
  return field.substr(0, field.find_first_of("[."));
}

void append_fields(std::string& text, const DeclaredStruct& type) {
  for (const DeclaredMember& member : type.members) {
    std::string line = "  " + std::string(member.name);
    line.resize(std::max<std::size_t>(line.size() + 2, 26), ' ');
    text += line + std::string(member.doc);
    if (member.domain != Domain::kPlain && member.domain != Domain::kState &&
        member.domain != Domain::kResult) {
      text += " (" + std::string(to_text(member.domain)) +
              (member.is_optional ? ", may be left out)" : ")");
    }
    text += "\n";
  }
}

/// The setting of target engine that names an assembly.
constexpr const char* kAssembly = "assembly";

/// "engine.offloading".
std::string part_name(std::string_view target, std::string_view assembly) {
  return std::string(target) + "." + std::string(assembly);
}

}  // namespace

std::string Subject::option() const {
  if (!sut_command.empty()) return "--sut " + shell_word(sut_command);
  if (!connector_library.empty()) return "--connector-library " + shell_word(connector_library);
  return planted_bug.empty() ? "" : "--planted-bug " + planted_bug;
}

std::string Subject::arguments() const {
  const Subject defaults;
  std::vector<std::string> all;
  if (const std::string named = option(); !named.empty()) all.push_back(named);
  if (timeout_seconds != defaults.timeout_seconds) {
    std::ostringstream seconds;
    seconds << timeout_seconds;
    all.push_back("--timeout " + seconds.str());
  }
  if (memory_mib != defaults.memory_mib) {
    all.push_back("--memory-limit " + std::to_string(memory_mib));
  }
  return joined(all, " ");
}

// ---- The two sides of a run ----

class TargetTools::Pair {
 public:
  explicit Pair(const TargetSides& sides) : expected(sides.make_reference()), sides_(sides) {}

  /// Makes the actual side; an outcome if that cannot be done.
  std::optional<Outcome> open(const Subject& subject, bool pass_on_stderr = true) {
    if (!subject.sut_command.empty()) {
      OutsideOptions options;
      options.child.pass_on_stderr = pass_on_stderr;
      options.answer_timeout =
          std::chrono::milliseconds(static_cast<std::int64_t>(subject.timeout_seconds * 1000));
      options.start_timeout = std::max(options.start_timeout, options.answer_timeout);
      auto child =
          std::make_unique<OutsideImplementation>(sides_.target(), subject.sut_command, options);
      outside = child.get();
      actual = std::move(child);
      return std::nullopt;
    }
    if (!subject.planted_bug.empty()) {
      actual = sides_.make_planted(subject.planted_bug);
      if (actual) return std::nullopt;
      return bad_input_outcome(no_such_bug(sides_, subject.planted_bug));
    }
    if (!subject.connector_library.empty()) return open_library(subject.connector_library);
    actual = sides_.make_optimized();
    return std::nullopt;
  }

  /// The outcome of a run that could not begin, since the child or library does not have this
  /// target or configuration.
  std::optional<Outcome> refusal(const std::optional<Divergence>& found) const {
    if (!found) return std::nullopt;
    if (found->oracle == "unavailable") return cannot_run(outside->name() + ": " + found->message);
    if (found->oracle != "unsupported") return std::nullopt;
    if (!outside)
      return bad_input_outcome("--connector-library: " + library_ + ": " + found->message);
    return cannot_run(outside->name() + " does not have this configuration: " + found->message +
                      " (a random run can pin what it has: --config profile=v0.19)");
  }

  std::unique_ptr<Implementation> expected;
  std::unique_ptr<Implementation> actual;
  OutsideImplementation* outside = nullptr;  ///< the actual side, if it is one

 private:
  std::optional<Outcome> open_library(const std::string& path) {
    if (&sides_ != &engine_sides()) {
      return bad_input_outcome("--connector-library: not with --target " +
                               std::string(sides_.target().name));
    }
    auto made = make_engine_with_library(path);
    if (!made) return bad_input_outcome("--connector-library: " + made.error().to_text());
    actual = std::move(*made);
    library_ = path;
    return std::nullopt;
  }

  const TargetSides& sides_;
  std::string library_;
};

// ---- The checks of one target ----

std::string TargetTools::reference_text() const {
  const Target& target = sides_.target();
  std::string text = "config\n";
  append_fields(text, default_config(target).declared().type());
  for (const CommandType& command : target.commands) {
    text += "\n" + std::string(command.declared->verb) + "    " +
            std::string(command.declared->doc) + "\n";
    append_fields(text, *command.declared);
  }
  text += "\nobservation    what stands after ->\n";
  append_fields(text, default_observation(target).declared().type());
  return text;
}

std::vector<std::pair<std::string, std::string>> TargetTools::rules() const {
  std::vector<std::pair<std::string, std::string>> rows;
  for (const CheckedRule& each : sides_.checks->rules) rows.emplace_back(each.name, each.rule);
  return rows;
}

std::vector<std::pair<std::string, std::string>> TargetTools::goals() const {
  std::vector<std::pair<std::string, std::string>> rows;
  for (const Goal& goal : sides_.checks->goals) rows.emplace_back(goal.name, goal.doc);
  return rows;
}

std::vector<const CheckedPart*> TargetTools::parts() const {
  std::vector<const CheckedPart*> parts;
  for (const CheckedPart& part : all_parts()) {
    if (part.sides == &sides_) parts.push_back(&part);
  }
  return parts;
}

const CheckedPart* TargetTools::pinned_part(const std::vector<Field>& overrides) const {
  const CheckedPart* pinned = nullptr;
  for (const Field& field : overrides) {
    if (field.key != kAssembly) continue;
    const auto* const assembly = field.value.get_if<std::string>();
    pinned = assembly ? find_part(part_name(name(), *assembly)) : nullptr;
  }
  return pinned;
}

std::string_view TargetTools::name_under(const std::vector<Field>& overrides) const {
  const CheckedPart* const part = pinned_part(overrides);
  return part ? part->name : name();
}

const Checks& TargetTools::checks_under(const std::vector<Field>& overrides) const {
  const CheckedPart* const part = pinned_part(overrides);
  return part ? *part->checks : *sides_.checks;
}

// ---- Runs ----

Outcome TargetTools::run(const Document& document, const std::string& file, const Subject& subject,
                         CheckOptions options) const {
  options.scenario = document;
  options.scenario_file = file;
  return checked(*sides_.checks, subject, options, 1);
}

Outcome TargetTools::check(const Subject& subject, CheckOptions options, std::uint32_t jobs) const {
  const std::vector<Field>& overrides = options.config_overrides;
  // Some situations belong to one profile or setting, so a pinned configuration cannot reach them
  // all; an assembly reaches its own.
  const bool is_pinned = std::any_of(overrides.begin(), overrides.end(),
                                     [](const Field& field) { return field.key != kAssembly; });
  // An outside implementation does not have all of them either.
  if (!options.episode && !is_pinned && subject.sut_command.empty()) {
    options.goals_from_commands =
        kGoalsFromCommands * (pinned_part(overrides) ? 1 : parts().size());
  }
  const std::string name(name_under(overrides));
  const Checks& checks = checks_under(overrides);
  Outcome outcome = checked(checks, subject, options, jobs);
  if (outcome.exit_code == exit_code::kAgree && outcome.report.commands == 0) {
    return cannot_run("nothing was compared: the time was up before the first answer");
  }
  outcome.case_name = name + "-seed" + std::to_string(outcome.report.seed) + "-episode" +
                      std::to_string(outcome.report.episode);
  return outcome;
}

Outcome TargetTools::checked(const Checks& checks, const Subject& subject,
                             const CheckOptions& options, std::uint32_t jobs) const {
  const bool is_outside = !subject.sut_command.empty();
  if (is_outside && !options.scenario) {
    // Once, before each of several processes starts one.
    Pair pair(sides_);
    static_cast<void>(pair.open(subject, /*pass_on_stderr=*/false));
    if (const auto failure = pair.outside->start()) {
      if (auto refused = pair.refusal(divergence_of(*pair.actual, *failure, 0))) {
        return std::move(*refused);
      }
      for (const std::string& line : pair.outside->last_stderr()) {
        write_all(STDERR_FILENO, line + "\n");
      }
      return never_started(*pair.expected, *pair.actual, *failure, options);
    }
  }
  ContainedCheck contained{
      .checks = checks,
      // Shrunk scenarios may leave the assembly of a campaign.
      .run =
          [&](const CheckOptions& part) {
            return checked_here(part.scenario ? *sides_.checks : checks, subject, part);
          },
      .make_reference = [&] { return sides_.make_reference(); },
      .actual_name =
          subject.planted_bug.empty() ? "optimized" : "optimized with " + subject.planted_bug,
      // A child has a limit of its own.
      .limits = {.seconds_per_command = is_outside ? 0 : subject.timeout_seconds,
                 .memory_bytes = subject.memory_bytes()},
      .jobs = jobs};
  return check_contained(contained, options);
}

Outcome TargetTools::never_started(const Implementation& expected, const Implementation& actual,
                                   const ImplementationFailure& failure,
                                   const CheckOptions& options) const {
  Outcome outcome;
  outcome.exit_code = exit_code::kDisagreement;
  Report& report = outcome.report;
  report.target = sides_.target().name;
  report.seed = options.seed;
  report.episode = options.episode.value_or(0);
  report.source = "random, seed " + std::to_string(report.seed) + ", before its first command";
  report.expected_name = expected.name();
  report.actual_name = actual.name();
  report.oracles = options.oracles;
  report.disagreements = 1;
  report.divergence = divergence_of(actual, failure, 0);
  report.scenario = to_document(Scenario(sides_.target()));
  return outcome;
}

Outcome TargetTools::checked_here(const Checks& checks, const Subject& subject,
                                  CheckOptions options) const {
  Pair pair(sides_);
  if (auto refused = pair.open(subject)) return std::move(*refused);
  if (pair.outside) options.shrink_tries_max = kShrinkTriesOutsideMax;
  Parsed<Report> report = kvfence::check(checks, *pair.expected, *pair.actual, options);
  if (!report) return bad_input_outcome(report.error().to_text());
  if (auto refused = pair.refusal(report->divergence)) return std::move(*refused);
  Outcome outcome;
  outcome.report = std::move(*report);
  if (!outcome.report.passed()) outcome.exit_code = exit_code::kDisagreement;
  return outcome;
}

Outcome TargetTools::shrink(const Document& document, const std::string& file,
                            const Subject& subject, const ProgressCallback& keep_going,
                            const Oracles& oracles) const {
  CheckOptions options;
  options.oracles = oracles;
  options.keep_going = keep_going;
  Outcome outcome = run(document, file, subject, std::move(options));
  const std::optional<Divergence>& divergence = outcome.report.divergence;
  if (!divergence || divergence->oracle != "expectation") return outcome;
  return bad_input_outcome(
      file + ": step " + std::to_string(divergence->step) +
      " misses its expectation; there is nothing to shrink, expected scenarios in "
      "which the two sides disagree");
}

// ---- Recording ----

class TargetTools::Recorder {
 public:
  Recorder(Pair& pair, const RecordOptions& options) : pair_(pair), options_(options) {}

  /// Begins a scenario, without steps.
  std::optional<ImplementationFailure> start(Scenario& scenario, const Setup& setup) {
    world_ = setup.target().make_world(setup);
    observation_ = default_observation(setup.target());
    digest_.reset();
    scenario.digests.reset();
    if (auto failure = pair_.actual->reset(setup)) return failure;
    form_ = {{}, options_.sparse_state, options_.subject.option()};
    if (auto described = pair_.actual->described()) {
      form_.members = std::move(described->reported);
    } else {
      const std::vector<std::string_view> names = observation_names(setup.target());
      form_.members.assign(names.begin(), names.end());
    }
    if (!options_.digest_every) return std::nullopt;
    digest_.emplace(form_);
    scenario.digests = form_;
    return std::nullopt;
  }

  /// Records the answer to the step, the index-th of that many.
  std::optional<ImplementationFailure> record(Step& step, std::size_t index, std::size_t total) {
    world_->apply(step.command);
    const bool has_digest = digest_ && (index + 1 == total || index % *options_.digest_every ==
                                                                  *options_.digest_every - 1);
    const bool has_state = has_digest || !options_.sparse_state;
    const Observe observe = has_state ? Observe::kState : Observe::kNumbers;
    if (auto failure = pair_.actual->apply(step.command, *world_, observe, observation_)) {
      return failure;
    }
    step.expectation.reset();
    if (!digest_) {
      step.expectation = recorded_fields(observation_, form_.members);
      symbolize(*step.expectation, *world_);
      return std::nullopt;
    }
    digest_->add(observation_);
    if (has_digest) {
      Value value(Value::Variant(digest_->take()));
      step.expectation.emplace().push_back({Digests::kField, std::move(value), {}});
    }
    return std::nullopt;
  }

  /// The outcome of a recording that records nothing.
  Outcome refused(const ImplementationFailure& failure) const {
    if (auto outcome = pair_.refusal(divergence_of(*pair_.actual, failure, 0))) return *outcome;
    return bad_input_outcome(pair_.actual->name() + ": " + failure.message);
  }

  const Observation& observation() const { return observation_; }
  const World& world() const { return *world_; }

 private:
  Pair& pair_;
  const RecordOptions& options_;
  Digests form_;
  std::unique_ptr<World> world_;
  Observation observation_;
  std::optional<ObservationDigest> digest_;
};

Outcome TargetTools::record_random(const RecordOptions& options, const Sink& sink) const {
  Pair pair(sides_);
  if (auto refused = pair.open(options.subject)) return std::move(*refused);
  const Checks& checks = checks_under(options.config_overrides);
  Recorder recorder(pair, options);
  Outcome outcome;
  for (std::uint64_t episode = options.episode.value_or(0); episode < options.end_episode();
       ++episode) {
    Choices choices = episode_choices(options.seed, episode);
    Scenario scenario(sides_.target());
    std::optional<Setup> setup;
    std::optional<ImplementationFailure> failure;
    for (int draw = 0; draw < kRefusedDrawsMax; ++draw) {
      Parsed<Setup> drawn = draw_setup(checks, choices, options.config_overrides);
      if (!drawn) return bad_input_outcome(drawn.error().to_text());
      setup = std::move(*drawn);
      failure = recorder.start(scenario, *setup);
      if (!failure || failure->kind != ImplementationFailure::Kind::kUnsupported) break;
      outcome.report.refusals.add(failure->message);
    }
    if (failure) return recorder.refused(*failure);
    scenario.config = setup->config();
    const std::unique_ptr<Generator> generator = checks.make_generator(*setup, choices);
    for (std::uint32_t index = 0; index < options.episode_commands; ++index) {
      Step step{generator->next_command(choices, recorder.observation(), recorder.world())};
      if ((failure = recorder.record(step, index, options.episode_commands))) {
        return recorder.refused(*failure);
      }
      scenario.steps.push_back(std::move(step));
    }
    scenario.comments = {" What " + pair.actual->name() + " did with random commands: seed " +
                         std::to_string(options.seed) + ", episode " + std::to_string(episode) +
                         "."};
    sink("seed" + std::to_string(options.seed) + "-episode" + std::to_string(episode),
         to_document(scenario));
    outcome.report.commands += scenario.steps.size();
  }
  return outcome;
}

Outcome TargetTools::record_document(const Document& document, const std::string& file,
                                     const RecordOptions& options, const Sink& sink) const {
  Parsed<std::vector<Scenario>> episodes = scenarios_from_document(sides_.target(), document, file);
  if (!episodes) return bad_input_outcome(episodes.error().to_text());
  Pair pair(sides_);
  if (auto refused = pair.open(options.subject)) return std::move(*refused);
  Recorder recorder(pair, options);
  Outcome outcome;
  for (Scenario& scenario : *episodes) {
    if (const auto failure = recorder.start(scenario, prepared(sides_.target(), scenario.config))) {
      return recorder.refused(*failure);
    }
    for (std::size_t index = 0; index < scenario.steps.size(); ++index) {
      if (const auto failure =
              recorder.record(scenario.steps[index], index, scenario.steps.size())) {
        return recorder.refused(*failure);
      }
    }
    sink("", to_document(scenario));
    outcome.report.commands += scenario.steps.size();
  }
  return outcome;
}

Outcome TargetTools::explain(Scenario& scenario, const std::string& file, const Subject& subject,
                             const Oracles& oracles) const {
  std::string crash;
  if (subject.sut_command.empty()) {
    CheckOptions options;
    options.oracles = oracles;
    options.shrink = false;
    const Outcome probe = run(to_document(scenario), file, subject, std::move(options));
    if (probe.exit_code > exit_code::kDisagreement) return probe;
    const std::optional<Divergence>& found = probe.report.divergence;
    if (found && found->oracle == "crash") {
      crash = "step " + std::to_string(found->step) + " is where " + found->message + "\n";
      scenario.steps.resize(std::min(scenario.steps.size(), found->step));
    }
  }
  Pair pair(sides_);
  if (auto refused = pair.open(subject)) return std::move(*refused);
  Outcome outcome;
  const Explanation explanation =
      explain_scenario(scenario, *sides_.checks, *pair.expected, *pair.actual, oracles);
  if (auto refused = pair.refusal(explanation.divergence)) return std::move(*refused);
  outcome.message = explanation.text + crash;
  outcome.report.divergence = explanation.divergence;
  const bool fails = explanation.divergence || !crash.empty();
  outcome.exit_code = fails ? exit_code::kDisagreement : exit_code::kAgree;
  return outcome;
}

int TargetTools::serve(const std::string& planted_bug, bool use_reference) const {
  auto implementation = !planted_bug.empty() ? sides_.make_planted(planted_bug)
                        : use_reference      ? sides_.make_reference()
                                             : sides_.make_optimized();
  if (!implementation) return bad_input(no_such_bug(sides_, planted_bug));
  return kvfence::serve(sides_.target(), *implementation);
}

PlantedBugRow TargetTools::measure_planted_bug(const PlantedBugInfo& info, std::uint64_t seed,
                                               int num_seeds, std::uint64_t commands_max) const {
  PlantedBugRow row;
  row.info = info;
  const CheckedPart* const part = find_part(part_name(name(), info.assembly));
  const Checks& checks = part ? *part->checks : *sides_.checks;
  const auto run_all = [&](const LockstepOptions& lockstep, std::optional<std::uint64_t>& commands,
                           auto&& on_failure) {
    std::vector<std::uint64_t> needed;
    for (int index = 0; index < num_seeds; ++index) {
      const auto expected = sides_.make_reference();
      const auto actual = sides_.make_planted(info.name);
      CampaignOptions options;
      options.seed = seed + static_cast<std::uint64_t>(index);
      options.commands_max = commands_max;
      options.lockstep = lockstep;
      auto result = run_campaign(checks, *expected, *actual, options,
                                 [](const CampaignProgress&) { return true; });
      if (!result.failure) continue;
      needed.push_back(result.progress.commands);
      on_failure(std::move(*result.failure));
    }
    if (needed.size() == static_cast<std::size_t>(num_seeds)) commands = median(needed);
  };
  std::map<std::string, int> fields;
  run_all({.oracles = {.rules = false}}, row.lockstep_commands, [&](CampaignFailure failure) {
    ++fields[member_of(failure.divergence.field)];
    const auto expected = sides_.make_reference();
    const auto actual = sides_.make_planted(info.name);
    shrink_failure(*sides_.checks, *expected, *actual, failure.scenario, failure.divergence, {});
    const std::size_t size = failure.scenario.steps.size();
    if (row.shrunk_commands != 0 && size >= row.shrunk_commands) return;
    row.shrunk_commands = size;
    row.shrunk = to_document(failure.scenario);
  });
  row.lockstep_field = most_frequent(fields);
  std::map<std::string, int> rules_seen;
  run_all({.oracles = {.lockstep = false, .leaks = false}}, row.rule_commands,
          [&](const CampaignFailure& failure) { ++rules_seen[failure.divergence.oracle]; });
  row.rule = most_frequent(rules_seen);
  return row;
}

const std::vector<TargetTools>& all_tools() {
  static const std::vector<TargetTools> kTools = [] {
    std::vector<TargetTools> tools;
    for (const TargetSides* sides : all_targets()) tools.emplace_back(*sides);
    return tools;
  }();
  return kTools;
}

Parsed<const TargetTools*> tools_of(std::string_view name, std::string_view file,
                                    Position position) {
  for (const TargetTools& tools : all_tools()) {
    if (tools.name() == name) return &tools;
  }
  return InputError{std::string(file), position, "target '" + std::string(name) + "'",
                    "one of " + joined(all_tools(), ", ", &TargetTools::name)};
}

}  // namespace kvfence
