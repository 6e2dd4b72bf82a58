#pragma once

/// Shared by the charts of this folder: a rectangle with axes in an SVG picture, colours, and text
/// made of numbers. Units are pixels unless a line says otherwise.

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "contract/pool/block_pool.h"
#include "scenarios/replay/svg_writer.h"

namespace kvfence {

// Distinguishable in grey and with the usual kinds of colour blindness.
inline constexpr std::string_view kReferencedColor = "#08519c";
inline constexpr std::string_view kCachedColor = "#6baed6";
inline constexpr std::string_view kEmptyColor = "#deebf7";
inline constexpr std::string_view kAccentColor = "#d94801";
inline constexpr std::string_view kAxisColor = "#444444";
inline constexpr std::string_view kGridColor = "#cccccc";

/// printf into a string; what is longer than 255 characters is cut.
[[gnu::format(printf, 1, 2)]] std::string formatted(const char* format, ...);

/// A line of a summary: `name` in a column, then the text.
std::string row(const char* name, const std::string& text);

/// For %llu.
inline unsigned long long wide(std::uint64_t value) { return value; }

/// "12.34 %" of a share of 0 to 1.
std::string percent(double share);

/// `#` referenced, `=` cached, `.` empty, between bars. A number above 0 has at least one mark.
std::string blocks_bar(const BlockCounts& counts, std::size_t width);

/// A picture of that height, and of the width of all, with its title.
SvgWriter titled_svg(double height, std::string_view title);
inline constexpr double kSvgWidth = 860;

/// Maps values to pixels and draws what all charts share.
class Plot {
 public:
  struct Area {
    double left = 0;
    double right = 0;
    double top = 0;
    double bottom = 0;
  };
  /// Of values, not of pixels.
  struct Range {
    double min = 0;
    double max = 0;
  };

  /// Requires: svg outlives the plot.
  Plot(SvgWriter& svg, const Area& area, Range x, double y_max);

  double x(double value) const;
  double y(double value) const;

  /// The axes and their labels.
  void frame(std::string_view x_label, std::string_view y_label);
  void x_tick(double value, const std::string& label);
  void y_tick(double value, const std::string& label);

  /// Ticks at round values, labelled with them.
  void x_ticks();
  void y_ticks();

  /// The area between the axis and a line through these values; fills what was drawn before.
  void fill_below(const std::vector<SvgPoint>& values, std::string_view color);
  void polyline(const std::vector<SvgPoint>& values, std::string_view color);

  /// The three numbers over x as stacked areas, with their legend.
  void stack_blocks(const std::vector<double>& x, const std::vector<BlockCounts>& counts);

  /// Ticks of rates of 0 to 1, and a dashed line at the one that nothing can exceed.
  void rate_ticks(double limit, const std::string& what_cannot_exceed);

  /// A coloured square and its meaning above the plot, `offset` from its left edge.
  void legend(double offset, std::string_view color, std::string_view label);

 private:
  std::vector<SvgPoint> pixels_of(const std::vector<SvgPoint>& values) const;

  SvgWriter& svg_;
  Area area_;
  Range x_;
  double x_span_;
  double y_max_;
};

}  // namespace kvfence
