#include "properties/core/lockstep.h"

#include <string>
#include <string_view>
#include <utility>

#include "properties/core/difference.h"
#include "properties/core/observation_digest.h"

namespace kvfence {

Lockstep::Lockstep(const Checks& checks, Implementation& expected, Implementation& actual,
                   LockstepOptions options)
    : checks_(checks),
      expected_(expected),
      actual_(actual),
      options_(options),
      window_(options.oracles.lockstep ? actual.window() : 1),
      goal_counts_(checks.make_goal_counts()),
      expected_observations_(window_ + 1) {}

std::optional<Divergence> Lockstep::start(const Setup& setup, bool counts_tables) {
  if (auto stopped = stop_if_requested(0)) return stopped;
  if (options_.position) options_.position->begin_step(0);
  world_ = checks_.target->make_world(setup);
  goal_counts_->start(setup);
  num_commands_ = 0;
  num_collected_ = 0;
  newest_ = expected_observations_.size() - 1;
  oldest_ = 0;
  for (Observation& observation : expected_observations_) {
    observation = default_observation(*checks_.target);
  }
  if (auto failure = expected_.reset(setup)) return divergence_of(expected_, *failure, 0);
  enter(RunPhase::kActual);
  if (auto failure = actual_.reset(setup)) return divergence_of(actual_, *failure, 0);
  rules_ = make_rules(setup);
  expected_base_.reset();
  if (counts_tables && options_.oracles.leaks) {
    expected_base_ = expected_.num_entries();
    actual_base_ = actual_.num_entries();
    const bool are_known = expected_base_ && actual_base_;
    if (are_known && !num_compared_tables_) num_compared_tables_ = 0;
  }
  return std::nullopt;
}

std::unique_ptr<RuleChecker> Lockstep::make_rules(const Setup& setup) const {
  if (!options_.oracles.rules) return nullptr;
  std::vector<std::string> left_out;
  if (const auto described = actual_.described(); described && judges_actual_alone()) {
    left_out = checks_.unjudged_without(described->unreported);
    if (left_out.size() == checks_.rules.size()) return nullptr;
  }
  auto rules = checks_.make_rules(setup);
  rules->leave_out(std::move(left_out));
  return rules;
}

std::optional<Divergence> Lockstep::step(const Command& command,
                                         const std::optional<std::vector<Field>>& expectation,
                                         bool want_state) {
  const bool state = want_state || options_.state_every == 1 ||
                     num_commands_ % options_.state_every == options_.state_every - 1;
  const Observe observe = state ? Observe::kState : Observe::kNumbers;
  const Observation& before = last_expected();
  const Observation& actual_before = last_actual();
  const std::size_t slot = after(newest_);
  Observation& expected = expected_observations_[slot];
  const std::size_t step = num_commands_;
  if (auto stopped = stop_if_requested(step)) return stopped;
  if (options_.position) options_.position->begin_step(step);
  world_->apply(command);
  if (auto failure = expected_.apply(command, *world_, observe, expected)) {
    return divergence_of(expected_, *failure, step);
  }
  if (options_.counts_goals) goal_counts_->count(command, before, expected, *world_);
  enter(RunPhase::kActual);
  if (window_ > 1) {
    if (auto failure = actual_.submit(command, observe))
      return divergence_of(actual_, *failure, step);
    ++num_commands_;
  } else {
    // If both sides are compared, their previous observations are equal.
    if (!options_.oracles.lockstep) newest_actual_ = 1 - newest_actual_;
    Observation& actual = actual_observations_[newest_actual_];
    std::optional<ImplementationFailure> failure;
    if (actual_.window() == 1) {
      failure = actual_.apply(command, *world_, observe, actual);
    } else {
      actual = expected;  // as in collect_oldest
      failure = actual_.submit(command, observe);
      if (!failure) failure = actual_.collect(actual);
    }
    if (failure) return divergence_of(actual_, *failure, step);
    ++num_commands_;
    ++num_collected_;
  }
  newest_ = slot;
  enter(RunPhase::kJudges);
  const bool answers_at_once = window_ == 1;
  const bool is_only_actual = judges_actual_alone();
  if (expectation && options_.oracles.expectation) {
    const auto resolve = [this](std::string_view symbol) { return world_->resolve(symbol); };
    if (auto missed = matches(*expectation, expected, step, resolve)) return missed;
    if (is_only_actual) {
      if (auto missed = matches(*expectation, last_actual(), step, resolve)) return missed;
    }
  }
  if (window_ > 1) {
    if (num_commands_ - num_collected_ >= window_) {
      if (auto divergence = collect_oldest()) return divergence;
    }
  } else if (auto divergence = compare(expected, step)) {
    return divergence;
  }
  if (!rules_) return std::nullopt;
  const Observation* const shown_before = is_only_actual ? &actual_before : &before;
  auto broken = rules_->verdict(command, step > 0 ? shown_before : nullptr,
                                answers_at_once ? last_actual() : expected, *world_);
  if (broken) broken->step = step;
  return broken;
}

std::optional<Divergence> Lockstep::stop_if_requested(std::size_t step) const {
  if (!options_.position || !options_.position->must_stop) return std::nullopt;
  return Divergence{.step = step, .oracle = "stopped"};
}

std::optional<Divergence> Lockstep::finish() {
  while (num_collected_ < num_commands_) {
    if (auto divergence = collect_oldest()) return divergence;
  }
  return std::nullopt;
}

std::optional<Divergence> Lockstep::compare_tables() {
  if (!expected_base_ || !actual_base_ || num_commands_ == 0) return std::nullopt;
  if (expected_.num_entries() != expected_base_) return std::nullopt;
  ++*num_compared_tables_;
  const std::optional<std::size_t> num_entries = actual_.num_entries();
  if (num_entries == actual_base_) return std::nullopt;
  return Divergence{.step = num_commands_ - 1,
                    .oracle = "leaks",
                    .field = "entries of internal tables",
                    .expected = std::to_string(*actual_base_),
                    .actual = num_entries ? std::to_string(*num_entries) : "none",
                    .message =
                        "if the tables of the reference are as at the start, those of the other "
                        "side must be too"};
}

std::optional<Divergence> Lockstep::collect_oldest() {
  const std::size_t step = num_collected_;
  if (auto stopped = stop_if_requested(step)) return stopped;
  const Observation& expected = expected_observations_[oldest_];
  // Members that the other side does not report keep the expected value: they are not checked.
  Observation& actual = actual_observations_[newest_actual_];
  actual = expected;
  if (auto failure = actual_.collect(actual)) return divergence_of(actual_, *failure, step);
  ++num_collected_;
  oldest_ = after(oldest_);
  return compare(expected, step);
}

std::optional<Divergence> Lockstep::compare(const Observation& expected, std::size_t step) const {
  if (!options_.oracles.lockstep || expected == last_actual()) return std::nullopt;
  if (auto failure = actual_.contradicted(last_actual())) {
    return divergence_of(actual_, *failure, step);
  }
  return first_difference(expected.declared(), last_actual().declared(), step,
                          [this](std::string_view bytes) { return world_->symbol_of(bytes); });
}

Divergence divergence_of(const Implementation& implementation, const ImplementationFailure& failure,
                         std::size_t step) {
  using Kind = ImplementationFailure::Kind;
  if (failure.kind != Kind::kFailed) {
    return {.step = step,
            .oracle = failure.kind == Kind::kUnsupported ? "unsupported" : "unavailable",
            .message = failure.message};
  }
  return {.step = step,
          .oracle = "implementation",
          .expected = "an answer",
          .actual = "none",
          .message = implementation.name() + ": " + failure.message};
}

std::optional<Divergence> run_scenario(Lockstep& lockstep, const Scenario& scenario) {
  return run_scenario(lockstep, scenario, prepared(*scenario.target, scenario.config));
}

std::optional<Divergence> run_scenario(Lockstep& lockstep, const Scenario& scenario,
                                       const Setup& setup) {
  static const std::optional<std::vector<Field>> kNone;
  if (auto divergence = lockstep.start(setup)) return divergence;
  std::vector<ObservationDigest> digests;  // of the expected side, and of one that is not compared
  if (scenario.digests && lockstep.oracles().expectation) {
    digests.assign(lockstep.judges_actual_alone() ? 2 : 1, ObservationDigest(*scenario.digests));
  }
  for (std::size_t index = 0; index < scenario.steps.size(); ++index) {
    const Step& step = scenario.steps[index];
    const bool is_last = index + 1 == scenario.steps.size();
    const bool want_state = is_last || step.expectation.has_value();
    const auto& expectation = scenario.digests ? kNone : step.expectation;
    if (auto divergence = lockstep.step(step.command, expectation, want_state)) return divergence;
    for (std::size_t side = 0; side < digests.size(); ++side) {
      digests[side].add(side == 0 ? lockstep.last_expected() : lockstep.last_actual());
      if (auto missed = digests[side].check(scenario, index, lockstep.world())) return missed;
    }
  }
  if (auto divergence = lockstep.finish()) return divergence;
  return lockstep.compare_tables();
}

}  // namespace kvfence
