#include "scenarios/traffic_report.h"

#include <algorithm>
#include <cmath>
#include <cstdarg>
#include <cstdio>
#include <vector>

#include "scenarios/svg_writer.h"

namespace kvfence {
namespace {

constexpr double kWidth = 860;
constexpr double kHeight = 420;
constexpr double kLeft = 80;
constexpr double kRight = 790;
constexpr double kTop = 50;
constexpr double kBottom = 360;

// Told apart in grey and by the usual kinds of colour blindness.
constexpr std::string_view kReferencedColor = "#08519c";
constexpr std::string_view kCachedColor = "#6baed6";
constexpr std::string_view kEmptyColor = "#deebf7";
constexpr std::string_view kHitRateColor = "#d94801";
constexpr std::string_view kAxisColor = "#444444";
constexpr std::string_view kGridColor = "#cccccc";

/// printf into a string: the one place with a bounded buffer; longer text is cut.
[[gnu::format(printf, 1, 2)]] std::string formatted(const char* format, ...) {
  char text[256];
  std::va_list arguments;
  va_start(arguments, format);
  std::vsnprintf(text, sizeof(text), format, arguments);
  va_end(arguments);
  return text;
}

std::string percent(double share) { return formatted("%.2f %%", share * 100); }

unsigned long long wide(std::uint64_t value) { return value; }

/// A step of 1, 2 or 5 times a power of ten that cuts [0, max] into three to eight.
double tick_step(double max) {
  const double power = std::pow(10, std::floor(std::log10(std::max(max, 1e-9) / 3)));
  for (const double factor : {5.0, 2.0}) {
    if (max / (factor * power) >= 3) return factor * power;
  }
  return power;
}

/// A chart's rectangle: maps values to pixels and draws what all charts share.
class Plot {
 public:
  Plot(std::string_view title, double x_min, double x_max, double y_max)
      : svg_(kWidth, kHeight, title),
        x_min_(x_min),
        x_span_(std::max(x_max - x_min, 1e-9)),
        y_max_(std::max(y_max, 1e-9)) {
    svg_.text({kLeft, 24}, title);
  }

  SvgWriter& svg() { return svg_; }
  double x(double value) const { return kLeft + (value - x_min_) / x_span_ * (kRight - kLeft); }
  double y(double value) const { return kBottom - value / y_max_ * (kBottom - kTop); }

  void frame(std::string_view x_label, std::string_view y_label) {
    svg_.line({kLeft, kTop}, {kLeft, kBottom}, kAxisColor);
    svg_.line({kLeft, kBottom}, {kRight, kBottom}, kAxisColor);
    svg_.text({(kLeft + kRight) / 2, kHeight - 16}, x_label, SvgWriter::Anchor::kMiddle);
    svg_.text({18, (kTop + kBottom) / 2}, y_label, SvgWriter::Anchor::kMiddle, -90);
  }

  void x_tick(double value, const std::string& label) {
    svg_.line({x(value), kBottom}, {x(value), kBottom + 5}, kAxisColor);
    svg_.text({x(value), kBottom + 20}, label, SvgWriter::Anchor::kMiddle);
  }

  void y_tick(double value, const std::string& label) {
    svg_.line({kLeft, y(value)}, {kRight, y(value)}, kGridColor);
    svg_.text({kLeft - 8, y(value) + 4}, label, SvgWriter::Anchor::kEnd);
  }

