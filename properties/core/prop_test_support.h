#pragma once

/// What the property suites share: implementations as parameters, and one implementation after a
/// random history.

#include <algorithm>
#include <cstdint>
#include <functional>
#include <memory>
#include <ostream>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "contract/core/implementation.h"
#include "contract/core/target.h"
#include "properties/core/checks.h"
#include "properties/core/rapid_property_test_support.h"
#include "properties/draws/choices.h"
#include "scenarios/targets/targets.h"

namespace kvfence {

/// The name of a part (scenarios/targets/targets.h) in letters that gtest takes.
inline std::string test_name(std::string_view part) {
  std::string name(part);
  std::replace(name.begin(), name.end(), '.', '_');
  return name;
}

/// One implementation of a target, or of one of its parts, as the parameter of a suite.
struct Side {
  const TargetSides* sides;
  const Checks* checked;  ///< the target's, or those of the part
  std::function<std::unique_ptr<Implementation>()> make;
  std::string name;  ///< of part and implementation, in letters that gtest takes

  const Checks& checks() const { return *checked; }
  const Target& target() const { return sides->target(); }

  friend std::ostream& operator<<(std::ostream& out, const Side& side) { return out << side.name; }
};

inline Side reference_side(const TargetSides& sides) {
  return {&sides, sides.checks, sides.make_reference,
          std::string(sides.target().name) + "_reference"};
}
inline Side reference_side(const CheckedPart& part) {
  return {part.sides, part.checks, part.sides->make_reference, test_name(part.name) + "_reference"};
}
inline Side optimized_side(const TargetSides& sides) {
  return {&sides, sides.checks, sides.make_optimized,
          std::string(sides.target().name) + "_optimized"};
}
inline Side optimized_side(const CheckedPart& part) {
  return {part.sides, part.checks, part.sides->make_optimized, test_name(part.name) + "_optimized"};
}
inline std::vector<Side> both_sides(const TargetSides& sides) {
  return {reference_side(sides), optimized_side(sides)};
}

inline std::vector<Side> both_sides_of_every_part() {
  std::vector<Side> all;
  for (const CheckedPart& part : all_parts()) {
    all.push_back(reference_side(part));
    all.push_back(optimized_side(part));
  }
  return all;
}

/// Suites are instantiated over sides, over all_targets(), or over every_part(); these functions
/// name the tests.
inline std::string name_of_side(const ::testing::TestParamInfo<Side>& info) {
  return info.param.name;
}
inline std::string name_of_target(const ::testing::TestParamInfo<const TargetSides*>& info) {
  return std::string(info.param->target().name);
}
inline std::string name_of_part(const ::testing::TestParamInfo<const CheckedPart*>& info) {
  return test_name(info.param->name);
}
inline std::vector<const CheckedPart*> every_part() {
  std::vector<const CheckedPart*> all;
  for (const CheckedPart& part : all_parts()) all.push_back(&part);
  return all;
}

/// A command that is never refused and does not change a fresh instance: it takes the events, sets
/// the pause state, or, if the target has neither, queries something.
inline Command harmless_command(const Target& target) {
  const CommandType* harmless = &target.commands.front();
  for (const CommandType& type : target.commands) {
    const std::string_view verb = type.declared->verb;
    if (verb == "take_events" || verb == "set_pause_state") harmless = &type;
  }
  Command command;
  harmless->emplace(command);
  return command;
}

/// One implementation, its world, and its last observation, always with the whole state.
/// For use inside a property.
class Session {
 public:
  Session(std::unique_ptr<Implementation> implementation, const Setup& setup)
      : implementation_(std::move(implementation)), world_(setup.target().make_world(setup)) {
    RC_ASSERT_FALSE(implementation_->reset(setup).has_value());
    run(harmless_command(setup.target()));
  }

  const Observation& run(const Command& command) {
    world_->apply(command);
    RC_ASSERT_FALSE(implementation_->apply(command, *world_, Observe::kState, now_).has_value());
    return now_;
  }

  /// The names that the command declares are known from now on; the implementation does not see it.
  void only_declare(const Command& command) { world_->apply(command); }

  const Observation& now() const { return now_; }
  const World& world() const { return *world_; }

 private:
  std::unique_ptr<Implementation> implementation_;
  std::unique_ptr<World> world_;
  Observation now_;
};

/// A session after a random history, and the history.
struct Wanderer {
  Setup setup;
  std::unique_ptr<Session> session;
  std::vector<Command> history;
  std::vector<Observation> shown;  ///< after each command of the history
};

/// has_more(wanderer): whether another command follows.
template <class HasMore>
Wanderer wander(const Side& side, Choices& choices, HasMore has_more) {
  Wanderer wanderer;
  wanderer.setup = prepared(side.target(), side.checks().draw_config(choices));
  wanderer.session = std::make_unique<Session>(side.make(), wanderer.setup);
  Session& session = *wanderer.session;
  const std::unique_ptr<Generator> generator =
      side.checks().make_generator(wanderer.setup, choices);
  while (has_more(wanderer)) {
    wanderer.history.push_back(generator->next_command(choices, session.now(), session.world()));
    wanderer.shown.push_back(session.run(wanderer.history.back()));
  }
  return wanderer;
}

/// An episode that shrinks.
inline Wanderer wander(const Side& side) {
  const std::vector<std::uint8_t> bytes = draw_episode_bytes(1000);
  Choices choices = Choices::from_bytes(bytes);
  return wander(side, choices, [&](const Wanderer&) { return !choices.exhausted(); });
}

}  // namespace kvfence
