#pragma once

/// The reports on replays: tables, text charts, CSV, JSON and self-contained SVG. Texts are ASCII
/// and end with a newline, except the JSON, which is one object on one line.

#include <cstddef>
#include <span>
#include <string>

#include "scenarios/replay/engine_replay.h"
#include "scenarios/replay/offload_replay.h"
#include "scenarios/replay/scheduler_replay.h"
#include "scenarios/replay/traffic_replay.h"

namespace kvfence {

// ---- Through a pool ----

/// The time series, one line per sample:
/// requests,timestamp_ms,empty,cached,referenced,blocks,hits,evictions,hit_rate
std::string to_csv(std::span<const TrafficSample> samples);

/// The time series as stacked bars of equal length, time downwards, with the numbers beside them:
/// `#` referenced, `=` cached, `.` empty.
std::string to_text_chart(std::span<const TrafficSample> samples, std::size_t num_rows = 16,
                          std::size_t bar_width = 40);

/// The time series as stacked areas (referenced, cached, empty; left axis: blocks) under the line
/// of the hit rate so far (right axis). The horizontal axis is the trace's own time in minutes, or
/// the number of requests where the trace has no times.
std::string to_svg(std::span<const TrafficSample> samples);

/// The curve as a table: pool size, hit rate with a bar, hits, evictions, requests too large.
std::string to_table(std::span<const HitRatePoint> curve, const MooncakeTotals& totals);

/// gpu_blocks,hit_rate,hits,blocks,evictions,too_large
std::string to_csv(std::span<const HitRatePoint> curve);

/// The curve over the pool size (logarithmic), with the line that no pool can exceed.
std::string to_svg(std::span<const HitRatePoint> curve, const MooncakeTotals& totals);

// ---- Through a scheduler ----

/// "12, 10 completed, 2 refused": the requests of any engine.
std::string requests_text(const EngineReplayCounts& counts);

/// The figures as a table. Times are simulated, except the line "wall time".
std::string to_summary(const SchedulerReplayResult& result);

/// The figures; times in seconds.
std::string to_json(const SchedulerReplayResult& result);

/// The time series, one line per interval:
/// time_s,running,waiting,empty,cached,referenced,steps,tokens,preemptions,admitted_tokens,
/// found_tokens,hit_rate,queries,hits
/// with the time of its end, numbers at the end, and sums and the hit rate of the interval.
std::string to_csv(std::span<const SchedulerSample> samples);

/// The time series as stacked bars, time downwards: `#` referenced, `=` cached, `.` empty. A row
/// sums up preemptions and admissions since the row before.
std::string to_text_chart(std::span<const SchedulerSample> samples, std::size_t num_rows = 16,
                          std::size_t bar_width = 40);

/// Three plots over simulated time in minutes: the three numbers as stacked areas, running and
/// waiting requests as lines, preemptions per interval as an area.
std::string to_svg(std::span<const SchedulerSample> samples);

// ---- Over two tiers ----

/// A row per capacity: the hit rates of each policy and of the optimum. CPU tier: of the blocks
/// asked; both tiers: of all blocks, with the GPU hits. The last row: the optimum without a bound.
std::string to_table(const OffloadReplayResult& result);

/// A line per capacity and policy, the optimum included, whose stores are not counted:
/// cpu_blocks,policy,asked,found,hit_rate,hit_rate_of_both_tiers,stored,evicted,refused
std::string to_csv(const OffloadReplayResult& result);

std::string to_json(const OffloadReplayResult& result);

/// The hit rate of the CPU tier over its capacity (logarithmic): a line per policy, one for the
/// optimum, and what no capacity can exceed.
std::string to_svg(const OffloadReplayResult& result);

// ---- Through an engine ----

/// The figures as a table. block_bytes: the bytes of a block in all layers; 0 if a block holds
/// symbols instead of bytes.
std::string to_summary(const EngineReplayResult& result, std::size_t block_bytes);

std::string to_json(const EngineReplayResult& result, std::size_t block_bytes);

/// A line per request, in the order of the trace:
/// request,prompt_tokens,output_tokens,gpu_hit_tokens,cpu_hit_tokens,preemptions
std::string to_csv(const EngineReplayResult& result);

}  // namespace kvfence
