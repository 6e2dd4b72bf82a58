#pragma once

/// The part of recorded traffic that a GPU tier leaves to the CPU tier below it.
///
/// The GPU tier is a block pool under the traffic of scenarios/replay/traffic_replay.h. It does not
/// depend on the CPU tier: it caches a loaded block like a computed one. So the CPU tier is asked
/// for the same blocks whatever it keeps, and capacities and policies can be compared with each
/// other and with an optimum.

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "contract/core/implementation.h"
#include "contract/core/line.h"
#include "scenarios/replay/mooncake_trace.h"
#include "scenarios/replay/traffic_replay.h"

namespace kvfence {

/// A request as the CPU tier gets it.
struct OffloadRequest {
  std::span<const std::uint32_t> keys;  ///< its blocks, first to last: hash ids, none twice
  std::uint32_t num_gpu_hits = 0;       ///< leading ones that the GPU tier has; the rest is asked
};

struct OffloadRequests {
  std::vector<OffloadRequest> requests;  ///< in order of arrival; views of the trace
  std::size_t too_large = 0;             ///< left out: more blocks than the GPU tier has
  std::uint64_t num_blocks = 0;          ///< of the requests
  std::uint64_t num_gpu_hits = 0;

  /// Blocks that the CPU tier is asked for.
  std::uint64_t num_asked() const { return num_blocks - num_gpu_hits; }
};

/// An id that one request has twice: it cannot name a prefix.
std::optional<InputError> find_repeated_id(std::span<const MooncakeRequest> requests,
                                           std::string_view file);

/// Sends the traffic through the GPU tier; uses only the options of the pool and the number of
/// requests. Leaves requests without blocks out.
///
/// Requires: valid options; no repeated id; a pool that grants what well-formed traffic asks for;
/// the trace outlives the result.
OffloadRequests below_gpu_tier(std::span<const MooncakeRequest> requests,
                               TrafficReplayOptions options, Implementation& pool,
                               const ReplayProgress& progress = {});

}  // namespace kvfence
