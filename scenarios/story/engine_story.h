#pragma once

/// What the devices of an engine were asked and did for a scenario of the target `engine` that has
/// some, all ranks, and which tokens came out wrong.

#include <string>

#include "contract/core/scenario.h"
#include "scenarios/story/device_story.h"

namespace kvfence {

/// Runs the scenario on the virtual device. With tokens_only or device=symbols too races are looked
/// for and pages shown, which changes no answer. A page's content names the tokens whose KV it
/// holds: "A:0..1 B:2". Requires: a valid configuration with a device; `planted_bug` empty, or one
/// that the target has.
/// Cost: linear in commands and accesses, each times the pages; quadratic in a request's tokens.
DeviceStory tell_engine(const Scenario& scenario, const std::string& planted_bug);

}  // namespace kvfence
