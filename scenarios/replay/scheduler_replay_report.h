#pragma once

/// What people see of a replay through a scheduler: a summary, a text chart, CSV, JSON and a
/// self-contained SVG. Renders results, decides nothing. Texts are ASCII and, but for the JSON, end
/// with a newline.

#include <cstddef>
#include <span>
#include <string>

#include "scenarios/replay/scheduler_replay.h"

namespace kvfence {

/// The figures as a table. Times are simulated ones but for the line that says wall time.
std::string to_summary(const SchedulerReplayResult& result);

/// The figures as one JSON object on one line; times in seconds.
std::string to_json(const SchedulerReplayResult& result);

/// The time series, one line an interval:
/// time_s,running,waiting,empty,cached,referenced,steps,tokens,preemptions,admitted_tokens,
/// found_tokens,hit_rate,queries,hits
/// with the time of its end, numbers at the end, and sums and the hit rate of the interval.
std::string to_csv(std::span<const SchedulerSample> samples);

/// The time series as stacked bars, time downwards: `#` referenced, `=` cached, `.` empty. A row
/// sums up preemptions and admissions since the row before.
std::string to_text_chart(std::span<const SchedulerSample> samples, std::size_t num_rows = 16,
                          std::size_t bar_width = 40);

/// Three plots over simulated time in minutes: the three numbers as stacked areas, running and
/// waiting requests as lines, preemptions an interval as an area.
std::string to_svg(std::span<const SchedulerSample> samples);

}  // namespace kvfence
