#include "scenarios/replay/replay_reports.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <vector>

#include "properties/report/number_text.h"
#include "scenarios/replay/plot.h"

namespace kvfence {
namespace {

// Adds overloads.
using kvfence::row;

using Json = nlohmann::ordered_json;

double seconds(double microseconds) { return microseconds / 1e6; }

double seconds(std::uint64_t microseconds) { return seconds(static_cast<double>(microseconds)); }

double per(double part, double whole) { return whole > 0 ? part / whole : 0; }

double minutes(const SchedulerSample& sample) {
  return static_cast<double>(sample.end_ms) / 60'000;
}

std::string row(const char* name, const Distribution& times) {
  return row(name, formatted("%10.3f %10.3f %10.3f %10.3f", seconds(times.mean), seconds(times.p50),
                             seconds(times.p99), seconds(times.max)));
}

std::string row(const char* name, const NumberRange& range) {
  return row(name, formatted("%10u %10.1f %10u", range.min, range.mean, range.max));
}

Json to_object(const Distribution& times) {
  return {{"mean", seconds(times.mean)},
          {"p50", seconds(times.p50)},
          {"p99", seconds(times.p99)},
          {"max", seconds(times.max)}};
}

Json to_object(const NumberRange& range) {
  return {{"min", range.min}, {"mean", range.mean}, {"max", range.max}};
}

}  // namespace

std::string requests_text(const EngineReplayCounts& counts) {
  std::string text =
      with_thousands(counts.requests) + ", " + with_thousands(counts.completed) + " completed";
  const auto add = [&](std::size_t number, const char* what) {
    if (number > 0) text += ", " + with_thousands(number) + " " + what;
  };
  add(counts.refused, "refused");
  add(counts.never_fit, "too large for the pool");
  add(counts.cut_short, "cut at the model's length");
  return text;
}

std::string to_summary(const SchedulerReplayResult& result) {
  const double end_s = seconds(result.end_us);
  const PrefixCacheStats& cache = result.prefix_cache;
  std::string out = row("requests", requests_text(result));
  out += row("simulated time", formatted("%.1f s, steps ran for %s of it", end_s,
                                         percent(per(seconds(result.busy_us), end_s)).c_str()));
  out += row("steps", with_thousands(result.steps) + ", and " + with_thousands(result.idle_steps) +
                          " without tokens");
  out += row("scheduled",
             with_thousands(result.tokens) +
                 formatted(" tokens, %.1f per step", per(static_cast<double>(result.tokens),
                                                         static_cast<double>(result.steps))));
  out += row("prompts", with_thousands(result.prompt_tokens) + " tokens");
  out += row("outputs", with_thousands(result.output_tokens) +
                            formatted(" tokens, %.1f per second",
                                      per(static_cast<double>(result.output_tokens), end_s)));
  out += row("prefix cache", percent(result.hit_rate()) + ": " +
                                 with_thousands(result.found_tokens) + " of " +
                                 with_thousands(result.admitted_tokens) + " prompt tokens found");
  out += row("  by lookups", percent(result.lookup_hit_rate()) + ": " + with_thousands(cache.hits) +
                                 " of " + with_thousands(cache.queries) +
                                 " tokens, each attempt to admit a request counted");
  out += row("preemptions", with_thousands(result.preemptions));
  if (cache.preempted_requests > 0) {
    out += row("  and resumed", with_thousands(cache.preempted_hits) + " of " +
                                    with_thousands(cache.preempted_queries) + " tokens found");
  }
  if (result.draft_tokens > 0) {
    out += row("drafts", with_thousands(result.accepted_draft_tokens) + " of " +
                             with_thousands(result.draft_tokens) + " accepted");
  }
  out += formatted("\n  %-18s %10s %10s %10s %10s\n", "seconds", "mean", "p50", "p99", "max");
  out += row("queueing", result.queueing);
  out += row("first token", result.first_token);
  out += row("each further", result.time_per_output);
  out += row("completion", result.completion);
  out += formatted("\n  %-18s %10s %10s %10s\n", "during steps", "min", "mean", "max");
  out += row("running", result.running);
  out += row("waiting", result.waiting);
  out += row("empty", result.empty);
  out += row("cached", result.cached);
  out += row("referenced", result.referenced);
  const double planned = static_cast<double>(result.steps + result.idle_steps);
  out +=
      "\n" +
      row("wall time",
          formatted("%.2f s in schedule and update: %.1f us per step, ", result.scheduler_seconds,
                    per(result.scheduler_seconds * 1e6, planned)) +
              with_thousands(static_cast<std::uint64_t>(per(planned, result.scheduler_seconds))) +
              " steps per second");
  return out;
}

std::string to_json(const SchedulerReplayResult& result) {
  const PrefixCacheStats& cache = result.prefix_cache;
  const double planned = static_cast<double>(result.steps + result.idle_steps);
  const Json object = {
      {"requests", result.requests},
      {"completed", result.completed},
      {"refused", result.refused},
      {"never_fit", result.never_fit},
      {"cut_short", result.cut_short},
      {"simulated_seconds", seconds(result.end_us)},
      {"busy_seconds", seconds(result.busy_us)},
      {"steps", result.steps},
      {"idle_steps", result.idle_steps},
      {"tokens", result.tokens},
      {"prompt_tokens", result.prompt_tokens},
      {"output_tokens", result.output_tokens},
      {"admitted_tokens", result.admitted_tokens},
      {"found_tokens", result.found_tokens},
      {"hit_rate", result.hit_rate()},
      {"queries", cache.queries},
      {"hits", cache.hits},
      {"lookup_hit_rate", result.lookup_hit_rate()},
      {"preemptions", result.preemptions},
      {"preempted_queries", cache.preempted_queries},
      {"preempted_hits", cache.preempted_hits},
      {"draft_tokens", result.draft_tokens},
      {"accepted_draft_tokens", result.accepted_draft_tokens},
      {"queueing_seconds", to_object(result.queueing)},
      {"first_token_seconds", to_object(result.first_token)},
      {"each_further_token_seconds", to_object(result.time_per_output)},
      {"completion_seconds", to_object(result.completion)},
      {"running", to_object(result.running)},
      {"waiting", to_object(result.waiting)},
      {"empty", to_object(result.empty)},
      {"cached", to_object(result.cached)},
      {"referenced", to_object(result.referenced)},
      {"scheduler_seconds", result.scheduler_seconds},
      {"steps_per_second", per(planned, result.scheduler_seconds)},
  };
  return object.dump();
}

std::string to_csv(std::span<const SchedulerSample> samples) {
  std::string out =
      "time_s,running,waiting,empty,cached,referenced,steps,tokens,preemptions,admitted_tokens,"
      "found_tokens,hit_rate,queries,hits\n";
  for (const SchedulerSample& sample : samples) {
    out += formatted("%.3f,%u,%u,%u,%u,%u,%u,%llu,%u,%llu,%llu,%.6f,%llu,%llu\n",
                     static_cast<double>(sample.end_ms) / 1000, sample.running, sample.waiting,
                     sample.counts.empty, sample.counts.cached, sample.counts.referenced,
                     sample.steps, wide(sample.tokens), sample.preemptions,
                     wide(sample.admitted_tokens), wide(sample.found_tokens), sample.hit_rate(),
                     wide(sample.queries), wide(sample.hits));
  }
  return out;
}

std::string to_text_chart(std::span<const SchedulerSample> samples, std::size_t num_rows,
                          std::size_t bar_width) {
  std::string out = formatted("%8s %8s %8s  %-*s %11s %9s\n", "minute", "running", "waiting",
                              static_cast<int>(bar_width + 2), "# referenced  = cached  . empty",
                              "preemptions", "hit rate");
  num_rows = std::min(num_rows, samples.size());
  std::size_t next = 0;
  for (std::size_t number = 1; number <= num_rows; ++number) {
    SchedulerSample sums;
    for (const std::size_t end = number * samples.size() / num_rows; next < end; ++next) {
      sums.preemptions += samples[next].preemptions;
      sums.admitted_tokens += samples[next].admitted_tokens;
      sums.found_tokens += samples[next].found_tokens;
    }
    const SchedulerSample& sample = samples[next - 1];
    out += formatted("%8.1f %8u %8u  ", minutes(sample), sample.running, sample.waiting);
    out += blocks_bar(sample.counts, bar_width);
    out += formatted(" %11u %9s\n", sums.preemptions, percent(sums.hit_rate()).c_str());
  }
  return out;
}

std::string to_svg(std::span<const SchedulerSample> samples) {
  constexpr Plot::Area kBlocks{80, 830, 50, 300};
  constexpr Plot::Area kRequests{80, 830, 370, 510};
  constexpr Plot::Area kPreemptions{80, 830, 580, 660};
  SvgWriter svg = titled_svg(720, "Blocks and requests of the scheduler");

  const Plot::Range time{0, samples.empty() ? 1 : minutes(samples.back())};
  const auto series_of = [&](auto&& value_of) {
    std::vector<SvgPoint> values;
    for (const SchedulerSample& sample : samples) {
      values.push_back({minutes(sample), static_cast<double>(value_of(sample))});
    }
    return values;
  };
  const auto max_of = [](const std::vector<SvgPoint>& values) {
    double max = 1;
    for (const SvgPoint& value : values) max = std::max(max, value.y);
    return max;
  };

  std::vector<double> times;
  std::vector<BlockCounts> counts;
  double num_blocks = 1;
  for (const SchedulerSample& sample : samples) {
    times.push_back(minutes(sample));
    counts.push_back(sample.counts);
    num_blocks = sample.counts.referenced + sample.counts.cached + sample.counts.empty;
  }
  Plot blocks(svg, kBlocks, time, num_blocks);
  blocks.stack_blocks(times, counts);
  blocks.y_ticks();
  blocks.frame("", "blocks");

  const auto running = series_of([](const SchedulerSample& sample) { return sample.running; });
  const auto waiting = series_of([](const SchedulerSample& sample) { return sample.waiting; });
  Plot requests(svg, kRequests, time, std::max(max_of(running), max_of(waiting)));
  requests.y_ticks();
  requests.polyline(running, kReferencedColor);
  requests.polyline(waiting, kAccentColor);
  requests.frame("", "requests");
  requests.legend(0, kReferencedColor, "running");
  requests.legend(110, kAccentColor, "waiting");

  const auto preempted =
      series_of([](const SchedulerSample& sample) { return sample.preemptions; });
  Plot preemptions(svg, kPreemptions, time, max_of(preempted));
  preemptions.y_ticks();
  preemptions.fill_below(preempted, kAccentColor);
  preemptions.x_ticks();
  preemptions.frame("simulated time (minutes)", "an interval");
  preemptions.legend(0, kAccentColor, "preemptions");
  return svg.finish();
}

}  // namespace kvfence
