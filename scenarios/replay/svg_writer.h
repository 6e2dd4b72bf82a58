#pragma once

/// Writes SVG pictures: well-formed by construction, without styles or scripts from outside.

#include <string>
#include <string_view>
#include <vector>

namespace kvfence {

struct SvgPoint {
  double x = 0;
  double y = 0;
};

/// One digit after the point, which is a tenth of a pixel.
std::string svg_number(double value);
/// name="value", with a space in front (properties/report/xml_text.h).
std::string xml_attribute(std::string_view name, double value);

class SvgWriter {
 public:
  enum class Anchor { kStart, kMiddle, kEnd };

  /// Units: pixels, for all of this class.
  SvgWriter(double width, double height, std::string_view title);

  void line(SvgPoint from, SvgPoint to, std::string_view color, bool is_dashed = false);
  void polyline(const std::vector<SvgPoint>& points, std::string_view color);
  void polygon(const std::vector<SvgPoint>& points, std::string_view fill);
  void circle(SvgPoint center, double radius, std::string_view fill);
  void rectangle(SvgPoint corner, double width, double height, std::string_view fill);
  /// angle: degrees, clockwise, around the position.
  void text(SvgPoint at, std::string_view text, Anchor anchor = Anchor::kStart, double angle = 0);

  /// The finished document.
  std::string finish();

 private:
  void put_points(const std::vector<SvgPoint>& points);

  std::string out_;
};

}  // namespace kvfence
