#pragma once

/// Shared by the stories of all targets with devices: their commands and answers.

#include <functional>
#include <string>
#include <string_view>

#include "contract/core/implementation.h"
#include "contract/core/scenario.h"
#include "scenarios/story/device_story.h"

namespace kvfence {

/// "advanced=true": the fields of the answer that is_shown keeps.
std::string answer_of(
    const Observation& observation,
    const std::function<bool(std::string_view name, std::string_view text)>& is_shown);

/// Runs the scenario's commands to the end, with the configuration of `setup`. take_in records what
/// came of each, and returns its answer.
void record_commands(const Scenario& scenario, const Setup& setup, Implementation& implementation,
                     DeviceStory& story,
                     const std::function<std::string(const Command&, const Observation&)>& take_in);

}  // namespace kvfence
