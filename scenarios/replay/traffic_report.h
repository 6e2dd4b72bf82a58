#pragma once

/// What people see of a traffic replay: tables, a text chart, CSV and self-contained SVG. Renders
/// results, decides nothing. Texts end with a newline and are ASCII.

#include <cstddef>
#include <span>
#include <string>

#include "scenarios/replay/traffic_replay.h"

namespace kvfence {

/// The time series, one line a sample:
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

}  // namespace kvfence
