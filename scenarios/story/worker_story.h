#pragma once

/// What a copy worker's device was asked and did for a scenario of the target `worker`.

#include <string>

#include "contract/core/scenario.h"
#include "scenarios/story/device_story.h"

namespace kvfence {

/// Runs the scenario; of several ranks the story is the first one's. Requires: a valid
/// configuration; `planted_bug` empty, or one that the target has.
/// Cost: linear in commands and accesses, each times the pages.
DeviceStory tell_worker(const Scenario& scenario, const std::string& planted_bug);

}  // namespace kvfence
