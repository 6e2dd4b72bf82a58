#pragma once

/// What the harness needs to know about a target besides its declarations: how to draw its
/// commands, what must hold after each, and which coverage goals it has. One object per target.

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "contract/core/observation.h"
#include "contract/core/status.h"
#include "contract/core/target.h"
#include "properties/core/divergence.h"
#include "properties/draws/choices.h"

namespace kvfence {

/// Draws the commands of one episode.
class Generator {
 public:
  virtual ~Generator() = default;
  /// The next command, given what an implementation showed after the last one and what the world
  /// has taken in. The caller runs every command that is drawn.
  virtual Command next_command(Choices& choices, const Observation& now, const World& world) = 0;
  /// The next command of a tail, which starts nothing new: everything under way makes progress, and
  /// is released when it has ended. Nothing: there is nothing left.
  virtual std::optional<Command> next_command_of_tail(const Observation& now,
                                                      const World& world) = 0;
};

/// The rules, checked after each command of one run, whatever the other side answers.
class RuleChecker {
 public:
  virtual ~RuleChecker() = default;
  /// Checks every rule on one observation. Returns the first that is broken, or nothing; the caller
  /// sets the step. Called after every command of a run, until a divergence, with what was shown
  /// before the command (null for the first one) and a world that has taken it in.
  virtual std::optional<Divergence> verdict(const Command& command, const Observation* before,
                                            const Observation& observation, const World& world) = 0;
  /// Switches these rules off.
  void leave_out(std::vector<std::string> rules) { left_out_ = std::move(rules); }

 protected:
  bool is_left_out(const Invariant& rule) const;

 private:
  std::vector<std::string> left_out_;
};

/// A rule of a target, and the members that it needs (divergence.h).
struct CheckedRule {
  std::string name;
  std::string rule;
  std::string_view needs;
};

/// A coverage goal: one situation that a suite of runs has to reach.
struct Goal {
  std::string_view name;
  std::string_view doc;
  ErrorCode refusal = ErrorCode::kNone;  ///< of error_<code>: reached by a refusal with that code
};

/// How often each goal of a target was reached, over several runs.
class GoalCounts {
 public:
  virtual ~GoalCounts() = default;
  /// Before a run.
  virtual void start(const Setup& setup) = 0;
  /// Counts one command, accepted or refused. `before` is what was observed after the previous
  /// command, including its reply; for the first command of a run it has default numbers.
  virtual void count(const Command& command, const Observation& before, const Observation& after,
                     const World& world) = 0;
  /// By index in Checks::goals.
  virtual std::uint64_t count_of(std::size_t goal) const = 0;
  /// Whether any run so far could have reached it: some goals need one kind of configuration.
  virtual bool could_reach(std::size_t /*goal*/) const { return true; }
};

/// Two values of factors (draws/factors.h) that are not drawn together although the contract
/// accepts them.
struct NeverTogether {
  std::string_view first;   ///< factor=value
  std::string_view second;  ///< likewise; empty: the first is not drawn at all
  std::string_view why;
  std::string_view scenario = {};  ///< shows why, below scenarios/cases/; empty: nothing is missed
};

struct Checks {
  const Target* target;
  std::vector<CheckedRule> rules;
  std::vector<Goal> goals;
  /// A small configuration with any settings and any profile.
  std::function<Config(Choices& choices)> draw_config;
  std::vector<NeverTogether> never_together;
  std::unique_ptr<Generator> (*make_generator)(const Setup& setup, Choices& choices);
  std::unique_ptr<RuleChecker> (*make_rules)(const Setup& setup);
  std::unique_ptr<GoalCounts> (*make_counts_of)(std::span<const Goal> goals);

  void add_rules(std::span<const Invariant> rows);
  /// Names of the rules that cannot be checked on a side that does not show these members.
  std::vector<std::string> unjudged_without(const std::vector<std::string>& unreported) const;
  /// Counts that all start at 0. Requires: these checks outlive them.
  std::unique_ptr<GoalCounts> make_goal_counts() const { return make_counts_of(goals); }
};

}  // namespace kvfence
