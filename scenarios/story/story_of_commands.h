#pragma once

/// What the stories of all targets with devices have in common: their commands and answers.

#include <optional>
#include <string>
#include <utility>

#include "contract/core/declared_object.h"
#include "contract/core/implementation.h"
#include "contract/core/line.h"
#include "contract/core/scenario.h"
#include "properties/core/divergence.h"
#include "properties/core/lockstep.h"
#include "scenarios/story/device_story.h"
#include "scenarios/targets/implementations.h"

namespace kvfence {

/// "advanced=true": what was answered and is told. is_told(name, text) -> bool
template <class Observation, class IsTold>
std::string answer_of(const Observation& observation, IsTold is_told) {
  std::string answer;
  const DeclaredObject members = object_of(observation);
  for (std::size_t index = 0; index < members.size(); ++index) {
    const MemberRef member = members[index];
    if (member.domain() != Domain::kResult || !member.is_present()) continue;
    const Value value = member.value();
    if (value.template get_if<None>()) continue;
    const std::string text = print(value);
    if (!is_told(member.declaration().name, text)) continue;
    answer += (answer.empty() ? "" : " ") + std::string(member.declaration().name) + "=" + text;
  }
  return answer;
}

/// Runs `config` and the scenario's commands to the end. take_in(command, observation) tells what
/// came of each, and returns its answer.
template <class Target, class TakeIn>
void tell_commands(const Scenario<Target>& scenario, const typename Target::Config& config,
                   Implementation<Target>& told, DeviceStory& story, TakeIn take_in) {
  told.reset(config);
  typename Target::World world = Target::make_world(config);
  for (const Step<Target>& step : scenario.steps) {
    story.commands.push_back({.text = print(to_line(step.command)), .begin = story.end++});
    world.apply(step.command);
    told.submit(step.command, world, Observe::kState);
    typename Target::Observation observation;
    told.collect(observation);
    story.commands.back().answer = take_in(step.command, observation);
    story.commands.back().end = story.end;
  }
}

/// The first difference of the side under test from the reference.
template <class Target>
std::optional<Divergence> difference_of(const Scenario<Target>& scenario,
                                        const std::string& planted_bug) {
  const auto expected = Implementations<Target>::make_reference();
  const auto actual = planted_bug.empty() ? Implementations<Target>::make_optimized()
                                          : Implementations<Target>::make_planted(planted_bug);
  Lockstep<Target> lockstep(*expected, *actual);
  return run_scenario(lockstep, scenario);
}

}  // namespace kvfence
