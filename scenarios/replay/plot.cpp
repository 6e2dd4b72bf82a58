#include "scenarios/replay/plot.h"

#include <algorithm>
#include <cmath>
#include <cstdarg>
#include <cstdio>

namespace kvfence {
namespace {

std::string tick_text(double value, double step) {
  return step < 1 ? formatted("%g", value) : formatted("%.0f", value);
}

/// A step of 1, 2 or 5 times a power of ten that cuts [0, max] into three to eight.
double tick_step(double max) {
  const double power = std::pow(10, std::floor(std::log10(std::max(max, 1e-9) / 3)));
  for (const double factor : {5.0, 2.0}) {
    if (max / (factor * power) >= 3) return factor * power;
  }
  return power;
}

}  // namespace

std::string formatted(const char* format, ...) {
  char text[256];
  std::va_list arguments;
  va_start(arguments, format);
  std::vsnprintf(text, sizeof(text), format, arguments);
  va_end(arguments);
  return text;
}

std::string row(const char* name, const std::string& text) {
  return formatted("  %-18s ", name) + text + "\n";
}

std::string percent(double share) { return formatted("%.2f %%", share * 100); }

std::string blocks_bar(const BlockCounts& counts, std::size_t width) {
  const std::uint64_t used = std::uint64_t{counts.referenced} + counts.cached;
  const std::uint64_t total = std::max<std::uint64_t>(used + counts.empty, 1);
  const auto marks = [&](std::uint64_t count) {
    return std::min(static_cast<std::size_t>((count * width + total - 1) / total), width);
  };
  const std::size_t num_referenced = marks(counts.referenced);
  const std::size_t num_used = std::max(marks(used), num_referenced);
  return '|' + std::string(num_referenced, '#') + std::string(num_used - num_referenced, '=') +
         std::string(width - num_used, '.') + '|';
}

SvgWriter titled_svg(double height, std::string_view title) {
  constexpr SvgPoint kTitlePlace{80, 24};
  SvgWriter svg(kSvgWidth, height, title);
  svg.text(kTitlePlace, title);
  return svg;
}

Plot::Plot(SvgWriter& svg, const Area& area, Range x, double y_max)
    : svg_(svg),
      area_(area),
      x_(x),
      x_span_(std::max(x.max - x.min, 1e-9)),
      y_max_(std::max(y_max, 1e-9)) {}

double Plot::x(double value) const {
  return area_.left + (value - x_.min) / x_span_ * (area_.right - area_.left);
}

double Plot::y(double value) const {
  return area_.bottom - value / y_max_ * (area_.bottom - area_.top);
}

void Plot::frame(std::string_view x_label, std::string_view y_label) {
  constexpr double kToXLabel = 44;
  constexpr double kToYLabel = 62;
  svg_.line({area_.left, area_.top}, {area_.left, area_.bottom}, kAxisColor);
  svg_.line({area_.left, area_.bottom}, {area_.right, area_.bottom}, kAxisColor);
  svg_.text({(area_.left + area_.right) / 2, area_.bottom + kToXLabel}, x_label,
            SvgWriter::Anchor::kMiddle);
  svg_.text({area_.left - kToYLabel, (area_.top + area_.bottom) / 2}, y_label,
            SvgWriter::Anchor::kMiddle, -90);
}

void Plot::x_tick(double value, const std::string& label) {
  svg_.line({x(value), area_.bottom}, {x(value), area_.bottom + 5}, kAxisColor);
  svg_.text({x(value), area_.bottom + 20}, label, SvgWriter::Anchor::kMiddle);
}

void Plot::y_tick(double value, const std::string& label) {
  svg_.line({area_.left, y(value)}, {area_.right, y(value)}, kGridColor);
  svg_.text({area_.left - 8, y(value) + 4}, label, SvgWriter::Anchor::kEnd);
}

void Plot::x_ticks() {
  const double step = tick_step(x_.max - x_.min);
  for (double value = std::ceil(x_.min / step) * step; value <= x_.max; value += step) {
    x_tick(value, tick_text(value, step));
  }
}

void Plot::y_ticks() {
  const double step = tick_step(y_max_);
  for (double value = 0; value <= y_max_; value += step) y_tick(value, tick_text(value, step));
}

std::vector<SvgPoint> Plot::pixels_of(const std::vector<SvgPoint>& values) const {
  std::vector<SvgPoint> pixels;
  pixels.reserve(values.size() + 2);
  for (const SvgPoint& value : values) pixels.push_back({x(value.x), y(value.y)});
  return pixels;
}

void Plot::fill_below(const std::vector<SvgPoint>& values, std::string_view color) {
  if (values.empty()) return;
  std::vector<SvgPoint> corners = pixels_of(values);
  corners.push_back({corners.back().x, area_.bottom});
  corners.push_back({corners.front().x, area_.bottom});
  svg_.polygon(corners, color);
}

void Plot::polyline(const std::vector<SvgPoint>& values, std::string_view color) {
  svg_.polyline(pixels_of(values), color);
}

void Plot::stack_blocks(const std::vector<double>& x, const std::vector<BlockCounts>& counts) {
  std::vector<SvgPoint> empty;
  std::vector<SvgPoint> cached;
  std::vector<SvgPoint> referenced;
  for (std::size_t index = 0; index < x.size(); ++index) {
    const BlockCounts& now = counts[index];
    referenced.push_back({x[index], static_cast<double>(now.referenced)});
    cached.push_back({x[index], static_cast<double>(now.referenced + now.cached)});
    empty.push_back({x[index], static_cast<double>(now.referenced + now.cached + now.empty)});
  }
  // The next area covers the lower part of the one before.
  fill_below(empty, kEmptyColor);
  fill_below(cached, kCachedColor);
  fill_below(referenced, kReferencedColor);
  legend(0, kReferencedColor, "referenced");
  legend(110, kCachedColor, "cached");
  legend(200, kEmptyColor, "empty");
}

void Plot::rate_ticks(double limit, const std::string& what_cannot_exceed) {
  const double step = tick_step(y_max_ * 100) / 100;
  for (int tick = 0; tick * step <= y_max_; ++tick) {
    y_tick(tick * step, formatted("%g %%", tick * step * 100));
  }
  svg_.line({area_.left, y(limit)}, {area_.right, y(limit)}, kAxisColor, /*is_dashed=*/true);
  svg_.text({area_.left + 8, y(limit) - 6}, what_cannot_exceed + " " + percent(limit));
}

void Plot::legend(double offset, std::string_view color, std::string_view label) {
  const double left = area_.left + offset;
  svg_.rectangle({left, area_.top - 18}, 12, 10, color);
  svg_.text({left + 17, area_.top - 9}, label);
}

}  // namespace kvfence
