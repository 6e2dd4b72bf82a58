#pragma once

/// What people see of a replay through an engine: a table, CSV and JSON. Renders results, decides
/// nothing. Texts are ASCII and, but for the JSON, end with a newline.

#include <cstddef>
#include <string>

#include "scenarios/replay/engine_replay.h"

namespace kvfence {

/// The figures as a table. block_bytes: what a block takes in all layers; 0 where a block holds
/// symbols and no bytes.
std::string to_summary(const EngineReplayResult& result, std::size_t block_bytes);

/// The figures as one JSON object on one line.
std::string to_json(const EngineReplayResult& result, std::size_t block_bytes);

/// A line per request, in the order of the trace:
/// request,prompt_tokens,output_tokens,gpu_hit_tokens,cpu_hit_tokens,preemptions
std::string to_csv(const EngineReplayResult& result);

}  // namespace kvfence
