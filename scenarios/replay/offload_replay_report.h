#pragma once

/// What people see of a replay over two tiers: a table, CSV, JSON and a self-contained SVG. Renders
/// results, decides nothing. Texts end with a newline and are ASCII.

#include <string>

#include "scenarios/replay/offload_replay.h"

namespace kvfence {

/// A row a capacity: the hit rates of each policy and of the optimum. CPU tier: of what it is asked
/// for; both tiers: of all blocks, with the GPU hits. The last row is the optimum without a bound.
std::string to_table(const OffloadReplayResult& result);

/// A line a capacity and policy, the optimum included, which stores nothing that could be counted:
/// cpu_blocks,policy,asked,found,hit_rate,hit_rate_of_both_tiers,stored,evicted,refused
std::string to_csv(const OffloadReplayResult& result);

/// One JSON object on one line, without a newline.
std::string to_json(const OffloadReplayResult& result);

/// The hit rate of the CPU tier over its capacity (logarithmic): a line per policy, one for the
/// optimum, and what no capacity can exceed.
std::string to_svg(const OffloadReplayResult& result);

}  // namespace kvfence
