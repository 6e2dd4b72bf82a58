#pragma once

/// The most that any CPU tier can find in given traffic: Belady's optimum with bypass.
///
/// The granularity is the block. Between two requests the optimum holds at most `capacity` blocks,
/// chosen with knowledge of all that comes. It may take in a block only from a request that has it,
/// GPU hits included (their content is on the GPU then), and need not take it (bypass). It finds a
/// block that a request asks for if it holds it when the request arrives, wherever in the request
/// the block stands.
///
/// That bounds every policy under the same traffic, whatever it stores, refuses or filters. It is
/// not attainable in general: no policy knows the future, and a lookup ends at the first missing
/// block, so that a held block after a gap is not found. It shows the scale, and is not a goal.

#include <cstdint>
#include <span>

#include "scenarios/replay/offload_requests.h"

namespace kvfence {

/// The number of blocks asked for that the optimum finds. Cost: O(n log n) in the blocks of all
/// requests.
std::uint64_t optimal_hits(std::span<const OffloadRequest> requests, std::uint64_t capacity);

}  // namespace kvfence
