#pragma once

/// What a scheduler answered, in few lines: the requests that ran with how many tokens, that came,
/// went and load.

#include <string>
#include <vector>

#include "contract/core/observation.h"
#include "contract/core/target.h"

namespace kvfence {

/// Whether observations of the target include a scheduler's: with two engines those of the first.
bool shows_a_scheduler(const Target& target);

/// Lines of an answer, each about one thing; none where nothing happened.
///
///     -> ran A 4, B 1+2 drafts, C 3 of a longer prompt
///        new A after 2 tokens; resumed B; preempted D; finished E
///        loads F 8 async
///     -> outputs A [5 7], B [2] finished_stopped
std::vector<std::string> story_of(const Observation& observation);

}  // namespace kvfence