 private:
  SvgWriter svg_;
  double x_min_;
  double x_span_;
  double y_max_;
};

void put_legend(SvgWriter& svg, double left, std::string_view color, std::string_view label) {
  svg.rectangle({left, 32}, 12, 10, color);
  svg.text({left + 17, 41}, label);
}

/// Whether the samples lie apart in the trace's own time.
bool has_times(std::span<const TrafficSample> samples) {
  return !samples.empty() && samples.front().timestamp_ms < samples.back().timestamp_ms;
}

double minutes(const TrafficSample& sample) {
  return static_cast<double>(sample.timestamp_ms) / 60'000;
}

std::uint32_t num_blocks(const TrafficSample& sample) {
  return sample.counts.empty + sample.counts.cached + sample.counts.referenced;
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
    const std::uint64_t total = std::max<std::uint32_t>(num_blocks(sample), 1);
    // What is there at all shows: the null block alone is one mark of referenced.
    const auto marks = [&](std::uint64_t count) {
      return static_cast<std::size_t>((count * bar_width + total - 1) / total);
    };
    const std::size_t num_referenced = std::min(marks(sample.counts.referenced), bar_width);
    const std::size_t num_used =
        std::min(std::max(marks(std::uint64_t{sample.counts.referenced} + sample.counts.cached),
                          num_referenced),
                 bar_width);
    out += formatted("%8.1f %9zu  ", minutes(sample), sample.requests_done);
    out += '|' + std::string(num_referenced, '#') + std::string(num_used - num_referenced, '=') +
           std::string(bar_width - num_used, '.') + '|';
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
  const double y_max = samples.empty() ? 1 : num_blocks(samples.back());
  Plot plot("Blocks of the pool, and the hit rate so far", x_min, x_max, y_max);
  SvgWriter& svg = plot.svg();

  // Each area reaches down to the axis; the next one covers its lower part.
  const auto area = [&](std::string_view color, auto&& top_of) {
    if (samples.empty()) return;
    std::vector<SvgPoint> points;
    for (const TrafficSample& sample : samples) {
      points.push_back({plot.x(x_of(sample)), plot.y(top_of(sample.counts))});
    }
    points.push_back({points.back().x, kBottom});
    points.push_back({points.front().x, kBottom});
    svg.polygon(points, color);
  };
  area(kEmptyColor, [](const BlockCounts& counts) {
    return static_cast<double>(counts.referenced + counts.cached + counts.empty);
  });
  area(kCachedColor, [](const BlockCounts& counts) {
    return static_cast<double>(counts.referenced + counts.cached);
  });
  area(kReferencedColor,
       [](const BlockCounts& counts) { return static_cast<double>(counts.referenced); });

  const double blocks_step = tick_step(y_max);
  for (double value = 0; value <= y_max; value += blocks_step) {
    plot.y_tick(value, formatted("%.0f", value));
  }
  const double x_step = tick_step(x_max - x_min);
  for (double value = std::ceil(x_min / x_step) * x_step; value <= x_max; value += x_step) {
    plot.x_tick(value, formatted("%g", value));
  }

  const auto y_of_rate = [](double rate) { return kBottom - rate * (kBottom - kTop); };
  std::vector<SvgPoint> rates;
  for (const TrafficSample& sample : samples) {
    rates.push_back({plot.x(x_of(sample)), y_of_rate(sample.hit_rate())});
  }
  svg.polyline(rates, kHitRateColor);
  svg.line({kRight, kTop}, {kRight, kBottom}, kAxisColor);
  for (int tick = 0; tick <= 100; tick += 20) {
    svg.text({kRight + 8, y_of_rate(tick / 100.0) + 4}, formatted("%d %%", tick));
  }
  svg.text({kWidth - 12, (kTop + kBottom) / 2}, "hit rate so far", SvgWriter::Anchor::kMiddle, 90);

  put_legend(svg, kLeft, kReferencedColor, "referenced");
  put_legend(svg, kLeft + 110, kCachedColor, "cached");
  put_legend(svg, kLeft + 200, kEmptyColor, "empty");
  put_legend(svg, kLeft + 280, kHitRateColor, "hit rate");
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
    out += formatted("%10u %9s %10llu %10llu %9zu  %s%s\n", point.gpu_blocks,
                     percent(result.hit_rate()).c_str(), wide(result.hits), wide(result.evictions),
                     result.too_large, std::string(num_marks, '#').c_str(),
                     result.divergence ? "  DISAGREEMENT" : "");
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
  Plot plot("Hit rate over the size of the pool", x_min, x_max, y_max);
  SvgWriter& svg = plot.svg();

  const double y_step = tick_step(y_max * 100) / 100;
  for (int tick = 0; tick * y_step <= y_max; ++tick) {
    plot.y_tick(tick * y_step, formatted("%g %%", tick * y_step * 100));
  }
  for (double power = x_min; power <= x_max; ++power) {
    plot.x_tick(power, formatted("%.0f", std::pow(10, power)));
  }
  const double y_limit = plot.y(totals.hit_rate_max());
  svg.line({kLeft, y_limit}, {kRight, y_limit}, kAxisColor, /*is_dashed=*/true);
  svg.text({kLeft + 8, y_limit - 6}, "no pool can exceed " + percent(totals.hit_rate_max()));

  std::vector<SvgPoint> line;
  for (const HitRatePoint& point : points) {
    line.push_back({plot.x(x_of(point.gpu_blocks)), plot.y(point.result.hit_rate())});
  }
  svg.polyline(line, kHitRateColor);
  for (std::size_t index = 0; index < points.size(); ++index) {
    svg.circle(line[index], 3.5, kHitRateColor);
    svg.text({line[index].x + 6, line[index].y + 16},
             formatted("%.1f", points[index].result.hit_rate() * 100));
  }
  plot.frame("gpu_blocks (logarithmic)", "hit rate");
  return svg.finish();
}

}  // namespace kvfence
