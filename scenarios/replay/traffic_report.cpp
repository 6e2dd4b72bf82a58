#include "scenarios/replay/replay_reports.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "scenarios/replay/plot.h"
#include "scenarios/replay/svg_writer.h"

namespace kvfence {
namespace {

constexpr double kHeight = 420;
constexpr Plot::Area kArea{80, 790, 50, 360};

/// Whether the samples have different times in the trace.
bool has_times(std::span<const TrafficSample> samples) {
  return !samples.empty() && samples.front().timestamp_ms < samples.back().timestamp_ms;
}

double minutes(const TrafficSample& sample) {
  return static_cast<double>(sample.timestamp_ms) / 60'000;
}

}  // namespace

std::string to_csv(std::span<const TrafficSample> samples) {
  std::string out =
      "requests,timestamp_ms,empty,cached,referenced,blocks,hits,evictions,hit_rate\n";
  for (const TrafficSample& sample : samples) {
    out += formatted("%zu,%llu,%u,%u,%u,%llu,%llu,%llu,%.6f\n", sample.requests_done,
                     wide(sample.timestamp_ms), sample.counts.empty, sample.counts.cached,
                     sample.counts.referenced, wide(sample.blocks), wide(sample.hits),
                     wide(sample.evictions), sample.hit_rate());
  }
  return out;
}

std::string to_text_chart(std::span<const TrafficSample> samples, std::size_t num_rows,
                          std::size_t bar_width) {
  std::string out = formatted("%8s %9s  %-*s  %10s %8s %8s %10s %9s\n", "minute", "requests",
                              static_cast<int>(bar_width + 2), "# referenced  = cached  . empty",
                              "referenced", "cached", "empty", "evictions", "hit rate");
  num_rows = std::min(num_rows, samples.size());
  for (std::size_t row = 1; row <= num_rows; ++row) {
    const TrafficSample& sample = samples[row * samples.size() / num_rows - 1];
    out += formatted("%8.1f %9zu  ", minutes(sample), sample.requests_done);
    out += blocks_bar(sample.counts, bar_width);
    out +=
        formatted("  %10u %8u %8u %10llu %9s\n", sample.counts.referenced, sample.counts.cached,
                  sample.counts.empty, wide(sample.evictions), percent(sample.hit_rate()).c_str());
  }
  return out;
}

std::string to_svg(std::span<const TrafficSample> samples) {
  const bool by_time = has_times(samples);
  const auto x_of = [&](const TrafficSample& sample) {
    return by_time ? minutes(sample) : static_cast<double>(sample.requests_done);
  };
  const double x_min = samples.empty() || !by_time ? 0 : x_of(samples.front());
  const double x_max = samples.empty() ? 1 : x_of(samples.back());
  std::vector<double> x;
  std::vector<BlockCounts> counts;
  double y_max = 1;
  for (const TrafficSample& sample : samples) {
    x.push_back(x_of(sample));
    counts.push_back(sample.counts);
    y_max = sample.counts.empty + sample.counts.cached + sample.counts.referenced;
  }
  SvgWriter svg = titled_svg(kHeight, "Blocks of the pool, and the hit rate so far");
  Plot plot(svg, kArea, {x_min, x_max}, y_max);
  plot.stack_blocks(x, counts);
  plot.y_ticks();
  plot.x_ticks();

  const auto y_of_rate = [](double rate) {
    return kArea.bottom - rate * (kArea.bottom - kArea.top);
  };
  std::vector<SvgPoint> rates;
  for (const TrafficSample& sample : samples) {
    rates.push_back({x_of(sample), sample.hit_rate() * y_max});
  }
  plot.polyline(rates, kAccentColor);
  svg.line({kArea.right, kArea.top}, {kArea.right, kArea.bottom}, kAxisColor);
  for (int tick = 0; tick <= 100; tick += 20) {
    svg.text({kArea.right + 8, y_of_rate(tick / 100.0) + 4}, formatted("%d %%", tick));
  }
  svg.text({kSvgWidth - 12, (kArea.top + kArea.bottom) / 2}, "hit rate so far",
           SvgWriter::Anchor::kMiddle, 90);

  plot.legend(280, kAccentColor, "hit rate");
  plot.frame(by_time ? "time in the trace (minutes)" : "requests", "blocks");
  return svg.finish();
}

std::string to_table(std::span<const HitRatePoint> curve, const MooncakeTotals& totals) {
  constexpr double kBarWidth = 40;
  std::string out = formatted("%10s %9s %10s %10s %9s\n", "gpu_blocks", "hit rate", "hits",
                              "evictions", "too large");
  for (const HitRatePoint& point : curve) {
    const TrafficReplayResult& result = point.result;
    const auto num_marks = static_cast<std::size_t>(std::lround(result.hit_rate() * kBarWidth));
    out += formatted("%10u %9s %10llu %10llu %9zu  %s\n", point.gpu_blocks,
                     percent(result.hit_rate()).c_str(), wide(result.hits), wide(result.evictions),
                     result.too_large, std::string(num_marks, '#').c_str());
  }
  out += formatted("%10s %9s %10llu\n", "no limit", percent(totals.hit_rate_max()).c_str(),
                   wide(totals.num_blocks - totals.num_distinct_blocks));
  return out;
}

std::string to_csv(std::span<const HitRatePoint> curve) {
  std::string out = "gpu_blocks,hit_rate,hits,blocks,evictions,too_large\n";
  for (const HitRatePoint& point : curve) {
    const TrafficReplayResult& result = point.result;
    out +=
        formatted("%u,%.6f,%llu,%llu,%llu,%zu\n", point.gpu_blocks, result.hit_rate(),
                  wide(result.hits), wide(result.blocks), wide(result.evictions), result.too_large);
  }
  return out;
}

std::string to_svg(std::span<const HitRatePoint> curve, const MooncakeTotals& totals) {
  std::vector<HitRatePoint> points(curve.begin(), curve.end());
  std::sort(points.begin(), points.end(), [](const HitRatePoint& a, const HitRatePoint& b) {
    return a.gpu_blocks < b.gpu_blocks;
  });
  const auto x_of = [](double num) { return std::log10(std::max(num, 1.0)); };
  const double x_min = points.empty() ? 0 : std::floor(x_of(points.front().gpu_blocks));
  const double x_max =
      points.empty() ? 1 : std::max(x_of(points.back().gpu_blocks) * 1.01, x_min + 1);
  double y_max = totals.hit_rate_max();
  for (const HitRatePoint& point : points) y_max = std::max(y_max, point.result.hit_rate());
  y_max = std::min(y_max * 1.15 + 0.001, 1.0);
  SvgWriter svg = titled_svg(kHeight, "Hit rate over the size of the pool");
  Plot plot(svg, kArea, {x_min, x_max}, y_max);

  for (double power = x_min; power <= x_max; ++power) {
    plot.x_tick(power, formatted("%.0f", std::pow(10, power)));
  }
  plot.rate_ticks(totals.hit_rate_max(), "no pool can exceed");

  std::vector<SvgPoint> line;
  for (const HitRatePoint& point : points) {
    line.push_back({plot.x(x_of(point.gpu_blocks)), plot.y(point.result.hit_rate())});
  }
  svg.polyline(line, kAccentColor);
  for (std::size_t index = 0; index < points.size(); ++index) {
    svg.circle(line[index], 3.5, kAccentColor);
    svg.text({line[index].x + 6, line[index].y + 16},
             formatted("%.1f", points[index].result.hit_rate() * 100));
  }
  plot.frame("gpu_blocks (logarithmic)", "hit rate");
  return svg.finish();
}

}  // namespace kvfence
