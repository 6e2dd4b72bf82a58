#include "scenarios/story/story_of_commands.h"

#include <memory>

#include "contract/core/line.h"
#include "scenarios/story/observed_member.h"

namespace kvfence {

std::string answer_of(
    const Observation& observation,
    const std::function<bool(std::string_view name, std::string_view text)>& is_shown) {
  std::string answer;
  for (const Field& field : answers_of(observation)) {
    const std::string text = print(field.value);
    if (!is_shown(field.key, text)) continue;
    answer += (answer.empty() ? "" : " ") + field.key + "=" + text;
  }
  return answer;
}

void record_commands(
    const Scenario& scenario, const Setup& setup, Implementation& implementation,
    DeviceStory& story,
    const std::function<std::string(const Command&, const Observation&)>& take_in) {
  implementation.reset(setup);
  const std::unique_ptr<World> world = setup.target().make_world(setup);
  for (const Step& step : scenario.steps) {
    story.commands.push_back({.text = print(to_line(step.command)), .begin = story.end++});
    world->apply(step.command);
    Observation observation;
    implementation.apply(step.command, *world, Observe::kState, observation);
    story.commands.back().answer = take_in(step.command, observation);
    story.commands.back().end = story.end;
  }
}

}  // namespace kvfence
